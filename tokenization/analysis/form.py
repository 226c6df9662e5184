"""The form of a piece as letters, `A A B A`, from its plan.

Phrases begin where repetition begins or ends, and have a usual length where possible, after
Sargent, Bimbot and Vincent (2017). Phrases that resemble each other have the same letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise
from string import ascii_uppercase
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.plan import Plan

MAX_BARS: Final = 10_000
"""Longer pieces have no form."""
_REACH = 256  # bars between phrases that are compared
# Chosen on the training split of POP909 (benchmarks.tokenization.bench_plan).
_SAME_ROOTS = 0.6
"""Similarity of bars that have the same roots and are not returns of one bar, which is 1."""
_WINDOW = 6
"""Bars before and after a boundary that are compared."""
_AS_SOURCE = 0.5
"""Weight of evidence for a boundary from later bars that repeat what surrounds it."""
_LONGEST = 16
_LENGTH_COSTS = {4: 0.4, 8: 0.2, 16: 0.4}
_EVEN_COST, _ODD_COST = 0.9, 1.2
_SAME_LETTER = 0.4
"""Mean similarity of the bars of phrases with the same letter."""


class Phrase(NamedTuple):
    """A phrase of a piece."""

    letter: str
    first_bar: int
    """From 0."""
    num_bars: int


def find_form(plan: Plan, given: Sequence[Phrase] = ()) -> tuple[Phrase, ...]:
    """Return the phrases of a piece in order, of 1 to 16 bars; none for pieces over `MAX_BARS`.

    The letters are A, B and so on in order of appearance; after Z come AA, AB and so on. The form
    is not causal: the beginning of a phrase may show only when it returns. `given` phrases that
    follow each other from the first bar on, such as those of music that is continued, keep their
    lengths and letters; a new letter is then the first that is not in use.
    """
    num_bars = len(plan.bars)
    if not 0 < num_bars <= MAX_BARS:
        return ()
    similarity = _similarity(plan)
    kept = _kept(given, num_bars)
    done = sum(phrase.num_bars for phrase in kept)
    edges = [phrase.first_bar for phrase in kept]
    edges += [done + edge for edge in _edges(_boundary_evidence(similarity)[done:])]
    letters = [phrase.letter for phrase in kept]
    for index, (first, stop) in enumerate(pairwise(edges[len(kept) :]), len(kept)):
        likeness = [
            _likeness(similarity, edges[other], edges[other + 1], first, stop)
            for other in range(index)
        ]
        best = int(np.argmax(likeness)) if likeness else 0
        is_new = not likeness or likeness[best] < _SAME_LETTER
        unused = (letter for letter in map(_letter, count()) if letter not in letters)
        letters.append(next(unused) if is_new else letters[best])
    return tuple(
        Phrase(letter, first, stop - first)
        for letter, first, stop in zip(letters, edges[:-1], edges[1:], strict=True)
    )


def _kept(phrases: Sequence[Phrase], num_bars: int) -> list[Phrase]:
    """Return the phrases that follow each other from the first bar on, up to a number of bars."""
    kept: list[Phrase] = []
    end = 0
    for letter, first_bar, length in phrases:
        if first_bar != end or end >= num_bars:
            break
        kept.append(Phrase(letter, first_bar, min(length, num_bars - end)))
        end += length
    return kept


def _similarity(plan: Plan) -> NDArray[np.float32]:
    """Return the similarity of bars to those d before, 0 to 1 (bars, distances); 0 for d = 0."""
    num_bars = len(plan.bars)
    origins = np.arange(num_bars)
    roots = np.full((num_bars, 2), -1)
    for bar, (source, chords) in enumerate((bar.source, bar.chords) for bar in plan.bars):
        if 0 < source <= bar:
            origins[bar] = origins[bar - source]
        if chords:
            halves = (chords[0].chord, chords[-1].chord)
            roots[bar] = [-1 if chord is None else chord.root for chord in halves]
    similarity = np.zeros((num_bars, min(_REACH, num_bars - 1) + 1), np.float32)
    for distance in range(1, similarity.shape[1]):
        later, earlier = slice(distance, None), slice(None, -distance)
        same_roots = ((roots[later] == roots[earlier]) & (roots[later] >= 0)).mean(1)
        is_return = origins[later] == origins[earlier]
        similarity[later, distance] = np.maximum(is_return, _SAME_ROOTS * same_roots)
    return similarity


def _boundary_evidence(similarity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return evidence for a boundary before each bar (bars + 1,): how much repetition changes."""
    num_bars, reach = similarity.shape
    sums = np.zeros((num_bars + 1, reach), np.float32)
    np.cumsum(similarity, axis=0, out=sums[1:])
    bars = np.arange(num_bars + 1, dtype=np.int64)
    after = sums[np.clip(bars + _WINDOW, 0, num_bars)] - sums
    before = sums - sums[np.clip(bars - _WINDOW, 0, num_bars)]
    change = ((after - before) / _WINDOW) ** 2
    evidence = change.max(axis=1)
    as_source = np.zeros(num_bars + 1, np.float32)
    for distance in range(1, reach):
        rows = as_source[: num_bars + 1 - distance]
        np.maximum(rows, change[distance:, distance], out=rows)
    return evidence + np.float32(_AS_SOURCE) * as_source


def _edges(evidence: NDArray[np.float32]) -> list[int]:
    """Return first bars of phrases, and the end: the largest sum of evidence less length costs."""
    num_bars = len(evidence) - 1
    gains = [*evidence[:-1].tolist(), 0.0]
    costs = [_EVEN_COST if length % 2 == 0 else _ODD_COST for length in range(_LONGEST + 1)]
    for length, cost in _LENGTH_COSTS.items():
        costs[length] = cost
    best, before = [0.0], [0]
    for stop in range(1, num_bars + 1):
        longest = min(stop, _LONGEST)
        total, length = max(
            (best[stop - length] - costs[length], length) for length in range(1, longest + 1)
        )
        best.append(total + gains[stop])
        before.append(stop - length)
    edges = [num_bars]
    while edges[-1] > 0:
        edges.append(before[edges[-1]])
    return edges[::-1]


def _likeness(
    similarity: NDArray[np.float32], first: int, stop: int, later: int, later_stop: int
) -> float:
    """Return the mean similarity of the bars of two phrases; 0 if far apart or unequally long."""
    shorter, longer = sorted((stop - first, later_stop - later))
    distance = later - first
    if distance >= similarity.shape[1] or 2 * shorter < longer:
        return 0.0
    return float(similarity[later : later + shorter, distance].mean())


def _letter(kind: int) -> str:
    """Return a to Z, then AA, AB and so on."""
    before, last = divmod(kind, len(ascii_uppercase))
    return (_letter(before - 1) if before else "") + ascii_uppercase[last]
