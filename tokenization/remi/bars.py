"""Bars as a score writes them, and the bars of whole eighths in which the vocabulary counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.quantize import name_bars, nearest_step, split_long_bars
from tokenization.remi.vocabulary import BAR_UNIT, MAX_BAR_STEPS, STEPS_PER_BEAT
from tokenization.score import Score, Tempo, TimeSignature, Track, nearest_ratio

_NEVER = 1 << 60


def written_lines(score: Score, end: int, more: int = 0) -> NDArray[np.int64]:
    """Bar lines in ticks: from 0 to the first at or after `end`, and `more` behind it.

    Each is the tick nearest to its exact place, so they never drift. A change of metre cuts the bar
    it falls into; where that would leave less than half a grid step, the line before it moves there
    instead. A metre that is written again moves nothing. A quarter note has at least 12 ticks.
    """
    changes = [TimeSignature(0, 4, 4)]
    changes += [change for change in score.time_signatures if change.numerator > 0]
    table = np.array(changes, np.int64)
    table = table[np.append(True, (table[1:, 1:] != table[:-1, 1:]).any(1))]
    starts, numerators, denominators = table.T
    wholes = 4 * score.ticks_per_beat * numerators  # a bar has wholes / denominators ticks
    # Bars of a metre begin before the next change, by half a step or more.
    halves = 2 * STEPS_PER_BEAT
    rooms = halves * np.diff(starts, append=starts[-1]) - score.ticks_per_beat
    counts = np.maximum(-(-rooms * denominators // (halves * wholes)), 0)
    left = max(end - int(starts[-1]), 0)
    counts[-1] = -(-left * int(denominators[-1]) // int(wholes[-1])) + more + 2
    metre = np.repeat(np.arange(len(table)), counts)
    bar = np.arange(len(metre)) - (np.cumsum(counts) - counts)[metre]
    lines = starts[metre] + nearest_ratio(bar * wholes[metre], denominators[metre])
    lines[0] = 0
    return lines[: int(np.searchsorted(lines, end)) + more + 1]


class BarMap(NamedTuple):
    """The same bars in a file's ticks and in grid steps, as the vocabulary counts them.

    The vocabulary has bars of whole eighths. A written bar that ends between two (7/16, or an
    upbeat of a sixteenth) is counted up to the later one, with nothing in what is left: so every
    bar begins on a line on both sides, and no line drifts. Where all bars are whole eighths, steps
    are times on the grid as they are. Bars longer than eight quarters are several of the
    vocabulary's.
    """

    lines: NDArray[np.int64]
    """(bars + 1,), ticks."""
    starts: NDArray[np.int64]
    """(bars + 1,), steps from the first line to each, as the vocabulary counts."""
    sizes: NDArray[np.int64]
    """(bars,), steps that each bar really has, at least 1."""
    ticks_per_beat: int

    @classmethod
    def of(cls, lines: NDArray[np.int64], ticks_per_beat: int) -> BarMap:
        """The map of bars between `lines`, in ticks; at least one."""
        sizes = np.maximum(nearest_step(np.diff(lines), ticks_per_beat), 1)
        starts = np.append(0, np.cumsum(sizes + -sizes % BAR_UNIT))
        return cls(lines, starts, sizes, ticks_per_beat)

    def steps(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nearest step to each time; what is behind the last line goes on evenly."""
        bars = np.searchsorted(self.lines, ticks, side="right") - 1
        offsets = nearest_step(ticks - self.lines[bars], self.ticks_per_beat)
        is_next = offsets >= np.append(self.sizes, _NEVER)[bars]
        following = np.append(self.starts[1:], _NEVER)[bars]
        return np.where(is_next, following, self.starts[bars] + offsets)

    def ticks(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The time of each step: what is left over of a bar is its end."""
        bars = np.searchsorted(self.starts, steps, side="right") - 1
        ticks = nearest_ratio((steps - self.starts[bars]) * self.ticks_per_beat, STEPS_PER_BEAT)
        return np.minimum(self.lines[bars] + ticks, np.append(self.lines[1:], _NEVER)[bars])

    def notes(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Notes in steps from the first line (n, 4) as notes in ticks."""
        begins, ends = self.ticks(table[:, 0]), self.ticks(table[:, 0] + table[:, 1])
        return np.column_stack([begins, ends - begins, table[:, 2:]])

    def vocabulary_lines(self) -> NDArray[np.int64]:
        """(n + 1,), lines of the vocabulary's bars in steps: `starts`, and those that split."""
        if (np.diff(self.starts) <= MAX_BAR_STEPS).all():
            return self.starts
        return split_long_bars(self.starts, int(self.starts[-1]))

    def on_grid(self, score: Score) -> Score:
        """A score as the vocabulary counts it: twelve ticks per quarter, in bars of eighths."""
        tracks: list[Track] = []
        for track in score.tracks:
            onsets = self.steps(track.notes[:, 0])
            lengths = self.steps(track.notes[:, 0] + track.notes[:, 1]) - onsets
            notes = np.column_stack([onsets, lengths, track.notes[:, 2:]])
            tracks.append(replace(track.without_events(), notes=notes))
        steps = self.steps(np.array([tempo.tick for tempo in score.tempos], np.int64)).tolist()
        tempos = dict(zip(steps, [tempo.bpm for tempo in score.tempos], strict=True))  # the last
        return Score(
            STEPS_PER_BEAT,
            tuple(tracks),
            tuple(map(Tempo, tempos.keys(), tempos.values())),
            name_bars(self.vocabulary_lines(), ()),
            int(self.starts[-1]),
        )
