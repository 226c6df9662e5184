"""Changes to examples of several instruments, so that a model has to listen to its prompt.

A corpus of few styles can be learned by heart: who plays then tells how. With instruments that
change places, drums of another piece or with other sounds, and parts that are shifted within the
bar, only the music before tells how it goes on; loops reward nothing but copying it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.vocabulary import BOS, EOS
from tokenization.score import Score, Tempo, Track
from tokenization.tokenizer import Tokenizer
from training.errors import check_range

FAMILY = 8
"""Programs of General MIDI that are kinds of one instrument."""
DRUM_SOUNDS = np.arange(35, 82)
"""Drums of General MIDI."""
LOOP_BARS = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How often what is changed in an example; all but the last are probabilities."""

    program: float = 0.0
    """That an instrument becomes another kind of it; of these, one in four any other but drums."""
    drums: float = 0.0
    """That the drums are those of another example in the same metre."""
    dropped: float = 0.0
    """That an instrument, or the drums, is left out; one always stays."""
    velocity: float = 0.0
    """That an instrument, or the drums, is louder or softer, by up to 24 of 127."""
    sounds: float = 0.0
    """That each drum of the example is another drum."""
    shifted: float = 0.0
    """That all notes of an instrument, or of the drums, stand some eighths later, those beyond the
    bar at its beginning. Not where the metre changes."""
    looped: float = 0.0
    """That the example is its first bar, or its first two or four, again and again. Not where the
    metre changes."""
    tempo: float = 1.0
    """Greatest factor by which all is faster or slower."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "tempo":
                check_range(one.name, getattr(self, one.name), 0, 1)
        check_range("tempo", self.tempo, 1, 4)

    def __call__(
        self,
        ids: NDArray[np.integer],
        tokenizer: Tokenizer,
        other: Callable[[], NDArray[np.integer]],
        draw: np.random.Generator,
    ) -> NDArray[np.integer]:
        """An example, changed; `other` gives another one, of whatever piece.

        Canonical ids in and out; BOS and EOS stay where they are, and nowhere else.
        """
        if self == NOTHING:
            return ids
        score = tokenizer.decode(ids)
        tracks = [*score.tracks]
        if draw.random() < self.drums:
            drums = _drums_of(tokenizer.decode(other()), score)
            if drums:
                tracks = [track for track in tracks if not track.is_drum] + drums
        tracks = self._rearranged(tracks, score, draw)
        tracks = [self._changed(track, draw) for track in tracks]
        kept = [track for track in tracks if draw.random() >= self.dropped]
        if not kept and tracks:
            kept = [tracks[int(draw.integers(len(tracks)))]]
        factor = self.tempo ** draw.uniform(-1, 1)
        tempos = tuple(Tempo(tick, bpm * factor) for tick, bpm in score.tempos)
        made = tokenizer.encode(replace(score, tracks=tuple(kept), tempos=tempos)).ids
        begins, ends = ids[:1].tolist() == [BOS], ids[-1:].tolist() == [EOS]
        return made[0 if begins else 1 : None if ends else -1]

    def _rearranged(
        self, tracks: list[Track], score: Score, draw: np.random.Generator
    ) -> list[Track]:
        """Tracks of the score with other drums, shifted or looped, as chance has it.

        Nothing is drawn for what never happens: runs of earlier versions go on as they were.
        """
        if self.sounds and draw.random() < self.sounds:
            tracks = [_with_other_sounds(t, draw) if t.is_drum else t for t in tracks]
        metres = score.time_signatures
        if len(metres) != 1 or metres[0].tick != 0:
            return tracks
        bar = round(metres[0].bar_quarters() * score.ticks_per_beat)
        if self.shifted:
            eighth = score.ticks_per_beat // 2
            shifts = draw.integers(1, max(2, bar // eighth), len(tracks)) * eighth
            shifts *= draw.random(len(tracks)) < self.shifted
            tracks = [_shifted(*pair, bar) for pair in zip(tracks, shifts.tolist(), strict=True)]
        if self.looped and draw.random() < self.looped:
            num_bars = score.end_ticks // bar
            lengths = [length for length in LOOP_BARS if 2 * length <= num_bars]
            if lengths:
                length = lengths[int(draw.integers(len(lengths)))] * bar
                times = -(-3 * score.end_ticks // (2 * length))  # loops may have fewer tokens
                tracks = [looped(track, length, times) for track in tracks]
        return tracks

    def _changed(self, track: Track, draw: np.random.Generator) -> Track:
        """The track with another program and another loudness, as chance has it."""
        other_program, other_loudness = draw.random(2) < (self.program, self.velocity)
        first = track.program - track.program % FAMILY
        program = int(draw.integers(first, first + FAMILY))
        if draw.random() < 0.25:
            program = int(draw.integers(112))  # up to the percussive ones
        if other_program and not track.is_drum:
            track = replace(track, program=program)
        louder = int(draw.integers(-24, 25))
        if other_loudness:
            notes = track.notes.copy()
            notes[:, 3] = np.clip(notes[:, 3] + louder, 1, 127)
            track = replace(track, notes=notes)
        return track


NOTHING = Augmentation()


def _drums_of(other: Score, score: Score) -> list[Track]:
    """Drums of another example, up to the end of this one; none where the metres differ."""
    if [s[1:] for s in other.time_signatures] != [s[1:] for s in score.time_signatures]:
        return []
    drums = [track for track in other.tracks if track.is_drum]
    return [replace(t, notes=t.notes[t.notes[:, 0] < score.end_ticks]) for t in drums]


def _with_other_sounds(drums: Track, draw: np.random.Generator) -> Track:
    """Each drum another one, no two the same; more than General MIDI has stay."""
    sounds, which = np.unique(drums.notes[:, 2], return_inverse=True)
    if len(sounds) > len(DRUM_SOUNDS):
        return drums
    notes = drums.notes.copy()
    notes[:, 2] = draw.choice(DRUM_SOUNDS, len(sounds), replace=False)[which]
    return replace(drums, notes=notes)


def _shifted(track: Track, shift: int, bar: int) -> Track:
    """All notes `shift` ticks later, within their bars of `bar` ticks."""
    notes = track.notes.copy()
    notes[:, 0] += (notes[:, 0] + shift) % bar - notes[:, 0] % bar
    return replace(track, notes=notes)


def looped(track: Track, length: int, times: int) -> Track:
    """The first `length` ticks, so many times."""
    first = track.notes[track.notes[:, 0] < length]
    notes = np.tile(first, (times, 1))
    notes[:, 0] += np.repeat(np.arange(times) * length, len(first))
    return replace(track, notes=notes)
