"""Random changes to training examples with several instruments.

If a corpus has few styles, a model can memorise them: the instruments alone then predict the music.
After these changes, only the preceding music predicts what follows: instruments are exchanged,
drums come from another piece or get other sounds, and parts are shifted within the bar. Loops
reward copying the preceding music.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from tokenization.score import Score, Tempo, Track
from training.errors import check_range

FAMILY = 8
"""Number of programs in a General MIDI family, such as the pianos."""
DRUM_SOUNDS = np.arange(35, 82)
"""Drum pitches of General MIDI."""
LOOP_BARS = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Probability of each change to an example, and a factor for `tempo`."""

    program: float = 0.0
    """An instrument gets another program of its family or, one time in four, any pitched one."""
    drums: float = 0.0
    """The drums are replaced by those of another example in the same metre."""
    dropped: float = 0.0
    """An instrument or the drums are left out; at least one track stays."""
    velocity: float = 0.0
    """The velocities of an instrument or of the drums are shifted by up to 24."""
    sounds: float = 0.0
    """Every drum sound of the example is replaced by another one."""
    shifted: float = 0.0
    """All notes of an instrument or of the drums move later by some eighths, wrapping around within
    their bar. Examples with a change of metre do not change."""
    looped: float = 0.0
    """The example becomes a loop of its first one, two or four bars. Examples with a change of
    metre do not change."""
    tempo: float = 1.0
    """Maximum factor by which the tempo rises or falls."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "tempo":
                check_range(one.name, getattr(self, one.name), 0, 1)
        check_range("tempo", self.tempo, 1, 4)

    def __call__(
        self, score: Score, other: Callable[[], Score], draw: np.random.Generator
    ) -> Score:
        """Return the changed example; `other` returns a random example of another piece."""
        if self == NOTHING:
            return score
        tracks = [*score.tracks]
        if draw.random() < self.drums:
            drums = _drums_of(other(), score)
            if drums:
                tracks = [track for track in tracks if not track.is_drum] + drums
        tracks = self._rearranged(tracks, score, draw)
        tracks = [self._changed(track, draw) for track in tracks]
        kept = [track for track in tracks if draw.random() >= self.dropped]
        if not kept and tracks:
            kept = [tracks[int(draw.integers(len(tracks)))]]
        factor = self.tempo ** draw.uniform(-1, 1)
        tempos = tuple(Tempo(tick, bpm * factor) for tick, bpm in score.tempos)
        return replace(score, tracks=tuple(kept), tempos=tempos)

    def _rearranged(
        self, tracks: list[Track], score: Score, draw: np.random.Generator
    ) -> list[Track]:
        """Return the tracks with random changes: other drum sounds, shifts, loops.

        A change with probability 0 draws no random numbers.
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
                times = -(-3 * score.end_ticks // (2 * length))  # a loop may encode to fewer tokens
                tracks = [looped(track, length, times) for track in tracks]
        return tracks

    def _changed(self, track: Track, draw: np.random.Generator) -> Track:
        """Return the track with a random change of program and velocity."""
        other_program, other_loudness = draw.random(2) < (self.program, self.velocity)
        first = track.program - track.program % FAMILY
        program = int(draw.integers(first, first + FAMILY))
        if draw.random() < 0.25:
            program = int(draw.integers(112))  # 112 and above are percussive
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
    """Return the drums of another example, up to the end of this one; none if the metres differ."""
    if [s[1:] for s in other.time_signatures] != [s[1:] for s in score.time_signatures]:
        return []
    drums = [track for track in other.tracks if track.is_drum]
    return [replace(t, notes=t.notes[t.notes[:, 0] < score.end_ticks]) for t in drums]


def _with_other_sounds(drums: Track, draw: np.random.Generator) -> Track:
    """Map drum sounds to distinct other ones; no change if there are more than in General MIDI."""
    sounds, which = np.unique(drums.notes[:, 2], return_inverse=True)
    if len(sounds) > len(DRUM_SOUNDS):
        return drums
    notes = drums.notes.copy()
    notes[:, 2] = draw.choice(DRUM_SOUNDS, len(sounds), replace=False)[which]
    return replace(drums, notes=notes)


def _shifted(track: Track, shift: int, bar: int) -> Track:
    """Move notes later by `shift` ticks, wrapping around within bars of `bar` ticks."""
    notes = track.notes.copy()
    notes[:, 0] += (notes[:, 0] + shift) % bar - notes[:, 0] % bar
    return replace(track, notes=notes)


def looped(track: Track, length: int, times: int) -> Track:
    """Repeat the first `length` ticks `times` times."""
    first = track.notes[track.notes[:, 0] < length]
    notes = np.tile(first, (times, 1))
    notes[:, 0] += np.repeat(np.arange(times) * length, len(first))
    return replace(track, notes=notes)
