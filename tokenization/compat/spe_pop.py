"""REMI tokens of the pop-piano experiment of the SPE paper (Liutkus et al., 2021): 4/4, sixteenths.

Names, their order and the quantisation are those of its data set (compound-word corpus, 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_NAMES, QUALITIES, ROOTS
from tokenization.compat.spe import SpeGrammar, known_ids
from tokenization.grid import STEPS_PER_BEAT
from tokenization.remi.packing import Packing
from tokenization.remi.quantize import ends_of_runs, refuse_late_notes, starts_of_runs
from tokenization.score import Score, Tempo, TimeSignature, Track, all_notes, nearest_ratio
from tokenization.tokenizer import BaseTokenizer, Rules, TokenSequence, Vocabulary, end_of_crop

Chords = Sequence[str] | Sequence[tuple[float, str]]

STEPS_PER_BAR = 16
_TICKS_PER_STEP = STEPS_PER_BEAT // 4
_TICKS_PER_BAR = STEPS_PER_BAR * _TICKS_PER_STEP
MIN_PITCH, MAX_PITCH = 22, 107
MIN_VELOCITY, MAX_VELOCITY = 40, 86
_FAST = (155, 158, 161, 167, 170, 176, 182, 188, 194, 200, 206, 215, 221, 224)
TEMPOS = np.array([*range(32, 150, 3), *_FAST])
"""Quarter notes per minute: the values from 32 to 224 by 3 that occur in the data set."""

_VALUES: dict[str, Sequence[int | str]] = {
    "Bar": ("None",),
    "Beat": range(STEPS_PER_BAR),
    "Chord": CHORD_NAMES,
    "EOS": ("None",),
    "Note_Duration": range(0, 120 * STEPS_PER_BAR + 1, 120),
    "Note_Pitch": range(MIN_PITCH, MAX_PITCH + 1),
    "Note_Velocity": range(MIN_VELOCITY, MAX_VELOCITY + 1, 2),
    "Tempo": TEMPOS.tolist(),
}
_NAMES = sorted(f"{family}_{value}" for family, values in _VALUES.items() for value in values)
SPE_POP_VOCABULARY = Vocabulary((*_NAMES, "PAD"))
"""333 tokens: 332 in the order of their names as strings, then PAD."""

_ID = {
    family: np.array([SPE_POP_VOCABULARY.ids[f"{family}_{value}"] for value in values])
    for family, values in _VALUES.items()
}
"""Ids of each family, in ascending order of their values; chords by root, then quality."""
_RANK = np.zeros(len(SPE_POP_VOCABULARY), np.int64)
for _ids in _ID.values():
    _RANK[_ids] = np.arange(len(_ids))
BAR, EOS, PAD = 0, 150, len(_NAMES)
BEAT, CHORD, DURATION, PITCH, VELOCITY, TEMPO = 1, 17, 151, 168, 254, 278
"""First id of each family. A family is a range of ids, in which values are not in order."""

_EVENT = Packing(31, 2, 9, 9, 9)
"""Step and kind; then pitch from the top, length and velocity of a note, or an id, 0 and 0."""
_IS_BAR, _IS_CHORD, _IS_TEMPO, _IS_NOTE = range(4)


@dataclass(frozen=True, eq=False, kw_only=True)
class PopTokens(TokenSequence):
    """A piece as tokens, which contain neither time signatures nor empty bars at its start."""

    first_bar: int = 0
    """Number of bars left out before the first one; an argument of `decode`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """See `TokenSequence`; counted from the first Bar."""
        return _steps(self.ids)[:-1] / 4


@dataclass(frozen=True, kw_only=True)
class SpePopConfig:
    """Configuration of a `SpePop`."""

    kind: Literal["spe_pop"] = "spe_pop"

    def build(self) -> SpePop:
        """The tokenizer."""
        return SpePop(self)


