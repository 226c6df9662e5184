"""Note-on, note-off and shift tokens of bass, drums and harmony: the SPE groove experiment.

Source: Liutkus et al. (2021). The grid has twelve ticks per quarter note. A shift gives the number
of beats to move forward and the tick within the new beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.compat.note_ends import match_ends
from tokenization.compat.spe import SpeGrammar, known_ids
from tokenization.errors import MidiError
from tokenization.grid import STEPS_PER_BEAT, nearest_step, quantize_time_signatures
from tokenization.remi.quantize import refuse_late_notes
from tokenization.remi.vocabulary import MAX_DURATION
from tokenization.score import MAX_BEATS, NO_NOTES, Score, TimeSignature, Track, all_notes
from tokenization.tokenizer import BaseTokenizer, Rules, TokenSequence, Vocabulary, end_of_crop

MAX_SOUNDING = 512
"""Maximum number of simultaneous notes. `encode` rejects more; the grammar forbids more."""
BASS, DRUMS, HARMONY = range(3)
"""Tracks, each with 128 note-on and 128 note-off tokens."""
NUM_TRACKS = 3
NOTE_ON, NOTE_OFF, SHIFT = 0, NUM_TRACKS * 128, 2 * NUM_TRACKS * 128
MAX_SHIFT = 2 * STEPS_PER_BEAT
"""Largest shift. Shift 12 b + t moves to tick t of the beat that is b beats later."""
EOS, BOS, PAD = range(SHIFT + MAX_SHIFT, SHIFT + MAX_SHIFT + 3)
TWO_BEATS = EOS - 1

SPE_GROOVE_VOCABULARY = Vocabulary(
    (
        *(f"NoteOn_{track}_{pitch}" for track in range(NUM_TRACKS) for pitch in range(128)),
        *(f"NoteOff_{track}_{pitch}" for track in range(NUM_TRACKS) for pitch in range(128)),
        *(f"TimeShift_{shift // 12}_{shift % 12}" for shift in range(1, MAX_SHIFT + 1)),
        *("EOS", "BOS", "PAD"),
    )
)
"""795 tokens: the 794 of the paper, and PAD, so that EOS can be learned."""

_TICKS_PER_BAR = 4 * STEPS_PER_BEAT
_OPEN = 1 << 60
"""End of a note without a note-off."""
_VELOCITY = 64
_NO_TRACK = Track(NO_NOTES)
_TRACKS = (replace(_NO_TRACK, program=33), replace(_NO_TRACK, is_drum=True), _NO_TRACK)


@dataclass(frozen=True, eq=False, kw_only=True)
class GrooveTokens(TokenSequence):
    """A piece as tokens, which contain neither velocities nor tempos nor time signatures."""

    velocities: tuple[int, ...]
    """Mean velocity of each track, rounded down; pass them to `decode`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """See `TokenSequence`."""
        return _times(self.ids.astype(np.int64))[:-1] / STEPS_PER_BEAT


@dataclass(frozen=True, kw_only=True)
class SpeGrooveConfig:
    """Configuration of a `SpeGroove`."""

    kind: Literal["spe_groove"] = "spe_groove"
    mode: Literal["compact", "compatible"] = "compact"
    """`compatible`: as in the original code, a shift precedes every event off the beat, even if it
    is simultaneous with the previous event. `compact`: shifts only where time advances."""

    def build(self) -> SpeGroove:
        """The tokenizer."""
        return SpeGroove(self)


