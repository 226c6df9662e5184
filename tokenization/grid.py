"""The grid of twelve steps per quarter note, and the notated bars of a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.score import Score, Ticks, TimeSignature, nearest_ratio

STEPS_PER_BEAT: Final = 12
"""Grid steps of one quarter note."""
BAR_UNIT: Final = STEPS_PER_BEAT // 2
"""Bar lengths are multiples of this many grid steps, which is an eighth note."""
MAX_BAR_STEPS: Final = 96
_STEPS_PER_WHOLE: Final = 4 * STEPS_PER_BEAT


def nearest_step(ticks: Ticks, ticks_per_beat: int) -> Ticks:
    """Return the grid step nearest to each time in ticks; halves are rounded up."""
    if ticks_per_beat == STEPS_PER_BEAT:
        return ticks
    return nearest_ratio(STEPS_PER_BEAT * ticks, ticks_per_beat)


def metres(score: Score) -> NDArray[np.int64]:
    """Return time signatures (n, 3): tick, numerator, denominator; the first at tick 0.

    Of several at one tick the last applies. Invalid and repeated ones are left out.
    """
    changes = [TimeSignature(0, 4, 4)]
    changes += [change for change in score.time_signatures if min(change[1:]) > 0]
    table = np.array(changes, np.int64)
    table = table[np.append(table[1:, 0] != table[:-1, 0], True)]
    return table[np.append(True, (table[1:, 1:] != table[:-1, 1:]).any(1))]


def second_half(length: int) -> int:
    """Return the grid step at which the second chord of a bar of this length begins."""
    unit = BAR_UNIT if length % STEPS_PER_BEAT else STEPS_PER_BEAT
    return -(-length // (2 * unit)) * unit


def notated_lines(score: Score, end: int, more: int = 0) -> NDArray[np.int64]:
    """Return notated bar lines in ticks: from 0 to the first from `end` on, and `more` after it.

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


def quantize_time_signatures(score: Score) -> tuple[TimeSignature, ...]:
    """Quantise the times of time signatures to multiples of an eighth note from 0.

    Of several at one step the last applies. Repeated and invalid ones are removed.
    """
    changes = {0: TimeSignature(0, 4, 4)}
    for tick, numerator, denominator in score.time_signatures:
        if 0 < numerator < 256 and denominator > 0:
            step = BAR_UNIT * nearest_ratio(tick * STEPS_PER_BEAT, score.ticks_per_beat * BAR_UNIT)
            changes[step] = TimeSignature(step, numerator, denominator)
    kept: list[TimeSignature] = []
    for change in changes.values():
        if not kept or change[1:] != kept[-1][1:]:
            kept.append(change)
    return tuple(kept)


def bar_lines(
    signatures: Sequence[TimeSignature], end: int, *, split: bool = True
) -> NDArray[np.int64]:
    """Return bar lines in steps (bars + 1,): from 0 to the first from `end` on; at least one bar.

    Bar lengths are those of the vocabulary. A bar line that is not at a multiple of an eighth note
    moves to the nearest one from its exact place, so that bar lines do not drift. A bar of more
    than eight quarters is split at quarters, unless `split` is False. A change of time signature
    ends the bar in which it occurs. `signatures` are those of `quantize_time_signatures`.
    """
    end = max(BAR_UNIT, end + -end % BAR_UNIT)
    sections: list[NDArray[np.int64]] = []
    single: list[int] = []
    has_long_bars = False
    for index, (start, numerator, denominator) in enumerate(signatures):
        change = signatures[index + 1].tick if index + 1 < len(signatures) else None
        stop = end if change is None else min(end, change)
        bar = (_STEPS_PER_WHOLE * numerator, denominator)
        if bar[0] < BAR_UNIT * bar[1]:
            bar = (BAR_UNIT, 1)
        has_long_bars = has_long_bars or bar[0] > MAX_BAR_STEPS * bar[1]
        num_bars = -(-(stop - start) * bar[1] // bar[0])
        if num_bars == 1 and stop < end:
            single.append(start)  # one list, since malicious files have thousands of bars
            continue
        if single:
            sections.append(np.array(single))
            single = []
        unit = BAR_UNIT * bar[1]
        if bar[0] % unit == 0:
            lines = np.arange(num_bars + 1) * (bar[0] // bar[1]) + start
        else:
            lines = (2 * bar[0] * np.arange(num_bars + 1) + unit) // (2 * unit) * BAR_UNIT + start
        if stop == end:
            sections.append(lines if change is None else np.minimum(lines, change))
            break
        sections.append(lines[lines < stop])
    lines = np.concatenate(sections)
    if has_long_bars and split:
        lines = split_long_bars(lines, end)
    return lines[: int(lines.searchsorted(end)) + 1]


def split_long_bars(lines: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Split bars that are too long, up to `end`."""
    split: list[int] = []
    for start, stop in zip(lines[:-1].tolist(), lines[1:].tolist(), strict=True):
        num_parts = -(-(stop - start) // MAX_BAR_STEPS)
        for part in range(num_parts):
            # Rounded up to a quarter, so that no part exceeds the longest bar.
            inner = -(-(stop - start) * part // (num_parts * STEPS_PER_BEAT)) * STEPS_PER_BEAT
            split.append(start + inner)
            if start + inner >= end:
                break
    return np.array([*split, int(lines[-1])])