class SpePop(BaseTokenizer["PopGrammar"]):
    """Piano music in 4/4 as Bar, Beat, Chord, Tempo and note tokens on sixteenths.

    A canonical sequence consists of Bars, each with its Beats, then a Bar and EOS. A Beat is
    followed by a Chord, a Tempo and notes, in this order, at least one of them. Beats are in
    ascending order, pitches in descending order. A note is a Pitch, Velocity and Duration. The
    first and the last bar have a note. Note_Duration_0 is not used.
    """

    vocabulary = SPE_POP_VOCABULARY

    def __init__(self, config: SpePopConfig | None = None) -> None:
        super().__init__(SpePopConfig() if config is None else config)

    def encode(self, score: Score, chords: Chords = ()) -> PopTokens:
        """Encodes all tracks except drums as one piano; every four quarters are a bar.

        `chords`: names such as C_m7 or N_N, one per quarter note, or (quarter note, name) pairs. Of
        notes at one pitch and step the longest is kept, then the loudest; a note lasts at most a
        bar. Bars before the first note are left out, and settings in effect there move to it.
        Raises MidiError if a note is later than 65,536 quarters, ValueError for a chord without a
        token.
        """
        table = all_notes(track for track in score.tracks if not track.is_drum)
        heard = (table[:, 2] >= MIN_PITCH) & (table[:, 2] <= MAX_PITCH)
        dropped = len(table) - int(np.count_nonzero(heard))
        table = table[heard]
        refuse_late_notes(table[:, 0], score.ticks_per_beat)
        lengths = np.clip(nearest_ratio(4 * table[:, 1], score.ticks_per_beat), 1, STEPS_PER_BAR)
        # Odd velocities are halfway between two of the data set, and are rounded down.
        velocities = (np.clip(table[:, 3], MIN_VELOCITY, MAX_VELOCITY) - MIN_VELOCITY) // 2
        steps = nearest_ratio(4 * table[:, 0], score.ticks_per_beat)
        kinds = np.full_like(steps, _IS_NOTE)
        notes = _EVENT.pack(steps, kinds, MAX_PITCH - table[:, 2], lengths, velocities)
        notes.sort()
        notes = notes[ends_of_runs(_EVENT.above(notes, 3))]

        first, last = _EVENT.above(notes[[0, -1]], 1) // STEPS_PER_BAR if len(notes) else (0, -1)
        lines = STEPS_PER_BAR * np.arange(int(first), int(last) + 2)
        bpm = np.array([tempo.bpm for tempo in score.tempos], np.float64)
        ticks = np.array([tempo.tick for tempo in score.tempos], np.int64)
        tempo_steps = nearest_ratio(4 * ticks, score.ticks_per_beat)
        # Halves are rounded to the slower tempo.
        tempos = _ID["Tempo"][np.searchsorted((TEMPOS[1:] + TEMPOS[:-1]) / 2, bpm)]
        pairs = [pair if isinstance(pair, tuple) else (i, pair) for i, pair in enumerate(chords)]
        pairs.sort(key=lambda pair: pair[0])
        chord_steps = np.floor(4 * np.array([beat for beat, _ in pairs]) + 0.5).astype(np.int64)
        return PopTokens(
            ids=_write_ids(
                [
                    _events(lines, _IS_BAR, np.full(len(lines), BAR)),
                    _changes(chord_steps, _IS_CHORD, _chord_ids([n for _, n in pairs]), lines),
                    _changes(tempo_steps, _IS_TEMPO, tempos, lines),
                    notes,
                ]
            ),
            dropped=dropped,
            clipped=int(np.count_nonzero(table[:, 1] > 4 * score.ticks_per_beat)),
            merged=len(table) - len(notes),
            tempos_clipped=int(np.count_nonzero((bpm < TEMPOS[0]) | (bpm > TEMPOS[-1]))),
            first_bar=int(lines[0]) // STEPS_PER_BAR,
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
        first_bar: int = 0,
    ) -> Score:
        """Decodes any ids to a score with 12 ticks per quarter, in linear time; never raises.

        Only ids up to the first EOS count. A note is a Pitch, Velocity and Duration in a row; a
        duration of 0 becomes a sixteenth. Misplaced tokens are ignored. If the last Bar is empty,
        the score ends before it. `first_bar`: number of bars without tokens at the start.
        """
        array = known_ids(ids, EOS, PAD)
        ticks = (_steps(array) + STEPS_PER_BAR * first_bar) * _TICKS_PER_STEP
        is_pitch = (array >= PITCH) & (array < VELOCITY)
        is_velocity = (array >= VELOCITY) & (array < TEMPO)
        is_duration = (array >= DURATION) & (array < PITCH)
        places = np.flatnonzero(is_pitch[:-2] & is_velocity[1:-1] & is_duration[2:])
        columns = (
            ticks[places],
            np.maximum(_RANK[array[places + 2]], 1) * _TICKS_PER_STEP,
            _RANK[array[places]] + MIN_PITCH,
            _RANK[array[places + 1]] * 2 + MIN_VELOCITY,
        )
        places = np.flatnonzero((array >= TEMPO) & (array < PAD))
        bpm = TEMPOS[_RANK[array[places]]].astype(float).tolist()
        num_bars = first_bar + int(np.count_nonzero(array[:-1] == BAR))
        return Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=(Track(np.stack(columns, axis=1)),),
            tempos=tuple(map(Tempo, ticks[places].tolist(), bpm)),
            time_signatures=(TimeSignature(0, 4, 4),),
            end_ticks=num_bars * _TICKS_PER_BAR,
        )

    def chords(
        self, ids: Sequence[int] | NDArray[np.integer], first_bar: int = 0
    ) -> list[tuple[float, str]]:
        """(quarter note, name) of each Chord of any ids, as accepted by `encode`."""
        array = known_ids(ids, EOS, PAD)
        places = np.flatnonzero((array >= CHORD) & (array < EOS))
        beats = (_steps(array)[places] + STEPS_PER_BAR * first_bar) / 4
        ranks: list[int] = _RANK[array[places]].tolist()
        return list(zip(beats.tolist(), [CHORD_NAMES[rank] for rank in ranks], strict=True))

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """1 for each melodic track, -1 for drums, which are not encoded."""
        return [-1 if track.is_drum else 1 for track in tracks]

    def _grammar(self, rules: Rules) -> PopGrammar:
        return PopGrammar(rules)

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of `num_bars` bars (default: all) from bar `first_bar` on.

        Empty bars there are skipped. The ids start with the Chord and Tempo in effect, if any.
        The Bar before EOS does not count as a bar; both are kept with the last one. Raises
        ValueError if there is no such bar.
        """
        bars: list[int] = np.flatnonzero(ids == BAR).tolist()
        if len(bars) > 1 and ids[-1] == EOS:
            bars.pop()
        stop_bar = end_of_crop(first_bar, num_bars, len(bars))
        notes: list[int] = np.flatnonzero((ids >= PITCH) & (ids < VELOCITY)).tolist()
        note = int(np.searchsorted(notes, bars[first_bar]))
        if note < len(notes):
            silent_bars = int(np.searchsorted(bars, notes[note])) - 1 - first_bar
            first_bar += silent_bars
            stop_bar = min(stop_bar + silent_bars, len(bars))
        start, stop = bars[first_bar], [*bars, len(ids)][stop_bar]
        rest = start + 1
        has_beat = rest < stop and ids[rest] == BEAT
        rest += has_beat
        in_force: list[int] = []
        for first, after in ((CHORD, EOS), (TEMPO, PAD)):
            if has_beat and rest < stop and first <= ids[rest] < after:
                in_force.append(int(ids[rest]))
                rest += 1
            else:
                before = ids[:start]
                in_force.extend(before[(before >= first) & (before < after)][-1:].tolist())
        head = [BAR, *([BEAT, *in_force] if has_beat or in_force else [])]
        return np.concatenate([np.array(head, dtype=ids.dtype), ids[rest:stop]])

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Transposed ids, including chord roots; None if a pitch has no token."""
        moved = ids.copy()
        places = np.flatnonzero((ids >= PITCH) & (ids < VELOCITY))
        ranks = _RANK[ids[places]] + semitones
        if len(ranks) and not 0 <= ranks.min() <= ranks.max() < len(_ID["Note_Pitch"]):
            return None
        moved[places] = _ID["Note_Pitch"][ranks]
        places = np.flatnonzero((ids >= CHORD) & (ids < EOS) & (ids != _ID["Chord"][-1]))
        ranks = _RANK[ids[places]] + semitones * len(QUALITIES)
        moved[places] = _ID["Chord"][ranks % (len(ROOTS) * len(QUALITIES))]
        return moved


