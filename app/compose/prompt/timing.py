"""Counts a prompt in beats: those of its file, estimated beats, or a regular grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.options import BeatSource
from tokenization.analysis.bar_evidence import file_probability
from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.analysis.beats import Beats, pickup_beats, warp
from tokenization.errors import MidiError
from tokenization.grid import notated_lines
from tokenization.remi.bars import BarMap
from tokenization.remi.tempo_range import in_tempo_range
from tokenization.score import Score, Tempo

FINE_TICKS = 480
"""Minimum ticks per quarter note if beats are not the file's: a tick lasts about a millisecond."""
_CLOCK_SECONDS = 0.5
"""Length of a beat of the source `clock`."""
_CLOCK_BAR = 4
"""Beats of a bar of the source `clock`."""
_STEADY_BEATS = 8
"""The tempo of new music is the median of this many last beats, since single beats vary."""


class BeatChoice(NamedTuple):
    """Where the beats of a file come from."""

    source: BeatSource
    """Any but `auto`."""
    beats: Beats | None
    """None means those of the file."""
    file_bars: float
    """Probability that the bars of the file are those of its music; see `file_probability`."""
    problem: str = ""
    """Why other beats could not be estimated, though these bars are not those of the music."""


class Timing(NamedTuple):
    """A file, and the same music counted in bars and beats."""

    file: Score
    counted: Score
    """`file` itself, or `file` with tempos in the model's range, or `file` warped to other beats.
    """
    start: float | None = None
    """Seconds from the start of `file` to the start of `counted`; None if both are the same."""
    bpm: float | None = None
    """Tempo of the new music; None for the tempo of the file."""
    confidence: float = 1.0
    """See `Beats.confidence`."""

    @classmethod
    def of(
        cls,
        file: Score,
        beats: Beats | None,
        until: float = np.inf,
        ticks_per_beat: int | None = None,
    ) -> Timing:
        """Count a file in `beats`, or in its own beats if None.

        Only beats up to `until` seconds are used; the tempo is constant after them. Its own beats
        are halved or doubled where the tempo is outside the range of the vocabulary
        (`in_tempo_range`), with `ticks_per_beat` as resolution.
        """
        if beats is None:
            counted = in_tempo_range(file, ticks_per_beat)
            return cls(file, counted, None if counted is file else 0.0)
        seconds = beats.seconds[: max(np.searchsorted(beats.seconds, until + 1e-6), 2)]
        period = float(np.median(np.diff(seconds[-_STEADY_BEATS - 1 :])))
        seconds = np.append(seconds, seconds[-1] + period * np.arange(1, 3))
        downbeats = beats.downbeats[beats.downbeats < len(seconds) - 2]
        counted = warp(file, seconds, downbeats)
        pickup = pickup_beats(file, seconds) * counted.ticks_per_beat
        start = float(seconds[0] - counted.seconds_at(pickup))
        return cls(file, counted, start, 60 / period, beats.confidence)

    @property
    def heard_tempos(self) -> tuple[Tempo, ...]:
        """Tempos that the model reads, in ticks of `counted`.

        If the beats are not the file's own, there is only one tempo, because the lengths of
        estimated beats all differ slightly.
        """
        return self.counted.tempos if self.bpm is None else (Tempo(0, self.bpm),)

    def to_file(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert ticks of `counted` to the nearest ticks of `file`."""
        if self.start is None:
            return ticks
        return self.file.ticks_at(self.counted.seconds_at(ticks) + self.start)

    def bar_lines(self, like: Score, end_ticks: int = 0) -> NDArray[np.int64] | None:
        """Return the bar lines up to the end of `like` or `end_ticks`, whichever is later.

        `like` is a score with the timing of `file`; all times are in its ticks. None if the bar
        lines are those of the file itself.
        """
        if self.start is None:
            return None
        seconds = float(like.seconds_at(max(like.end_ticks, end_ticks))) - self.start
        lines = notated_lines(self.counted, int(self.counted.ticks_at(seconds)), 1)
        return like.ticks_at(np.maximum(self.counted.seconds_at(lines) + self.start, 0))


def notes_on_file(table: NDArray[np.int64], bars: BarMap, timing: Timing) -> NDArray[np.int64]:
    """Convert notes (n, 4) from grid steps after the start of `bars` to ticks of the file."""
    notes = bars.notes(table)
    begins, ends = timing.to_file(notes[:, 0]), timing.to_file(notes[:, 0] + notes[:, 1])
    return np.column_stack([begins, ends - begins, notes[:, 2:]])


def find_beats(score: Score, source: BeatSource) -> BeatChoice:
    """Find the beats of a file.

    Raises MidiError if `source` is `estimate` and the beats cannot be estimated.
    """
    file_bars, problem = file_probability(score), ""
    if source == "auto" and file_bars < 0.5:
        try:
            return BeatChoice("estimate", estimate_beats(score), file_bars)
        except MidiError as error:
            problem = str(error)
    if source in ("auto", "file"):
        return BeatChoice("file", None, file_bars, problem)
    if source == "estimate":
        return BeatChoice(source, estimate_beats(score), file_bars)
    return BeatChoice(source, _clock_beats(score), file_bars)


def _clock_beats(score: Score) -> Beats:
    """Return beats of a regular grid, from the first note to the last."""
    onsets = np.concatenate([track.notes[:, 0] for track in score.tracks])
    first, last = score.seconds_at([int(onsets.min()), int(onsets.max())]).tolist()
    count = max(int((last - first) / _CLOCK_SECONDS) + 1, 2)
    seconds = first + _CLOCK_SECONDS * np.arange(count)
    return Beats(seconds, np.arange(0, count, _CLOCK_BAR, dtype=np.int64))
