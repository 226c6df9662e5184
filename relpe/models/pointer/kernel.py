"""`relpe.models.pointer.arithmetic`, compiled by Numba: the same numbers, bit for bit.

All that is compiled is in this file and has one signature, for the reasons given in
`relpe/decoding/kernels.py`; constants of the other file are arguments for the same reason. Sums and
products have the order of the reference, and are not reordered.
"""

# Numba infers the types of arrays, so annotations would not be checked.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import config, njit

from relpe.models.pointer.arithmetic import LONGEST, NUM_DISTANCES, Sections

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relpe.models.pointer.arithmetic import Settings

if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ImportError("the environment variable NUMBA_DISABLE_JIT turns compilation off")

compiled = njit(nogil=True, error_model="numpy")
kept = njit(nogil=True, error_model="numpy", cache=True)  # on disk, with all callees


def read(
    memory: NDArray[np.int64],
    reach: int,
    settings: Settings,
    tokens: NDArray[np.int64],
    count: int,
    first_generated: int,
    *,
    imposed: bool,
) -> None:
    """See `relpe.models.pointer.arithmetic.read`."""
    sizes = LONGEST, NUM_DISTANCES
    _read(memory, reach, settings, tokens, count, first_generated, imposed, *sizes)


def mix(
    memory: NDArray[np.int64],
    reach: int,
    logits: NDArray[np.float32],
    tokens: NDArray[np.int64],
    factor: float,
) -> NDArray[np.float64]:
    """See `relpe.models.pointer.arithmetic.mix`."""
    return _mix(memory, reach, logits, tokens, factor, NUM_DISTANCES)


@kept
def _read(memory, reach, settings, tokens, count, first_generated, imposed, longest, classes):
    parts = _sections(memory, reach, classes)
    ring, similar, exact, starts = parts.tokens, parts.similar, parts.exact, parts.starts
    for token in tokens:
        first, stop, informative = token, token + 1, True
        for low, high in settings.ignored:
            if low <= token < high:
                first, stop, informative = low, high, False
        if count and informative:
            _count_hits(parts, token, _front(count, reach), settings.kept)
        if count and not count % reach:
            ring[reach:] = ring[:reach]
        front = _front(count + 1, reach)
        ring[front] = token
        if token == settings.unit:
            starts[1:] = starts[:-1].copy()
            starts[0] = count
            parts.named[:] = 0
        elif settings.names[0] <= token < settings.names[1]:
            units = token - settings.names[0] + 1
            parts.named[0] = units if units < classes - 2 else classes - 2 + (units >= 128)
            parts.named[1] = imposed
        seen = min(count, reach)
        before, lengths, exacts = ring[front + 1 : front + 1 + seen], similar[:seen], exact[:seen]
        accepted = np.uint16(token), np.uint16(first), np.uint16(stop - 1)
        _lengthen(before, lengths, exacts, *accepted, np.int16(longest))
        _find(lengths, exacts, starts, parts.found, count)
        count += 1
    _propose(parts, settings, count, first_generated)


@kept
def _mix(memory, reach, logits, tokens, factor, classes):
    parts = _sections(memory, reach, classes)
    scores = np.empty(len(tokens))
    top = -np.inf
    for i in range(len(tokens)):
        scores[i] = logits[tokens[i]]
        if not scores[i] <= top:  # NaN too
            top = scores[i]
    total = 0.0
    for i in range(len(tokens)):
        scores[i] -= top
        total += math.exp(scores[i])
    for i in range(parts.proposed[classes]):
        place = np.searchsorted(tokens, parts.proposed[i])
        if place < len(tokens) and tokens[place] == parts.proposed[i]:
            weight = math.exp(scores[place]) + factor * parts.odds[i] * total
            if weight > 0:
                scores[place] = math.log(weight)
    return scores