class SpeGroove(BaseTokenizer["GrooveGrammar"]):
    """Music of three tracks as note-ons, note-offs, and shifts between them.

    A canonical sequence is BOS, events, EOS. At one time, note-offs come first, in the order in
    which their notes began, then note-ons by pitch. At one pitch, shorter notes come first; of
    equally long notes, that of the first track comes first. All notes end, and notes of one pitch
    end in the order in which they began. A shift of time uses as many TimeShift_2_0 as fit, then
    one other shift if needed.
    """

    vocabulary = SPE_GROOVE_VOCABULARY

    def __init__(self, config: SpeGrooveConfig | None = None) -> None:
        config = SpeGrooveConfig() if config is None else config
        super().__init__(config)
        self._is_compact = config.mode == "compact"

    def encode(self, score: Score, roles: Sequence[int] | None = None) -> GrooveTokens:
        """Encodes a score.

        `roles`: BASS, DRUMS, HARMONY or -1 (left out) for each track; default: `track_roles`. A
        note that ends after 65,536 quarters is cut to 64 (`clipped`).

        Raises MidiError if a note is later than 65,536 quarters, or more than 512 sound at once.
        """
        roles = track_roles(score.tracks) if roles is None else roles
        parts = [(role, t) for role, t in zip(roles, score.tracks, strict=True) if role >= 0]
        table = all_notes(track for _, track in parts)
        tracks = np.repeat(
            np.array([role for role, _ in parts], np.int64), [len(track) for _, track in parts]
        )
        refuse_late_notes(table[:, 0], score.ticks_per_beat)
        onsets = nearest_step(table[:, 0], score.ticks_per_beat)
        ends = nearest_step(table[:, 0] + table[:, 1], score.ticks_per_beat)
        is_endless = ends > MAX_BEATS * STEPS_PER_BEAT
        ends = np.where(is_endless, onsets + MAX_DURATION, np.maximum(ends, onsets + 1))
        begun = np.arange(1, len(onsets) + 1)
        most = int((begun - np.sort(ends).searchsorted(np.sort(onsets), "right")).max(initial=0))
        if most > MAX_SOUNDING:
            raise MidiError(
                f"{most} notes sound at once, expected at most {MAX_SOUNDING}; remove some notes"
            )
        ties = np.zeros_like(onsets) if self._is_compact else table[:, 3]
        velocities = [table[tracks == role, 3] for role in range(NUM_TRACKS)]
        kept = dict(sorted(parts, key=lambda part: len(part[1])))  # the largest track of each role
        return GrooveTokens(
            ids=self._write(_in_turn(onsets, ends, tracks * 128 + table[:, 2], ties), [BOS], [EOS]),
            dropped=score.num_notes - len(table),
            clipped=int(np.count_nonzero(is_endless)),
            signatures=quantize_time_signatures(score),
            tracks=tuple(
                kept.get(role, _TRACKS[role]).without_events() for role in range(NUM_TRACKS)
            ),
            velocities=tuple(int(v.mean()) if len(v) else _VELOCITY for v in velocities),
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
        velocities: Sequence[int] = (),
    ) -> Score:
        """Decodes any ids of either mode to three tracks with 12 ticks per quarter; never raises.

        Takes linear time, except for one sort. Only ids up to the first EOS count. A note-off ends
        the first sounding note of its pitch; a note lasts at least one tick. Notes without a
        note-off are dropped, and misplaced tokens are ignored. `signatures`, `tracks` and
        `velocities` come from the `GrooveTokens`, since tokens do not contain them.
        """
        notes = _read(ids)
        is_closed = notes.ends < _OPEN
        played = (*velocities, *[_VELOCITY] * NUM_TRACKS)
        known = (*tracks, *_TRACKS[len(tracks) :])[:NUM_TRACKS]
        parts: list[Track] = []
        for role, track in enumerate(known):
            onsets, ends, keys, _ = (
                column[is_closed & (notes.keys >> 7 == role)] for column in notes
            )
            columns = (onsets, ends - onsets, keys & 127, np.full_like(keys, played[role]))
            parts.append(replace(track, notes=np.stack(columns, axis=1)))
        return Score(STEPS_PER_BEAT, tuple(parts), time_signatures=tuple(signatures))

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """See `track_roles`."""
        return track_roles(tracks)

    def _grammar(self, rules: Rules) -> GrooveGrammar:
        return GrooveGrammar(rules, is_compact=self._is_compact)

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of `num_bars` bars of 4/4 (default: all) from bar `first_bar` on.

        Notes that begin before them are left out; those that end after them have no note-off. BOS
        is kept with the first bar, EOS with the last. Raises ValueError if there is no such bar.
        """
        notes = _read(ids)
        has_eos = len(ids) > 0 and ids[-1] == EOS
        bars = max(1, -(-int(_times(known_ids(ids, EOS, PAD))[-1]) // _TICKS_PER_BAR))
        stop_bar = end_of_crop(first_bar, num_bars, bars)
        start = first_bar * _TICKS_PER_BAR
        stop = stop_bar * _TICKS_PER_BAR if stop_bar < bars else _OPEN
        onsets, ends, keys, ties = (
            column[(notes.onsets >= start) & (notes.onsets < stop)] for column in notes
        )
        ends = np.where(ends < stop, ends - start, _OPEN)
        bos = [BOS] if first_bar == 0 and BOS in ids[:1] else []
        eos = [EOS] if has_eos and stop == _OPEN else []
        return self._write(_Notes(onsets - start, ends, keys, ties), bos, eos).astype(ids.dtype)

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Transposed canonical ids, drums unchanged; None if a pitch would leave 0-127."""
        notes = _read(ids)
        is_drum = notes.keys >> 7 == DRUMS
        pitches = (notes.keys & 127) + np.where(is_drum, 0, semitones)
        if len(pitches) and not 0 <= pitches.min() <= pitches.max() < 128:
            return None
        ties = np.where(notes.ends < _OPEN, 0, notes.ties) if self._is_compact else notes.ties
        moved = notes._replace(keys=(notes.keys & ~127) + pitches, ties=ties)
        bos, eos = [BOS] * (BOS in ids[:1]), [EOS] * (EOS in ids[-1:])
        return self._write(moved, bos, eos).astype(ids.dtype)

    def _write(self, notes: _Notes, bos: list[int], eos: list[int]) -> NDArray[np.int32]:
        """Canonical ids of notes."""
        onsets, ends, keys, ties = notes
        order = np.lexsort((keys, ties, ends, keys & 127, onsets))
        times = np.stack([onsets, ends], axis=1)[order].ravel()
        tokens = np.stack([keys, keys + NOTE_OFF], axis=1)[order].ravel()
        # A stable sort: at one time, a note-off comes before note-ons since its note began earlier.
        order = np.argsort(times, kind="stable")[: int(np.count_nonzero(times < _OPEN))]
        times, tokens = times[order], tokens[order]
        before = np.concatenate([np.zeros(1, np.int64), times])[: len(times)]
        beats = times // STEPS_PER_BEAT - before // STEPS_PER_BEAT
        shifts = beats % 2 * STEPS_PER_BEAT + times % STEPS_PER_BEAT
        if self._is_compact:
            shifts[times == before] = 0
        places = np.cumsum(beats // 2 + (shifts > 0) + 1) - 1
        ids = np.full(int(places[-1]) + 1 if len(places) else 0, TWO_BEATS, np.int32)
        ids[places] = tokens
        ids[places[shifts > 0] - 1] = shifts[shifts > 0] + SHIFT - 1
        return np.concatenate([np.array(part, np.int32) for part in (bos, ids, eos)])


def track_roles(tracks: Sequence[Track]) -> list[int]:
    """BASS, DRUMS or HARMONY for each track, -1 for a track that is left out.

    All drum tracks are included. Of the basses (programs 32-39), and of the other tracks, only the
    track with the most notes is included.
    """
    roles = [
        DRUMS if track.is_drum else BASS if 32 <= track.program < 40 else HARMONY
        for track in tracks
    ]
    for role in (BASS, HARMONY):
        places = [place for place, given in enumerate(roles) if given == role]
        for place in sorted(places, key=lambda place: -len(tracks[place]))[1:]:
            roles[place] = -1
    return roles


class _Notes(NamedTuple):
    """Notes in columns (n,) int64; times in ticks."""

    onsets: NDArray[np.int64]
    """Start times."""
    ends: NDArray[np.int64]
    keys: NDArray[np.int64]
    """Track times 128, plus pitch: the ids of the note-ons."""
    ties: NDArray[np.int64]
    """Order of notes with equal onset, pitch and length."""


def _in_turn(
    onsets: NDArray[np.int64],
    ends: NDArray[np.int64],
    keys: NDArray[np.int64],
    ties: NDArray[np.int64],
) -> _Notes:
    """Reassigns ends so that the notes of each key end in the order in which they begin."""
    begins = np.lexsort((ties, ends, onsets, keys))
    return _Notes(onsets[begins], ends[np.lexsort((ends, keys))], keys[begins], ties[begins])


def _times(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time in ticks before each token, and after the last one (l + 1,)."""
    is_shift = (ids >= SHIFT) & (ids < EOS)
    shifts = ids[is_shift] - (SHIFT - 1)
    beats = np.cumsum(shifts // STEPS_PER_BEAT)
    times = np.append(0, STEPS_PER_BEAT * beats + shifts % STEPS_PER_BEAT)
    return times[np.append(0, np.cumsum(is_shift))]


def _read(ids: Sequence[int] | NDArray[np.integer]) -> _Notes:
    """Notes of any ids, sorted by key and onset; ties are indices of tokens."""
    array = known_ids(ids, EOS, PAD)
    places = np.flatnonzero(array < SHIFT)
    tokens, times = array[places], _times(array)[places]
    order = np.argsort(tokens % NOTE_OFF, kind="stable")
    places, tokens, times = places[order], tokens[order], times[order]
    keys, is_off = tokens % NOTE_OFF, tokens >= NOTE_OFF

    is_closed, closes = match_ends(keys, ~is_off)
    onsets, on_keys = times[~is_off], keys[~is_off]
    ends = np.full_like(onsets, _OPEN)
    ends[is_closed] = np.maximum(times[closes], onsets[is_closed] + 1)
    return _Notes(onsets, ends, on_keys, places[~is_off])


@dataclass(frozen=True)
class GrooveGrammar(SpeGrammar):
    """See `SpeGrammar`. Times are ticks from the start.

    The initial state is before BOS, or before the first event of a crop. In mode `compatible`,
    notes that differ only in their track may be in any order.
    """

    vocabulary = SPE_GROOVE_VOCABULARY

    is_compact: bool = True
    time: int = 0
    sounding: tuple[tuple[int, int], ...] = ()
    """(onset, key) of the sounding notes, in the order of their tokens."""
    num_before: int = 0
    """Index in `sounding` of the first note that may still end at this time."""
    ended: tuple[int, int] = (-1, -1)
    """Last note that ended at this time."""
    pitch: int = -1
    """Last pitch struck at this time; -1 if there is none."""

    @property
    def beat(self) -> float:
        """Time in quarter notes reached by the tokens so far."""
        return self.time / STEPS_PER_BEAT

    @property
    def bar(self) -> int:
        """Number of bars begun so far, all of 4/4."""
        return self.time // _TICKS_PER_BAR + 1

    @property
    def bar_start(self) -> int:
        """Start of the bar in twelfths of a quarter."""
        return self.time // _TICKS_PER_BAR * _TICKS_PER_BAR

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may follow; never empty."""
        mask = np.zeros(len(SPE_GROOVE_VOCABULARY), bool)
        last, tick = self.last, self.time % STEPS_PER_BEAT
        if last in (EOS, PAD):
            mask[PAD] = True
            return mask
        is_shift = SHIFT <= last < EOS
        if not is_shift or last == TWO_BEATS:
            # The first shift moves to tick 1, since no shift leads to tick 0 of the same beat.
            mask[SHIFT + (tick if self.is_compact else max(tick - 1, 0)) : EOS] = True
        if is_shift or self.is_compact or tick == 0:
            self._allow_events(mask)
        mask[EOS] = self.rules.end and not is_shift and not self.sounding
        mask[BOS] = last < 0
        return mask

    def _allow_events(self, mask: NDArray[np.bool_]) -> None:
        """Allows note-ons from the last pitch upwards, and note-offs before the first note-on."""
        if len(self.sounding) < MAX_SOUNDING:
            mask[NOTE_ON:NOTE_OFF].reshape(NUM_TRACKS, 128)[:, max(self.pitch, 0) :] = True
        if self.pitch >= 0:
            return
        keys: set[int] = set()
        places: set[tuple[int, int]] = set()
        for index, (onset, key) in enumerate(self.sounding):
            place = (onset, key & 127)
            # Notes of one pitch end in the order in which they began. If two tracks begin one at
            # the same time, the shorter note comes first; a tie goes to the first track.
            is_next = key not in keys and place not in places
            keys.add(key)
            places.add(place)
            late = self.is_compact and (self.ended[0], self.ended[1] & 127) == place
            if late and key < self.ended[1]:
                continue
            if is_next and onset < self.time and index >= self.num_before:
                mask[NOTE_OFF + key] = True

    @property
    def _place(self) -> str:
        return f"tick {self.time}"

    def _after(self, token: int) -> GrooveGrammar:
        state = replace(self, last=token)
        if token >= EOS:
            return state
        if token >= SHIFT:
            beats, tick = divmod(token - SHIFT + 1, STEPS_PER_BEAT)
            time = (self.time // STEPS_PER_BEAT + beats) * STEPS_PER_BEAT + tick
            if time == self.time:
                return state
            return replace(state, time=time, num_before=0, ended=(-1, -1), pitch=-1)
        if token < NOTE_OFF:
            sounding = (*self.sounding, (self.time, token))
            return replace(state, sounding=sounding, pitch=token & 127)
        index = [key for _, key in self.sounding].index(token - NOTE_OFF)
        return replace(
            state,
            sounding=self.sounding[:index] + self.sounding[index + 1 :],
            num_before=index,
            ended=self.sounding[index],
        )
