"""Counts a prompt in its file's own beats, or in others that are laid over it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.options import BeatSource
from tokenization.analysis.beats import Beats, estimate_beats, pickup_beats, warp
from tokenization.remi.bars import BarMap, notated_lines
from tokenization.score import Score, Tempo

FINE_TICKS = 480
"""Least ticks per quarter note for counting in other beats: a tick is about a millisecond."""
_CLOCK_SECONDS = 0.5
_CLOCK_BAR = 4
_STEADY_BEATS = 8
"""Number of last beats that set the tempo of new music: that of a single beat is irregular."""


class Timing(NamedTuple):
    """A file, and the same music as it is counted in bars and beats."""

    file: Score
    counted: Score
    """`file` itself, or `file` warped to beats that are laid over it."""
    start: float | None = None
    """Seconds from the start of `file` to that of `counted`; None if both are the same."""
    bpm: float | None = None
    """Tempo of the new music; None if it is that of the file."""

    @classmethod
    def of(cls, file: Score, beats: Beats | None, until: float = np.inf) -> Timing:
        """A file counted in its own beats (None), or in the beats given.

        Only beats up to `until` seconds are used; after them the tempo is steady.
        """
        if beats is None:
            return cls(file, file)
        seconds = beats.seconds[: max(np.searchsorted(beats.seconds, until + 1e-6), 2)]
        period = float(np.median(np.diff(seconds[-_STEADY_BEATS - 1 :])))
        seconds = np.append(seconds, seconds[-1] + period * np.arange(1, 3))
        downbeats = beats.downbeats[beats.downbeats < len(seconds) - 2]
        counted = warp(file, seconds, downbeats)
        pickup = pickup_beats(file, seconds) * counted.ticks_per_beat
        start = float(seconds[0] - counted.seconds_at(pickup))
        return cls(file, counted, start, 60 / period)

    @property
    def heard_tempos(self) -> tuple[Tempo, ...]:
        """Tempos as the model hears them, in ticks of `counted`.

        Beats that are laid over the file have a single tempo, since no two of them have the same
        length.
        """
        return self.counted.tempos if self.bpm is None else (Tempo(0, self.bpm),)

    def to_file(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks of `counted` as the closest ticks of `file`."""
        if self.start is None:
            return ticks
        return self.file.ticks_at(self.counted.seconds_at(ticks) + self.start)

    def bar_lines(self, like: Score, end_ticks: int = 0) -> NDArray[np.int64] | None:
        """Bar lines up to the end of `like` or `end_ticks`; None for those of the file itself.

        `like` is a score that sounds like `file`; all times are in its ticks.
        """
        if self.start is None:
            return None
        seconds = float(like.seconds_at(max(like.end_ticks, end_ticks))) - self.start
        lines = notated_lines(self.counted, int(self.counted.ticks_at(seconds)), 1)
        return like.ticks_at(np.maximum(self.counted.seconds_at(lines) + self.start, 0))


def notes_on_file(table: NDArray[np.int64], bars: BarMap, timing: Timing) -> NDArray[np.int64]:
    """Notes (n, 4) in grid steps from the first of some counted bars, in ticks of the file."""
    notes = bars.notes(table)
    begins, ends = timing.to_file(notes[:, 0]), timing.to_file(notes[:, 0] + notes[:, 1])
    return np.column_stack([begins, ends - begins, notes[:, 2:]])


def find_beats(score: Score, source: BeatSource) -> Beats | None:
    """Beats to count a file in; None for its own. Raises MidiError if they cannot be estimated."""
    if source == "file":
        return None
    if source == "estimate":
        return estimate_beats(score)
    notes = np.concatenate([track.notes[:, 0] for track in score.tracks])
    first, last = score.seconds_at([int(notes.min()), int(notes.max())]).tolist()
    count = max(int((last - first) / _CLOCK_SECONDS) + 1, 2)
    return Beats(
        first + _CLOCK_SECONDS * np.arange(count), np.arange(0, count, _CLOCK_BAR, dtype=np.int64)
    )
