"""A baseline for measures of form: new bars that copy what stood a number of bars before."""

from __future__ import annotations

import numpy as np

from tokenization.measures.bars import BarNotes

COPIED_BARS = 16
"""Distance from a new bar to the bar that it copies."""


def copier(notes: BarNotes, first_bar: int, distance: int = COPIED_BARS) -> BarNotes:
    """Return the passage with each bar from `first_bar` on replaced by the bar `distance` before.

    Bars are replaced one after the other, so that more than `distance` new bars repeat the same
    ones. Notes keep their position in the bar and their duration; those that begin after the end of
    a shorter bar are dropped.

    Raises:
        ValueError: the prompt has fewer than `distance` bars.
    """
    if not 1 <= distance <= first_bar:
        raise ValueError(f"{first_bar} bars cannot be continued with what stood {distance} before")
    bars, positions, sizes = notes.bars, notes.positions, np.diff(notes.lines)
    source = np.arange(notes.num_bars)
    new = source[first_bar:]
    source[first_bar:] = first_bar - distance + (new - first_bar) % distance
    edges = np.searchsorted(bars, np.arange(notes.num_bars + 1))
    indices = [np.arange(edges[bar], edges[bar + 1]) for bar in source]
    places = np.concatenate([np.zeros(0, np.int64), *indices])
    target = np.repeat(np.arange(notes.num_bars), [len(part) for part in indices])
    fits = positions[places] < sizes[target]
    places, target = places[fits], target[fits]
    onsets = notes.lines[target] + positions[places]
    return notes.at(places)._replace(onsets=onsets)
