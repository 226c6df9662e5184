"""REMI tokens of piano music: bars, positions, tempos and notes (after Huang and Yang, 2020)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenization.grammar import PianoGrammar, Rules
from tokenization.layout import pack_events, read_bars, token_beats, write_ids
from tokenization.midi import MAX_BEATS
from tokenization.quantize import (
    bar_lines,
    name_bars,
    nearest_step,
    quantize_tempos,
    quantize_time_signatures,
    refuse_late_notes,
    separate_notes,
)
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.vocabulary import (
    BAR,
    DURATION,
    DURATIONS,
    EOS,
    MAX_DURATION,
    MIN_BPM,
    MIN_PITCH,
    NUM_PITCHES,
    NUM_TEMPOS,
    PIANO_VOCABULARY,
    PITCH,
    POSITION,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    VELOCITY,
    VELOCITY_STEP,
    Vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.grammar import TempoRule

_MAX_STEPS = MAX_BEATS * STEPS_PER_BEAT
_NO_NOTES = np.empty((0, 4), np.int64)

FILE_NAME = "tokenizer.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A piece as tokens, and what of it they do not say."""

    ids: NDArray[np.int32]
    """(l,), canonical."""
    dropped: int
    """Notes outside the 88 keys."""
    clipped: int
    """Notes longer than 64 quarters, cut to that."""
    merged: int
    """Notes left out because another stands at the same pitch and position."""
    tempos_clipped: int
    """Tempos outside 30 to 240 quarter notes per minute."""
    signatures: tuple[TimeSignature, ...]
    """Time signatures as written, ticks in twelfths of a quarter; for `decode`."""
    tracks: tuple[Track, ...] = ()
    """Where tokens tell tracks apart: these without their notes, in the order of tokens; for
    `decode`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """(l,), see `token_beats`."""
        return token_beats(self.ids)


@dataclass(frozen=True, kw_only=True)
class PianoRemiConfig:
    """Everything needed to build a `PianoRemi` again."""

    kind: Literal["piano_remi"] = "piano_remi"

    def build(self) -> PianoRemi:
        """The tokenizer."""
        return PianoRemi(self)


class PianoRemi:
    """Piano music as `Bar`, `Position` and note tokens on twelfths of a quarter note.

    A canonical sequence is `BOS Bar TimeSignature Position_0 Tempo`, notes, further positions and
    bars, `EOS`. A TimeSignature stands right after the Bar from which a bar length holds, a Tempo
    right after the Position from which it holds, each only where it changes. A note is Pitch,
    Velocity, Duration; pitches rise within a position, positions within a bar, and no pitch is
    struck while it sounds. A Position has a Tempo or a note. Bars go on until every note has ended.
    """

    def __init__(self, config: PianoRemiConfig | None = None) -> None:
        self.config = PianoRemiConfig() if config is None else config

    @property
    def vocabulary(self) -> Vocabulary:
        """The 512 tokens."""
        return PIANO_VOCABULARY

    def encode(self, score: Score) -> TokenSequence:
        """Tokens of a score, all tracks but drums as one piano; the sustain pedal is not read.

        Raises MidiError where a note stands beyond 65,536 quarters.
        """
        tables = [track.notes for track in score.tracks if not track.is_drum]
        table = tables[0] if len(tables) == 1 else np.concatenate([_NO_NOTES, *tables])
        keys = table[:, 2] - MIN_PITCH
        heard = keys.view(np.uint64) < NUM_PITCHES
        if np.count_nonzero(heard) < len(heard):
            table, keys = table[heard], keys[heard]
        refuse_late_notes(table[:, 0], score.ticks_per_beat)
        onsets = nearest_step(table[:, 0], score.ticks_per_beat)
        ends = nearest_step(table[:, 0] + table[:, 1], score.ticks_per_beat)
        notes = separate_notes(
            keys, onsets, np.maximum(ends - onsets, 1), table[:, 3] // VELOCITY_STEP
        )
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        score_end = nearest_step(score.end_ticks, score.ticks_per_beat)
        # A note without an end is clipped, and must not leave bars of nothing behind.
        if score_end <= _MAX_STEPS:
            end = max(end, score_end)
        signatures = quantize_time_signatures(score)
        lines = bar_lines(signatures, end)
        end = int(lines[-1])
        signatures = tuple(change for change in signatures if change.tick < end)
        tempos = quantize_tempos(score)
        num_tempos = int(np.searchsorted(tempos.steps, end))

        # One integer per note and tempo, and one sort: time, then the ids of up to three tokens.
        # Ids of tempos are smaller than those of pitches, so a tempo comes before the notes.
        events = np.concatenate(
            [
                pack_events(tempos.steps[:num_tempos], tempos.bpm[:num_tempos] + TEMPO - MIN_BPM),
                pack_events(
                    notes.onsets,
                    notes.pitches + PITCH,
                    notes.velocities + VELOCITY,
                    durations + DURATION,
                ),
            ]
        )
        events.sort()
        return TokenSequence(
            ids=write_ids(events, lines),
            dropped=len(heard) - len(keys),
            clipped=int(np.count_nonzero(notes.durations > MAX_DURATION)),
            merged=len(keys) - len(notes.onsets),
            tempos_clipped=tempos.clipped,
            signatures=signatures,
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
    ) -> Score:
        """Score of any ids, 12 ticks per quarter: never raises, in linear time.

        Ids up to the first EOS count. A note is Pitch, Velocity, Duration in a row; it is cut where
        its pitch is struck again. What is out of place is passed over. The score ends with its last
        bar, or with its last note. `signatures`: those of the `TokenSequence`, written instead of
        the bar lengths as long as they lead to the same bars.
        """
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        ends = np.flatnonzero(array == EOS)
        if len(ends):
            array = array[: ends[0]]
        bars = read_bars(array)

        is_pitch = (array >= PITCH) & (array < VELOCITY)
        is_velocity = (array >= VELOCITY) & (array < DURATION)
        is_duration = (array >= DURATION) & (array < len(PIANO_VOCABULARY))
        places = np.flatnonzero(is_pitch[:-2] & is_velocity[1:-1] & is_duration[2:])
        notes = separate_notes(
            array[places] - PITCH,
            bars.times_at(places),
            DURATIONS[array[places + 2] - DURATION],
            array[places + 1] - VELOCITY,
        )
        columns = (
            notes.onsets,
            notes.durations,
            notes.pitches + MIN_PITCH,
            notes.velocities * VELOCITY_STEP + VELOCITY_STEP // 2,
        )

        places = np.flatnonzero((array >= TEMPO) & (array < TEMPO + NUM_TEMPOS))
        steps = bars.times_at(places).tolist()
        bpm = (array[places] - (TEMPO - MIN_BPM)).astype(float).tolist()
        return Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=(Track(np.stack(columns, axis=1)),),
            tempos=tuple(map(Tempo, steps, bpm)),
            time_signatures=name_bars(bars.lines, signatures),
            end_ticks=int(bars.lines[-1]),
        )

    def grammar(
        self, *, tempo: TempoRule = "free", time_signature: bool = True, end: bool = True
    ) -> PianoGrammar:
        """Which token may come first; see `PianoGrammar` for the rules that can be added."""
        return PianoGrammar(Rules(tempo, time_signature, end))

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids from bar `first_bar` on, `num_bars` of them or all, in the dtype of `ids`.

        They start with `Bar TimeSignature Position_0 Tempo`, what is in force there. BOS is kept
        with the first bar, EOS with the last. Raises ValueError where there is no such bar.
        """
        return crop_bars(ids, first_bar, num_bars)

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """The same ids with other pitches; None where one would leave the keyboard."""
        places = np.flatnonzero((ids >= PITCH) & (ids < VELOCITY))
        pitches = ids[places].astype(np.int64) + semitones
        if len(pitches) and not PITCH <= pitches.min() <= pitches.max() < VELOCITY:
            return None
        moved = ids.copy()
        moved[places] = pitches
        return moved

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
        save_config(self.config, self.vocabulary, folder)