@compiled
def _sections(memory, reach, classes):
    """See `sections`."""
    half = 2 * ((reach + 3) // 4)
    lengths, numbers = memory[half : 2 * half].view(np.int16), memory[2 * half :]
    starts, found = 2 * (classes - 2), 3 * classes
    proposed = numbers[starts + found + 2 :]
    floats = proposed[classes + 1 :].view(np.float64)
    return Sections(
        memory[:half].view(np.uint16)[: 2 * reach],
        lengths[:reach],
        lengths[2 * half : 2 * half + reach],
        numbers[:starts],
        numbers[starts : starts + found].reshape((3, classes)),
        numbers[starts + found : starts + found + 2],
        proposed[: classes + 1],
        floats[:classes],
        floats[classes:],
    )


@compiled
def _front(count, reach):
    """See `front_of`."""
    return reach - 1 - (count - 1) % reach


@compiled
def _count_hits(parts, token, front, factor):
    """Updates `hits` for an informative token; `front` is the index of the token before it."""
    found, hits = parts.found, parts.hits
    classes = found.shape[1]
    for distance in range(classes):
        place = found[2, distance]
        hits[distance] *= factor
        if place and parts.tokens[front - 1 + place] == token:
            hits[distance] += 1.0
    hits[classes] = hits[classes] * factor + 1.0


@compiled
def _lengthen(before, similar, exact, token, first, last, longest):
    """Updates lengths of matches (n,) at the places of `before` (n,).

    The loop has narrow integers and no branches, so that it is vectorised.
    """
    for i in range(len(before)):
        other, length = before[i], similar[i]
        accepted = (other >= first) & (other <= last)
        similar[i] = length + (length < longest) if accepted else length >> 1
        length = exact[i]
        exact[i] = length + (length < longest) if other == token else 0


@compiled
def _find(similar, exact, starts, found, count):
    """Updates `found`, for the newest token after `count` others."""
    classes, nearest = found.shape[1], 0
    for distance in range(classes):
        end = len(similar)
        if distance < classes - 1:
            start = starts[distance if distance < classes - 2 else len(starts) - 1]
            end = min(end, count - start)
        longest, index = _maximum(similar[nearest:end])
        found[:, distance] = 0
        if longest:
            place = nearest + index
            found[0, distance], found[1, distance] = longest, exact[place]
            found[2, distance] = place + 1
        nearest = end


@compiled
def _maximum(lengths):
    """The largest of lengths (n,), and its first index; 0 and 0 if there are none."""
    longest = np.int16(0)
    for i in range(len(lengths)):
        length = lengths[i]
        longest = length if length > longest else longest
    index = 0
    if longest:
        while lengths[index] != longest:
            index += 1
    return longest, index


@compiled
def _propose(parts, settings, count, first_generated):
    """Updates `proposed` and `odds`, after `count` tokens."""
    found, proposed, odds = parts.found, parts.proposed, parts.odds
    distances, front = found[2], _front(count, len(parts.similar))
    values = _odds(parts, settings, front)
    apart, own = parts.named[0], 0.0
    if parts.named[1] and found[0, apart]:
        own = max(values[apart] * settings.imposed, settings.least_imposed)
        own = min(own, settings.most_imposed)
        values[apart] = 0.0
    total = 0.0
    for value in values:
        total += value
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
    if parts.named[1]:
        values[apart] = own
    number = 0
    for distance in range(len(values)):
        if not values[distance] > 0:
            continue
        token, index = parts.tokens[front - 1 + distances[distance]], 0
        while index < number and proposed[index] != token:
            index += 1
        if index == number:
            proposed[number], odds[number] = token, 0.0
            number += 1
        odds[index] += values[distance]
    proposed[len(values)] = number


@compiled
def _odds(parts, settings, front):
    """Odds of the source at each distance before they are scaled; 0 if there is none."""
    found, hits = parts.found, parts.hits
    gates, lengths, families = settings.gates, len(settings.lengths), len(settings.families)
    classes = found.shape[1]
    namings = len(gates) - families - classes - 2
    by_record, by_naming = gates[2 * lengths + classes : namings], gates[namings:]
    named = parts.named[0]
    family = gates[len(gates) - families + _class(settings.families, parts.tokens[front])]
    scale = len(by_record) / max(hits[classes], 1.0)
    odds = np.zeros(classes)
    for distance in range(classes):
        similar, exact = found[0, distance], found[1, distance]
        if similar:
            value = gates[_class(settings.lengths, similar)]
            value *= gates[lengths + _class(settings.lengths, exact)]
            value *= gates[2 * lengths + distance]
            value *= by_record[int(min(hits[distance] * scale, len(by_record) - 1))]
            value *= by_naming[0 if not named else 2 + distance if named == distance else 1]
            odds[distance] = value * family
    return odds


@compiled
def _class(firsts, value):
    """Index of the last of `firsts`, ascending, that is at most `value`; 0 if none is."""
    index = 0
    while index + 1 < len(firsts) and firsts[index + 1] <= value:
        index += 1
    return index
