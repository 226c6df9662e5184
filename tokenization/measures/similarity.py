"""Similarity of bars to each other, and bars that repeat earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.measures.bars import BarNotes

LAGS = (1, 2, 4, 8, 16)
"""Distances in bars between compared bars."""


def bar_similarity(notes: BarNotes) -> NDArray[np.float64]:
    """Return the Jaccard similarity (bars, bars) of the onsets in two bars, 0 to 1.

    A bar is the set of (position, pitch class) of its notes, or (position, pitch) for drums;
    instruments are ignored. Similarity to an empty bar is 0, and NaN between two empty bars.
    """
    sounds = np.where(notes.is_drum, 12 + notes.pitches, notes.pitches % 12)
    return _jaccard(notes, notes.positions * 140 + sounds)


def rhythm_similarity(notes: BarNotes) -> NDArray[np.float64]:
    """Return the similarity (bars, bars) of the positions of onsets alone, as `bar_similarity`."""
    return _jaccard(notes, notes.positions)


def _jaccard(notes: BarNotes, contents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of the sets of contents (n,) of the notes of any two bars."""
    _, kind = np.unique(contents, return_inverse=True)
    holds = np.zeros((notes.num_bars, int(kind.max(initial=0)) + 1))
    holds[notes.bars, kind] = 1
    common = holds @ holds.T
    sizes = holds.sum(1)
    either = sizes[:, None] + sizes - common
    return np.divide(common, either, out=np.full_like(common, np.nan), where=either > 0)


def similarity_by_lag(
    similarity: NDArray[np.float64], lags: Sequence[int] = LAGS
) -> NDArray[np.float64]:
    """Return the mean similarity of bars at each distance (lags,); NaN if none are so far apart."""
    diagonals = [np.diagonal(similarity, lag) for lag in lags]
    defined = [diagonal[~np.isnan(diagonal)] for diagonal in diagonals]
    return np.array([float(x.mean()) if len(x) else np.nan for x in defined])


class RepeatedBars(NamedTuple):
    """Shares of the new bars with notes, 0 to 1; NaN if there is no such bar."""

    of_prompt: float
    """Share of bars equal to a bar of the prompt."""
    of_any_earlier: float
    """Share of bars equal to any earlier bar, of the prompt or new."""


def repeated_bars(notes: BarNotes, first_bar: int) -> RepeatedBars:
    """Return the shares of the bars from `first_bar` on that repeat an earlier one.

    Bars are equal if the same pitches begin at the same positions in the same tracks; durations
    and velocities do not count. Bars without notes are left out.
    """
    table = np.stack([notes.bars, notes.tracks, notes.positions, notes.pitches], 1)
    table = np.unique(table, axis=0)
    edges = np.searchsorted(table[:, 0], np.arange(notes.num_bars + 1))
    contents = [table[low:high, 1:].tobytes() for low, high in pairwise(edges.tolist())]
    prompt, seen = set(contents[:first_bar]), set(contents[:first_bar])
    of_prompt: list[bool] = []
    of_any: list[bool] = []
    for content in contents[first_bar:]:
        if content:
            of_prompt.append(content in prompt)
            of_any.append(content in seen)
            seen.add(content)
    if not of_any:
        return RepeatedBars(float("nan"), float("nan"))
    return RepeatedBars(sum(of_prompt) / len(of_prompt), sum(of_any) / len(of_any))


def longest_run(values: NDArray[np.bool_]) -> int:
    """Return the length of the longest run of True."""
    gaps = np.flatnonzero(np.concatenate([[True], ~values, [True]]))
    return int(np.diff(gaps).max()) - 1