def _events(steps: NDArray[np.int64], kind: int, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Packed events other than notes."""
    return _EVENT.place(steps, 0) + _EVENT.place(ids, 2) + _EVENT.row(0, kind, 0, 0, 0)


def _changes(
    steps: NDArray[np.int64], kind: int, ids: NDArray[np.int64], lines: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Packed chords or tempos within the bars; of several at one step, or before it, the last."""
    steps = np.maximum(steps, lines[0])
    kept = ends_of_runs(steps) & (steps < lines[-1])
    return _events(steps[kept], kind, ids[kept])


def _chord_ids(names: Iterable[str]) -> NDArray[np.int64]:
    try:
        return np.array([SPE_POP_VOCABULARY.ids[f"Chord_{name}"] for name in names], np.int64)
    except KeyError as error:
        raise ValueError(
            f"chord {error} has no token, expected N_N, or a root ({' '.join(ROOTS)}), _ and a "
            f"quality ({' '.join(QUALITIES)})"
        ) from error


def _write_ids(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int32]:
    """Canonical ids of packed events, which have up to four ids each."""
    events = np.sort(np.concatenate(parts))
    steps, kinds, firsts, lengths, velocities = _EVENT.unpack(events)
    is_bar, is_note = kinds == _IS_BAR, kinds == _IS_NOTE
    new_step = starts_of_runs(steps)
    new_step[1:] |= is_bar[:-1]
    rows = np.full((len(events), 4), -1, np.int32)
    rows[:, 0] = np.where(new_step & ~is_bar, _ID["Beat"][steps % STEPS_PER_BAR], -1)
    rows[:, 1] = firsts
    rows[is_note, 1] = _ID["Note_Pitch"][MAX_PITCH - MIN_PITCH - firsts[is_note]]
    rows[is_note, 2] = _ID["Note_Velocity"][velocities[is_note]]
    rows[is_note, 3] = _ID["Note_Duration"][lengths[is_note]]
    return np.append(rows[rows >= 0], np.int32(EOS))


def _steps(ids: NDArray[np.integer]) -> NDArray[np.int64]:
    """Time in sixteenths reached by the tokens before each one, and by all of them (l + 1,)."""
    is_bar = ids == BAR
    is_mark = is_bar | ((ids >= BEAT) & (ids < CHORD))
    bars = np.maximum(np.cumsum(is_bar[is_mark]) - 1, 0)
    steps = STEPS_PER_BAR * bars + np.where(is_bar[is_mark], 0, _RANK[ids[is_mark]])
    return np.append(0, steps)[np.append(0, np.cumsum(is_mark))]


@dataclass(frozen=True)
class PopGrammar(SpeGrammar):
    """See `SpeGrammar`. Steps are sixteenths."""

    vocabulary = SPE_POP_VOCABULARY

    bar: int = 0
    """Number of Bar tokens so far."""
    step: int = -1
    """Last Beat in the bar; -1 if there is none."""
    pitch: int = len(_ID["Note_Pitch"])
    """Rank of the last Note_Pitch at the step; larger than all ranks if there is none."""
    has_note: bool = False
    """Whether the bar has a note; right after Bar, whether the previous bar has one."""

    @property
    def beat(self) -> float:
        """Time in quarter notes after the first Bar, reached by the tokens so far."""
        return (self.bar_start + max(self.step, 0) * _TICKS_PER_STEP) / STEPS_PER_BEAT

    @property
    def bar_start(self) -> int:
        """Start of the bar in twelfths of a quarter, counted from the first Bar."""
        return max(self.bar - 1, 0) * _TICKS_PER_BAR

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may follow; never empty."""
        mask = np.zeros(len(SPE_POP_VOCABULARY), bool)
        last = self.last
        if last < 0:
            mask[BAR] = True
        elif last in (EOS, PAD):
            mask[PAD] = True
        elif PITCH <= last < VELOCITY:
            mask[VELOCITY:TEMPO] = True
        elif VELOCITY <= last < TEMPO:
            mask[_ID["Note_Duration"][1:]] = True
        else:
            is_beat = BEAT <= last < CHORD
            if is_beat:
                mask[CHORD:EOS] = True
            else:
                mask[_ID["Beat"][self.step + 1 :]] = True
                mask[BAR] = self.bar > 1 or self.has_note
            if last == BAR:
                mask[EOS] = self.rules.end and (self.bar == 1 or self.has_note)
            else:
                mask[_ID["Note_Pitch"][: self.pitch]] = True
            if is_beat or CHORD <= last < EOS:
                tempo = self.rules.tempo
                mask[TEMPO:PAD] = tempo == "free" or (tempo == "bar_line" and self.step == 0)
        mask.setflags(write=False)
        return mask

    @property
    def _place(self) -> str:
        return f"bar {self.bar}, step {self.step}"

    def _after(self, token: int) -> PopGrammar:
        state = replace(
            self,
            last=token,
            has_note=DURATION <= token < PITCH or (self.has_note and self.last != BAR),
        )
        if token == BAR:
            return replace(state, bar=self.bar + 1, step=-1)
        if BEAT <= token < CHORD:
            return replace(state, step=int(_RANK[token]), pitch=len(_ID["Note_Pitch"]))
        return replace(state, pitch=int(_RANK[token])) if PITCH <= token < VELOCITY else state
