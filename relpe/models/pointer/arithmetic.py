"""Arithmetic of a pointer, compiled by Numba where it is installed; the same numbers without it.

All that is compiled is in this file, and each function that is kept has one signature, for the
reasons given in `relpe/decoding/kernels.py`; constants of other files are arguments for the same
reason. Sums and products keep their order, so that results are equal bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

try:
    from numba import config, njit

    njit(cache=True)(lambda: None)  # a RuntimeError if Numba finds no folder for its cache
    is_compiled = not config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
except (ImportError, RuntimeError):
    njit, is_compiled = None, False

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F, *, cache: bool = False) -> F:
    """Compile a function if possible; with `cache`, keep it on disk with all that it calls."""
    if njit is None:
        return function
    return cast("F", njit(nogil=True, error_model="numpy", cache=cache)(function))


kept = partial(compiled, cache=True)


def all_at_once(number: int) -> Iterable[Any]:
    """Return a slice instead of the indices of a loop, which NumPy then computes at once."""
    return [slice(number)] if number else []


# Loops over the whole reach use these two: compiled code takes one element after the other.
indices = range if is_compiled else all_at_once
largest = compiled(lambda element: element) if is_compiled else np.max


class Sections(NamedTuple):
    """What a pointer knows of its sequence: views of one array."""

    tokens: NDArray[np.uint16]
    """(2 reach,): the newest of n tokens is at the index reach - 1 - (n - 1) % reach, older ones
    after it. When it has fallen to 0, tokens are moved from the first half to the second."""
    similar: NDArray[np.int16]
    """(reach,): length of the tolerant match; index i is for the place i + 1 tokens before."""
    exact: NDArray[np.int16]
    """(reach,): length of the exact match at the same places."""
    starts: NDArray[np.int64]
    """(128,): number of tokens before the present unit, before the one that precedes it, ..."""
    sources: NDArray[np.int64]
    """(6, 66): the fields of `Sources`; the last two are updated once for all tokens of a call."""
    named: NDArray[np.int64]
    """(2,): class of the distance to the unit that the sequence has named, 0: none; whether this
    name was imposed."""
    proposed: NDArray[np.int64]
    """(67,): tokens that sources propose, all different; at the end, their number."""
    odds: NDArray[np.float64]
    """(66,): odds of these tokens against the decoder, above 0."""
    hits: NDArray[np.float64]
    """(67,): decaying number of informative tokens that each source has proposed; at the end, the
    decaying number of all informative tokens."""
    lengths: NDArray[np.float64]
    """(2,): sum of the classes of the longest exact match at each token of the prompt; number of
    these tokens."""


def memory_size(reach: int, classes: int) -> int:
    """Return the size of the memory of `Sections` in int64 values, for classes of distances."""
    return 4 * ((reach + 3) // 4) + 11 * classes + 2


def sections(memory: NDArray[np.int64], reach: int) -> Sections:
    """Return views of `memory` (`memory_size`,).

    It is one array since passing it to compiled code is faster than passing ten.
    """
    half = 2 * ((reach + 3) // 4)
    lengths, numbers = memory[half : 2 * half].view(np.int16), memory[2 * half :]
    classes = len(numbers) // 11
    starts, sources = 2 * (classes - 2), 6 * classes
    proposed = numbers[starts + sources + 2 :]
    floats = proposed[classes + 1 :].view(np.float64)
    return Sections(
        memory[:half].view(np.uint16)[: 2 * reach],
        lengths[:reach],
        lengths[2 * half : 2 * half + reach],
        numbers[:starts],
        numbers[starts : starts + sources].reshape((6, classes)),
        numbers[starts + sources : starts + sources + 2],
        proposed[: classes + 1],
        floats[:classes],
        floats[classes : 2 * classes + 1],
        floats[2 * classes + 1 :],
    )


_sections = compiled(sections)


class Settings(NamedTuple):
    """A config in arrays; gates are odds instead of log-odds, so that they are multiplied."""

    unit: int
    """Id of the token that begins a unit, or -1."""
    names: tuple[int, int]
    """Range of ids; empty: no token names a unit."""
    records: int
    """Number of classes of track records."""
    kept: float
    """Factor of `Sections.hits` at an informative token."""
    strength: float
    """Factor of the odds of all sources together."""
    most: float
    """Upper bound of these odds."""
    most_generated: float
    """Upper bound of the odds of all sources together that propose generated tokens."""
    imposed: float
    """Factor of the odds of the source in a unit whose name was imposed."""
    least_imposed: float
    """Lower bound of these odds, if there is such a source."""
    most_imposed: float
    """Upper bound of these odds."""
    proposed: NDArray[np.float64]
    """(n,): factor of the odds of a proposed token by its family."""
    run: NDArray[np.float64]
    """(n,): logarithm of the factor by which these odds fall with each class of length of the exact
    match beyond the mean of the prompt."""
    ignored: NDArray[np.int64]
    """(n, 2)."""
    families: NDArray[np.int64]
    """(n,)."""
    length_classes: NDArray[np.int64]
    """(n,): class of each length of a match; matches are counted up to the last one."""
    gates: NDArray[np.float64]
    """(6, n): by class of the tolerant length, exact length, distance, record; by what the sequence
    has named: nothing, another unit, the unit at each distance; by family. Rows end with zeros."""


@kept
def read(
    memory: NDArray[np.int64],
    reach: int,
    settings: Settings,
    tokens: NDArray[np.int64],
    count: int,
    first_generated: int,
    imposed: bool,
) -> None:
    """Update `memory` for `tokens` (n,), at least one, which follow `count` others.

    The tokens from the number `first_generated` on are generated. `imposed`: see `Pointer.extend`.
    """
    parts = _sections(memory, reach)
    ring, starts, hits, classes = parts.tokens, parts.starts, parts.hits, len(parts.odds)
    for token in tokens:
        first, stop, is_informative = token, token + 1, True
        for low, high in settings.ignored:
            if low <= token < high:
                first, stop, is_informative = low, high, False
        if count and is_informative:
            hits *= settings.kept
            hits[classes] += 1.0
            for i in indices(classes):
                hits[i] += parts.sources[0, i] == token
        if count and not count % reach:
            ring[reach:] = ring[:reach]
        front = reach - 1 - count % reach
        ring[front] = token
        if token == settings.unit:
            starts[1:] = starts[:-1].copy()
            starts[0] = count
            parts.named[:] = 0
        elif settings.names[0] <= token < settings.names[1]:
            units = token - settings.names[0] + 1
            parts.named[0] = units if units < classes - 2 else classes - 2 + (units >= 128)
            parts.named[1] = imposed
        _match(parts, front, count, first, stop - 1, len(settings.length_classes) - 1)
        if count < first_generated:
            parts.lengths[0] += settings.length_classes[parts.sources[2].max()]
            parts.lengths[1] += 1.0
        count += 1
    _propose(parts, settings, tokens[-1], count, first_generated)


@kept
def mix(
    memory: NDArray[np.int64],
    reach: int,
    logits: NDArray[np.float32],
    tokens: NDArray[np.int64],
    factor: float,
) -> NDArray[np.float64]:
    """See `Pointer.mix`; `factor` is its `memory`."""
    parts = _sections(memory, reach)
    scores = logits[tokens].astype(np.float64)
    scores -= scores.max()
    total = 0.0
    for score in scores:
        total += math.exp(score)
    for i in range(parts.proposed[-1]):
        place = np.searchsorted(tokens, parts.proposed[i])
        if place < len(tokens) and tokens[place] == parts.proposed[i]:
            weight = math.exp(scores[place]) + factor * parts.odds[i] * total
            if weight > 0:  # neither of them underflows
                scores[place] = math.log(weight)
    return scores


@compiled
def _match(parts: Sections, front: int, count: int, first: int, last: int, longest: int) -> None:
    """Update `similar`, `exact` and `sources` for the token at `front`, after `count` others.

    A tolerant match at this token accepts ids from `first` to `last`.
    """
    token, low, high = parts.tokens[front], np.uint16(first), np.uint16(last)
    seen, limit = min(count, len(parts.similar)), np.int16(longest)
    similar, exact, sources = parts.similar[:seen], parts.exact[:seen], parts.sources
    before = parts.tokens[front + 1 : front + 1 + seen]
    for i in indices(seen):  # narrow integers and no branches: compiled to vector instructions
        length, is_similar = similar[i], (before[i] >= low) & (before[i] <= high)
        half = length >> 1
        similar[i] = half + is_similar * (length - half + (length < limit))
        exact[i] = (before[i] == token) * (exact[i] + (exact[i] < limit))
    starts, classes, nearest = parts.starts, sources.shape[1], 0
    sources[0], sources[1:4] = -1, 0
    for distance in range(classes):
        end = seen
        if distance < classes - 1:
            start = starts[distance if distance < classes - 2 else len(starts) - 1]
            end = min(seen, count - start)
        lengths, best = similar[nearest:end], np.int16(0)
        for i in indices(len(lengths)):
            length = largest(lengths[i])
            best = length if length > best else best
        if best:
            index = 0  # of the nearest of several
            while lengths[index] != best:
                index += 1
            place = nearest + index
            sources[0, distance], sources[1, distance] = parts.tokens[front + place], best
            sources[2, distance], sources[3, distance] = exact[place], place + 1
        nearest = end


@compiled
def _propose(
    parts: Sections, settings: Settings, last: int, count: int, first_generated: int
) -> None:
    """Update `proposed` and `odds` after `count` tokens, of which `last` is the newest."""
    tokens, distances, proposed = parts.sources[0], parts.sources[3], parts.proposed
    values = _odds(parts, settings, last)
    named, is_apart, apart = parts.named[0], parts.named[1] > 0, 0.0
    if is_apart and tokens[named] >= 0:
        apart = max(values[named] * settings.imposed, settings.least_imposed)
        apart = min(apart, settings.most_imposed)
        values[named] = 0.0
    total = float(values.cumsum()[-1])  # in this order, unlike a sum
    if total:
        values *= min(settings.strength / math.sqrt(total), settings.most / total)
    total = 0.0
    for distance in range(len(values)):
        if count - distances[distance] >= first_generated:
            total += values[distance]
    if total > settings.most_generated:
        for distance in range(len(values)):
            if count - distances[distance] >= first_generated:
                values[distance] *= settings.most_generated / total
    if is_apart:
        values[named] = apart
    usual = parts.lengths[0] / max(parts.lengths[1], 1.0)
    for distance in range(len(values)):
        if values[distance] > 0 and not (is_apart and distance == named):
            family = np.searchsorted(settings.families, tokens[distance], side="right") - 1
            beyond = max(settings.length_classes[parts.sources[2, distance]] - usual, 0.0)
            values[distance] *= settings.proposed[family]
            values[distance] *= math.exp(-settings.run[family] * beyond)
    number = 0
    for distance in range(len(values)):
        if values[distance] > 0:
            index = 0
            while index < number and proposed[index] != tokens[distance]:
                index += 1
            if index == number:
                proposed[number], parts.odds[number] = tokens[distance], 0.0
                number += 1
            parts.odds[index] += values[distance]
    proposed[-1] = number


@compiled
def _odds(parts: Sections, settings: Settings, last: int) -> NDArray[np.float64]:
    """Return the odds of each source before they are scaled; 0 where there is none.

    Update the last two rows of `sources`.
    """
    sources, gates, length_classes = parts.sources, settings.gates, settings.length_classes
    by_family = gates[5, np.searchsorted(settings.families, last, side="right") - 1]
    named, odds = parts.named[0], np.zeros(len(parts.odds))
    scale = settings.records / max(parts.hits[-1], 1.0)
    for i in indices(len(odds)):
        sources[4, i] = np.minimum(parts.hits[i] * scale, settings.records - 1)
    sources[5] = named > 0
    if named:
        sources[5, named] = 2
    for distance in range(len(odds)):
        if sources[1, distance]:
            value = gates[0, length_classes[sources[1, distance]]]
            value *= gates[1, length_classes[sources[2, distance]]]
            value *= gates[2, distance]
            value *= gates[3, sources[4, distance]]
            value *= gates[4, 2 + distance if sources[5, distance] == 2 else sources[5, distance]]
            odds[distance] = value * by_family
    return odds
