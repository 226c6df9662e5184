"""Which note-offs end which notes, by NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def match_ends(
    key: NDArray[np.integer], is_on: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each note-on has a note-off, (note-ons,), and whether each row is one of these, (n,).

    Rows are note-ons (`is_on`) and note-offs, sorted by `key`, then by time. A note-off ends the
    earliest sounding note of its key.
    """
    is_new = np.diff(key, prepend=np.int32(-1)) != 0
    group = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
    # Within a key, the number of sounding notes goes up by one at a note-on and down by one at a
    # note-off. A note-off has no note if it reaches a new minimum below 0.
    walk = np.cumsum(np.where(is_on, np.int8(1), np.int8(-1)), dtype=np.int32)
    first = np.flatnonzero(is_new)
    walk -= np.concatenate([[0], walk])[first].astype(np.int32)[group]
    # Offsets put each key far below the previous one, so that one running minimum works for all.
    depth = (2 * len(key) + 2) * group.astype(np.int64)
    low = walk - depth
    np.minimum.accumulate(low, out=low)
    low += depth
    np.minimum(low, 0, out=low)
    low_before = np.concatenate([[0], low[:-1]])
    low_before[first] = 0
    is_end = ~is_on & (low == low_before)
    del walk, depth, low, low_before
    # Each key now has at most as many note-offs as notes, both in order of time.
    num_ends = np.bincount(group[is_end], minlength=len(first))
    on_group = group[is_on]
    rank = np.arange(len(on_group)) - np.searchsorted(on_group, on_group)
    return rank < num_ends[on_group], is_end
