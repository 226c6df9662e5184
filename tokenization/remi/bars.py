"""Mapping of notated bars to bars of the vocabulary, which are whole eighths long."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import (
    BAR_UNIT,
    MAX_BAR_STEPS,
    STEPS_PER_BEAT,
    nearest_step,
    notated_lines,
    quantize_time_signatures,
    split_long_bars,
)
from tokenization.remi.quantize import name_bars
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track, nearest_ratio

_NEVER = 1 << 60


class BarMap(NamedTuple):
    """Maps bars between the ticks of a file and the grid steps of the vocabulary.

    Bars of the vocabulary are whole eighths long. A notated bar that ends between two eighths
    (7/16, or a pickup of a sixteenth) is extended to the later one, and the added steps stay empty.
    Hence every notated bar line is a bar line of the vocabulary, and bar lines do not drift. If all
    bars are whole eighths, steps are times on the grid. A bar longer than eight quarters becomes
    several bars of the vocabulary.
    """

    lines: NDArray[np.int64]
    """Bar lines (bars + 1,) in ticks."""
    starts: NDArray[np.int64]
    """Bar lines (bars + 1,) in steps of the vocabulary, from the first one."""
    sizes: NDArray[np.int64]
    """Notated length of each bar (bars,) in steps, at least 1."""
    ticks_per_beat: int

    @classmethod
    def of_score(cls, score: Score) -> BarMap:
        """Return the map of notated bars of a score of at least 12 ticks per quarter, to its end.

        A score of more than 65,536 quarters ends with the bar in which its last note begins.
        """
        end = score.end_ticks
        if end > MAX_BEATS * score.ticks_per_beat:
            end = 1 + max(int(track.notes[:, 0].max(initial=0)) for track in score.tracks)
        return cls.of(notated_lines(score, max(end, 1)), score.ticks_per_beat)

    @classmethod
    def of(cls, lines: NDArray[np.int64], ticks_per_beat: int) -> BarMap:
        """Return the map of the bars between `lines`, in ticks; at least one."""
        sizes = np.maximum(nearest_step(np.diff(lines), ticks_per_beat), 1)
        starts = np.append(0, np.cumsum(sizes + -sizes % BAR_UNIT))
        return cls(lines, starts, sizes, ticks_per_beat)

    def steps(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the step nearest to each time; after the last bar line, steps continue evenly."""
        bars = np.searchsorted(self.lines, ticks, side="right") - 1
        offsets = nearest_step(ticks - self.lines[bars], self.ticks_per_beat)
        is_next = offsets >= np.append(self.sizes, _NEVER)[bars]
        following = np.append(self.starts[1:], _NEVER)[bars]
        return np.where(is_next, following, self.starts[bars] + offsets)

    def ticks(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the time in ticks of each step; the steps added to a bar map to its end."""
        bars = np.searchsorted(self.starts, steps, side="right") - 1
        ticks = nearest_ratio((steps - self.starts[bars]) * self.ticks_per_beat, STEPS_PER_BEAT)
        return np.minimum(self.lines[bars] + ticks, np.append(self.lines[1:], _NEVER)[bars])

    def notes(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert notes (n, 4) from steps after the first bar line to ticks."""
        begins, ends = self.ticks(table[:, 0]), self.ticks(table[:, 0] + table[:, 1])
        return np.column_stack([begins, ends - begins, table[:, 2:]])

    def vocabulary_lines(self) -> NDArray[np.int64]:
        """Return the vocabulary's bar lines (n + 1,) in steps: `starts`, and splits of bars."""
        if (np.diff(self.starts) <= MAX_BAR_STEPS).all():
            return self.starts
        return split_long_bars(self.starts, int(self.starts[-1]))

    def on_grid(self, score: Score) -> Score:
        """Return the score in grid steps: twelve ticks per quarter, in bars of whole eighths.

        Time signatures are the notated ones until their bars are no longer these bars. After the
        last bar line, where a note may end, bars continue in the length of the last bar of the
        vocabulary.
        """
        tracks: list[Track] = []
        for track in score.tracks:
            onsets = self.steps(track.notes[:, 0])
            lengths = self.steps(track.notes[:, 0] + track.notes[:, 1]) - onsets
            notes = np.column_stack([onsets, lengths, track.notes[:, 2:]])
            tracks.append(replace(track.without_events(), notes=notes))
        steps = self.steps(np.array([tempo.tick for tempo in score.tempos], np.int64)).tolist()
        bpm = [tempo.bpm for tempo in score.tempos]
        tempos = dict(zip(steps, bpm, strict=True))  # of several at one step the last applies
        return Score(
            STEPS_PER_BEAT,
            tuple(tracks),
            tuple(map(Tempo, tempos.keys(), tempos.values())),
            name_bars(self.vocabulary_lines(), self._signatures(score)),
            int(self.starts[-1]),
        )

    def _signatures(self, score: Score) -> tuple[TimeSignature, ...]:
        """Return the notated time signatures, in steps."""
        ticks = np.array([change.tick for change in score.time_signatures], np.int64)
        steps = self.steps(ticks).tolist()
        moved = [
            change._replace(tick=step)
            for step, change in zip(steps, score.time_signatures, strict=True)
        ]
        return quantize_time_signatures(Score(STEPS_PER_BEAT, time_signatures=tuple(moved)))
