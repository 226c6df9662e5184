"""Pieces with the same melody: pairs that share runs of intervals, and the groups they form."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SHARE: Final = 0.3
"""Pieces with at least this share of their runs in common have the same melody."""
FEWEST_RUNS: Final = 16
"""Minimum number of common runs, since short figures agree by chance."""
MOST_PIECES: Final = 64
"""Runs that more pieces than this have are commonplaces, and not counted as common."""
MOST_RUNS: Final = 2**26
"""Maximum number of runs in memory, about 3 GB; of more, only a part is compared."""
_PAIRS = 2**22
"""Number of pairs that are counted at a time."""


class Pairs(NamedTuple):
    """Pairs of pieces with the same melody, columns (n,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    """Larger than `first`."""
    share: NDArray[np.float64]
    """Common runs, divided by the runs of the piece that has fewer."""


def sampled(
    runs: NDArray[np.uint64], num_runs: NDArray[np.int64], step: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Sample one of `step` runs, the same in all pieces; return them, and their number by piece."""
    kept = runs % np.uint64(step) == 0
    pieces = np.repeat(np.arange(len(num_runs)), num_runs)[kept]
    return runs[kept], np.bincount(pieces, minlength=len(num_runs))


def similar_pairs(
    runs: NDArray[np.uint64], num_runs: NDArray[np.int64], fewest: int = FEWEST_RUNS
) -> Pairs:
    """Find the pairs of pieces with the same melody, which share at least `fewest` runs.

    `runs` are the distinct runs of all pieces, one piece after another, and `num_runs` the number
    of each. Time and memory grow with the number of common runs, not with that of pairs of pieces.
    """
    pieces = np.repeat(np.arange(len(num_runs)), num_runs)
    long_enough = (num_runs >= fewest)[pieces]
    pieces, runs = pieces[long_enough], runs[long_enough]
    order = np.argsort(runs, kind="stable")  # pieces of a run stay ascending
    pieces, runs = pieces[order], runs[order]
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1])[: len(runs)])
    counts = np.diff(starts, append=len(runs))
    total = len(num_runs)
    codes, common = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for count in range(2, MOST_PIECES + 1):
        groups = starts[counts == count]
        left, right = np.triu_indices(count, 1)
        at_once = max(_PAIRS // len(left), 1)
        for begin in range(0, len(groups), at_once):
            some = groups[begin : begin + at_once, None]
            pair_codes = (pieces[some + left] * total + pieces[some + right]).ravel()
            codes, common = _added(codes, common, pair_codes)
    first, second = np.divmod(codes, max(total, 1))
    share = common / np.minimum(num_runs[first], num_runs[second])
    kept = (share >= SHARE) & (common >= fewest)
    return Pairs(first[kept], second[kept], share[kept])


def _added(
    codes: NDArray[np.int64], counts: NDArray[np.int64], new_codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the counts of codes, with those of more codes added."""
    new, how_often = np.unique(new_codes, return_counts=True)
    both, places = np.unique(np.concatenate([codes, new]), return_inverse=True)
    summed = np.bincount(places, np.concatenate([counts, how_often]), len(both))
    return both, summed.astype(np.int64)


def groups_of(total: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group of each of `total` pieces: the smallest piece that pairs connect it to."""
    group = np.arange(total)
    while True:
        lowest = np.minimum(group[first], group[second])
        np.minimum.at(group, first, lowest)
        np.minimum.at(group, second, lowest)
        group = group[group]
        if (group[first] == group[second]).all():
            return group
