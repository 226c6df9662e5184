"""The beats that a prompt is counted in: its file's own, or others that are laid over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.analysis.beats import Beats, estimate_beats, pickup_beats, warp
from tokenization.remi.bars import written_lines
from tokenization.score import Score, Tempo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.compose.options import BeatSource
    from tokenization.remi.bars import BarMap

FINE_TICKS = 480
"""Ticks per quarter of a file at least, where beats are laid over it: about a millisecond."""
_CLOCK_SECONDS = 0.5
_CLOCK_BAR = 4
_STEADY_BEATS = 8
"""New music goes on in the tempo of so many last beats: that of one beat is an accident."""


class Timing(NamedTuple):
    """A piece in its file's time, and as it is counted."""

    file: Score
    counted: Score
    """The same music, in bars and beats that mean something."""
    start: float | None = None
    """Seconds from the start of the file to that of `counted`; None where both are one."""
    bpm: float | None = None
    """Tempo in which other beats than the file's go on."""

    @classmethod
    def of(cls, file: Score, beats: Beats | None, until: float = np.inf) -> Timing:
        """A file counted in its own beats (None), or in those given.

        Of these only the ones up to `until` seconds are known; later ones follow in a steady tempo.
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

        Of beats that are laid over the file only the one in which they go on: no two are as long.
        """
        return self.counted.tempos if self.bpm is None else (Tempo(0, self.bpm),)

    def to_file(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks of `counted` as the closest ones of `file`."""
        if self.start is None:
            return ticks
        return self.file.ticks_at(self.counted.seconds_at(ticks) + self.start)

    def bar_lines(self, like: Score, end_ticks: int = 0) -> NDArray[np.int64] | None:
        """Bar lines in ticks of `like`, which has the file's time; None for the file's own.

        They reach its end, or `end_ticks`, whichever is later.
        """
        if self.start is None:
            return None
        seconds = float(like.seconds_at(max(like.end_ticks, end_ticks))) - self.start
        lines = written_lines(self.counted, int(self.counted.ticks_at(seconds)), 1)
        return like.ticks_at(np.maximum(self.counted.seconds_at(lines) + self.start, 0))


def notes_on_file(table: NDArray[np.int64], bars: BarMap, timing: Timing) -> NDArray[np.int64]:
    """Notes in steps from the first of some counted bars (n, 4) as notes in ticks of the file."""
    notes = bars.notes(table)
    begins, ends = timing.to_file(notes[:, 0]), timing.to_file(notes[:, 0] + notes[:, 1])
    return np.column_stack([begins, ends - begins, notes[:, 2:]])


def find_beats(score: Score, source: BeatSource) -> Beats | None:
    """The beats to count a file in; None for its own.

    Raises MidiError where there is nothing to estimate them from.
    """
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