def crop_bars(
    ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
) -> NDArray[np.integer]:
    """See `PianoRemi.crop`; for all vocabularies that begin as the piano's does."""
    bars = np.flatnonzero(ids == BAR)
    if not 0 <= first_bar < len(bars) or (num_bars is not None and num_bars < 1):
        raise ValueError(
            f"asked for {num_bars} bars from bar {first_bar} on of a piece of {len(bars)} bars"
        )
    stop = len(ids)
    if num_bars is not None and first_bar + num_bars < len(bars):
        stop = int(bars[first_bar + num_bars])
    if first_bar == 0:
        return ids[:stop]
    start = int(bars[first_bar])
    rest = start + 1
    if rest < stop and TIME_SIGNATURE <= ids[rest] < POSITION:
        rest += 1
    head = [BAR, _last_between(ids[:rest], TIME_SIGNATURE, POSITION), POSITION]
    if rest < stop and ids[rest] == POSITION:
        rest += 1
    if not (rest < stop and TEMPO <= ids[rest] < PITCH):
        head.append(_last_between(ids[:start], TEMPO, PITCH))
    return np.concatenate([np.array(head, dtype=ids.dtype), ids[rest:stop]])


def save_config(config: Any, vocabulary: Vocabulary, folder: Path) -> None:  # noqa: ANN401
    """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
    content = {
        "format_version": FORMAT_VERSION,
        "config": asdict(config),
        "vocabulary_hash": vocabulary.hash,
    }
    beside = folder / f"{FILE_NAME}.part"
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(folder / FILE_NAME)


def _last_between(ids: NDArray[np.integer], first: int, stop: int) -> int:
    """Last of the ids from `first` to before `stop`."""
    return int(ids[np.flatnonzero((ids >= first) & (ids < stop))[-1]])
