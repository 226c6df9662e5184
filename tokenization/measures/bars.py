"""Notes of a score by bar on the vocabulary's grid: the input of the measures of music."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization import grid
from tokenization.grid import STEPS_PER_BEAT, nearest_step, quantize_time_signatures
from tokenization.remi.vocabulary import DRUMS
from tokenization.score import Score, Track, nearest_ratio


class TrackKey(NamedTuple):
    """Key of a track, the same in several scores of a piece."""

    program: int
    """MIDI program, 128 for drums."""
    part: int
    """Index among the score's tracks of that program, empty tracks included."""


def track_keys(tracks: Sequence[Track]) -> list[TrackKey]:
    """Return the key of each track; all drum tracks have the same key, as in the vocabulary."""
    counted: dict[int, int] = {}
    keys: list[TrackKey] = []
    for track in tracks:
        program = DRUMS if track.is_drum else track.program
        keys.append(TrackKey(program, 0 if track.is_drum else counted.get(program, 0)))
        counted[program] = counted.get(program, 0) + 1
    return keys


def bar_lines(score: Score) -> NDArray[np.int64]:
    """Return ticks of bar lines (bars + 1,): from 0 to the first at or after the score's end.

    There is at least one bar. Bars are those of the vocabulary: whole eighths, up to eight
    quarters.
    """
    return nearest_ratio(_lines_in_steps(score) * score.ticks_per_beat, STEPS_PER_BEAT)


def _lines_in_steps(score: Score, end: int = 1) -> NDArray[np.int64]:
    end = max(end, nearest_step(score.end_ticks, score.ticks_per_beat))
    return grid.bar_lines(quantize_time_signatures(score), end)


def new_music(score: Score, first_bar: int) -> Score:
    """Return the score with only the notes that begin in bar `first_bar` (from 0) or later.

    Times, tempos and metre are kept, so that the bars stay those of the whole piece.
    """
    lines = bar_lines(score)
    start = lines[first_bar] if first_bar < len(lines) else score.end_ticks
    tracks = [
        track.with_tables(notes=track.notes[track.notes[:, 0] >= start]) for track in score.tracks
    ]
    return score.with_tracks(tracks)


class BarNotes(NamedTuple):
    """Notes of some bars of a score, in grid steps of a twelfth of a quarter; columns (n,).

    Bars are those of `bar_lines`. Notes are sorted by onset, then by track and pitch.
    """

    lines: NDArray[np.int64]
    """(bars + 1,): grid step at which each bar begins, then the end of the last bar."""
    onsets: NDArray[np.int64]
    """Grid steps from the start of the first bar."""
    durations: NDArray[np.int64]
    """Grid steps, at least 1; notes may end after the last bar."""
    pitches: NDArray[np.int64]
    velocities: NDArray[np.int64]
    tracks: NDArray[np.int64]
    """Index into `keys`."""
    keys: tuple[TrackKey, ...]
    """The tracks with notes anywhere in the score."""

    @classmethod
    def of(cls, score: Score) -> BarNotes:
        """Return all bars of a score."""
        track_of = track_keys(score.tracks)
        keys = tuple(sorted({k for k, t in zip(track_of, score.tracks, strict=True) if len(t)}))
        tables = [
            np.insert(track.notes, 4, keys.index(key), 1)
            for key, track in zip(track_of, score.tracks, strict=True)
            if len(track)
        ]
        begins, lengths, pitches, velocities, tracks = np.concatenate(
            [np.zeros((0, 5), np.int64), *tables]
        ).T
        onsets = nearest_step(begins, score.ticks_per_beat)
        durations = np.maximum(nearest_step(begins + lengths, score.ticks_per_beat) - onsets, 1)
        lines = _lines_in_steps(score, int(onsets.max(initial=0)) + 1)
        notes = cls(lines, onsets, durations, pitches, velocities, tracks, keys)
        return notes.at(np.lexsort((pitches, tracks, onsets)))

    def between(self, first_bar: int, stop_bar: int | None = None) -> BarNotes:
        """Return the notes of bars `first_bar` up to but not including `stop_bar` (None: the end).

        Bars are renumbered from 0.
        """
        lines = self.lines[first_bar : None if stop_bar is None else stop_bar + 1]
        if len(lines) < 2:
            lines = self.lines[-1:]
        is_inside = (self.onsets >= lines[0]) & (self.onsets < lines[-1])
        notes = self.only(is_inside)
        return notes._replace(lines=lines - lines[0], onsets=notes.onsets - lines[0])

    def padded(self, bars: int) -> BarNotes:
        """Return the same notes with at least `bars` bars; further ones are as long as the last."""
        missing = bars - self.num_bars
        if missing <= 0:
            return self
        size = int(self.lines[-1] - self.lines[-2])
        further = self.lines[-1] + size * np.arange(1, missing + 1)
        return self._replace(lines=np.append(self.lines, further))

    def only(self, mask: NDArray[np.bool_]) -> BarNotes:
        """Return the same bars with some of the notes, (n,) bool."""
        return self.at(np.flatnonzero(mask))

    def at(self, places: NDArray[np.int64]) -> BarNotes:
        """Return the same bars with the notes of these indices, in this order."""
        return self._replace(
            onsets=self.onsets[places],
            durations=self.durations[places],
            pitches=self.pitches[places],
            velocities=self.velocities[places],
            tracks=self.tracks[places],
        )

    @property
    def num_bars(self) -> int:
        """Number of bars."""
        return len(self.lines) - 1

    @property
    def bars(self) -> NDArray[np.int64]:
        """Bar in which each note begins, from 0."""
        return np.searchsorted(self.lines, self.onsets, side="right") - 1

    @property
    def positions(self) -> NDArray[np.int64]:
        """Grid steps from the start of the bar to the onset of each note."""
        return self.onsets - self.lines[self.bars]

    @property
    def is_drum(self) -> NDArray[np.bool_]:
        """Whether each note is a drum note."""
        drums = np.array([key.program == DRUMS for key in self.keys], bool)
        return drums[self.tracks] if len(drums) else np.zeros(0, bool)
