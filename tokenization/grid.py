"""The grid of twelve steps per quarter note, and the notated bars of a score."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.score import Score, Ticks, TimeSignature, nearest_ratio

STEPS_PER_BEAT: Final = 12
"""Grid steps of one quarter note."""


def nearest_step(ticks: Ticks, ticks_per_beat: int) -> Ticks:
    """Grid step nearest to each time in ticks; halves are rounded up."""
    if ticks_per_beat == STEPS_PER_BEAT:
        return ticks
    return nearest_ratio(STEPS_PER_BEAT * ticks, ticks_per_beat)


def metres(score: Score) -> NDArray[np.int64]:
    """Time signatures in effect (n, 3): tick, numerator, denominator; the first at tick 0.

    Of several at one tick the last applies. Invalid and repeated ones are left out.
    """
    changes = [TimeSignature(0, 4, 4)]
    changes += [change for change in score.time_signatures if min(change[1:]) > 0]
    table = np.array(changes, np.int64)
    table = table[np.append(table[1:, 0] != table[:-1, 0], True)]
    return table[np.append(True, (table[1:, 1:] != table[:-1, 1:]).any(1))]


def notated_lines(score: Score, end: int, more: int = 0) -> NDArray[np.int64]:
    """Notated bar lines in ticks: from 0 to the first one at or after `end`, and `more` after it.

    Each is the tick nearest to its exact place, so that bar lines never drift. A change of time
    signature ends the bar in which it occurs; if at most half a grid step of that bar would be
    left, its bar line moves to the change instead. Of several time signatures at one tick the last
    applies; a repeated one has no effect. A quarter note has at least 12 ticks.
    """
    table = metres(score)
    starts, numerators, denominators = table.T
    wholes = 4 * score.ticks_per_beat * numerators  # a bar has wholes / denominators ticks
    # Bars of a time signature begin more than half a grid step before the next change.
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
