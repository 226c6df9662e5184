"""Arithmetic of a pointer by NumPy: the reference, used where Numba is not installed.

`kernel.py` has the same functions compiled, which give the same numbers bit for bit.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 2**15 - 2
"""Matches are counted up to this length, in tokens."""
NUM_DISTANCES = 66
"""Classes of distances in units: 0 to 63, 64 to 127, 128 and more."""
NUM_RECORDS = 10
"""Classes of track records: equal parts of 0 to 1."""
NUM_NAMINGS = 3
"""What the sequence has named, for a source: no unit, another unit, the unit of the source."""


class Sections(NamedTuple):
    """What a pointer knows of its sequence: views of one array."""

    tokens: NDArray[np.uint16]
    """(2 reach,): the newest token is at the index `front_of` its number, older ones after it."""
    similar: NDArray[np.int16]
    """(reach,): length of the tolerant match; index i is for the place i + 1 tokens before."""
    exact: NDArray[np.int16]
    """(reach,): length of the exact match at the same places."""
    starts: NDArray[np.int64]
    """(128,): number of tokens before the present unit, before the one that precedes it, ..."""
    found: NDArray[np.int64]
    """(3, 66): for each class of distances the tolerant length, the exact length and the distance
    in tokens of its source; 0 if there is none."""
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


def sections(memory: NDArray[np.int64], reach: int, classes: int = NUM_DISTANCES) -> Sections:
    """Views of `memory` (`memory_size`,).

    It is one array since passing it to compiled code is faster than passing nine.
    """
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


def memory_size(reach: int) -> int:
    """Number of int64 of `Sections`."""
    return 4 * ((reach + 3) // 4) + 8 * NUM_DISTANCES


class Settings(NamedTuple):
    """A config in arrays; gates are odds instead of log-odds, so that they are multiplied."""

    unit: int
    """Id of the token that begins a unit, or -1."""
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
    ignored: NDArray[np.int64]
    """(n, 2)."""
    names: NDArray[np.int64]
    """(2,); equal: no token names a unit."""
    families: NDArray[np.int64]
    """(n,)."""
    lengths: NDArray[np.int64]
    """(26,): smallest length of each class."""
    gates: NDArray[np.float64]
    """(26 + 26 + 66 + 10 + 2 + 66 + n,): by tolerant length, exact length, distance, record,
    whether the sequence has named no unit or another one, distance of the named unit, family."""


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
    """Updates `memory` for `tokens` (n,), which follow `count` others.

    The tokens from the number `first_generated` on are generated. `imposed`: see `Pointer.extend`.
    """
    parts = sections(memory, reach)
    for before, token in enumerate(tokens.tolist(), count):
        ranges = [(low, high) for low, high in settings.ignored.tolist() if low <= token < high]
        if before and not ranges:
            parts.hits[:] *= settings.kept
            parts.hits[:-1] += followers(parts, before) == token
            parts.hits[-1] += 1
        if before and not before % reach:
            parts.tokens[reach:] = parts.tokens[:reach]
        front = front_of(before + 1, reach)
        parts.tokens[front] = token
        if token == settings.unit:
            parts.starts[1:] = parts.starts[:-1]
            parts.starts[0] = before
            parts.named[:] = 0
        elif settings.names[0] <= token < settings.names[1]:
            parts.named[:] = distance_class(token - int(settings.names[0]) + 1), imposed
        first, stop = ranges[0] if ranges else (token, token + 1)
        _match(parts, before, front, first, stop)
    _propose(parts, settings, count + len(tokens), first_generated)


def front_of(count: int, reach: int) -> int:
    """Index of the newest of `count` tokens in `Sections.tokens`.

    It falls from reach - 1 to 0; then the tokens are moved from the first half to the second.
    """
    return reach - 1 - (count - 1) % reach


def _match(parts: Sections, count: int, front: int, first: int, stop: int) -> None:
    """Updates `similar`, `exact` and `found` for the token at `front`, after `count` others.

    A tolerant match at this token accepts ids from `first` to `stop`.
    """
    seen = min(count, len(parts.similar))
    before = parts.tokens[front + 1 : front + 1 + seen]
    similar, exact = parts.similar[:seen], parts.exact[:seen]
    equal = (before >= first) & (before < stop)
    similar[:] = np.where(equal, np.minimum(similar, LONGEST - 1) + 1, similar >> 1)
    equal = before == parts.tokens[front]
    exact[:] = np.where(equal, np.minimum(exact, LONGEST - 1) + 1, 0)
    ends = count - parts.starts[[*range(NUM_DISTANCES - 2), -1]]
    edges = [0, *np.minimum(ends, seen).tolist(), seen]
    parts.found[:] = 0
    for distance, (nearest, end) in enumerate(pairwise(edges)):
        if nearest < end:
            place = nearest + int(similar[nearest:end].argmax())  # the nearest of several
            if similar[place]:
                parts.found[:, distance] = similar[place], exact[place], place + 1


def followers(parts: Sections, count: int) -> NDArray[np.int64]:
    """What each source proposes (66,) after `count` tokens, or -1."""
    distances = parts.found[2]
    front = front_of(count, len(parts.similar))
    return np.where(distances, parts.tokens[front - 1 + distances], np.int64(-1))


def records(parts: Sections) -> NDArray[np.int64]:
    """Class of the track record of each source (66,)."""
    shares = parts.hits[:-1] * (NUM_RECORDS / max(float(parts.hits[-1]), 1.0))
    return np.minimum(shares, NUM_RECORDS - 1).astype(np.int64)


def namings(parts: Sections) -> NDArray[np.int64]:
    """What the sequence has named, for each source (66,); see `NUM_NAMINGS`."""
    named = int(parts.named[0])
    return (named > 0) * (1 + (np.arange(NUM_DISTANCES) == named)).astype(np.int64)


def distance_class(units: int) -> int:
    """Class of a distance in units; see `NUM_DISTANCES`."""
    return units if units < NUM_DISTANCES - 2 else NUM_DISTANCES - 2 + (units >= 128)


def _propose(parts: Sections, settings: Settings, count: int, first_generated: int) -> None:
    """Updates `proposed` and `odds` after `count` tokens."""
    known = np.flatnonzero(parts.found[0])
    similar, exact, distances = parts.found[:, known]
    last = parts.tokens[front_of(count, len(parts.similar))]
    classes = len(settings.lengths)
    sizes = (classes, classes, NUM_DISTANCES, NUM_RECORDS, NUM_NAMINGS - 1, NUM_DISTANCES)
    tables = np.split(settings.gates, np.cumsum(sizes))
    odds = tables[0][settings.lengths.searchsorted(similar, side="right") - 1]
    odds *= tables[1][settings.lengths.searchsorted(exact, side="right") - 1]
    odds *= tables[2][known]
    odds *= tables[3][records(parts)[known]]
    naming = namings(parts)[known]
    odds *= np.where(naming == 2, tables[5][known], tables[4][np.minimum(naming, 1)])
    odds *= tables[6][settings.families.searchsorted(last, side="right") - 1]
    apart = (naming == 2) & bool(parts.named[1])
    bounds = settings.least_imposed, settings.most_imposed
    own = (odds[apart] * settings.imposed).clip(*bounds)
    odds[apart] = 0
    generated = count - distances >= first_generated
    total = _sum(odds)
    scale = min(settings.strength / math.sqrt(total), settings.most / total) if total else 0.0
    odds *= scale
    total = _sum(odds[generated])
    if total > settings.most_generated:
        odds[generated] *= settings.most_generated / total
    odds[apart] = own
    sums: dict[int, float] = {}
    for token, value in zip(followers(parts, count)[known].tolist(), odds.tolist(), strict=True):
        if value > 0:
            sums[token] = sums.get(token, 0.0) + value
    parts.proposed[: len(sums)] = list(sums)
    parts.odds[: len(sums)] = list(sums.values())
    parts.proposed[-1] = len(sums)


def _sum(values: NDArray[np.float64]) -> float:
    """The sum in this order, as in compiled code; `np.sum` adds pairs, and `sum` rounds less."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def mix(
    memory: NDArray[np.int64],
    reach: int,
    logits: NDArray[np.float32],
    tokens: NDArray[np.int64],
    factor: float,
) -> NDArray[np.float64]:
    """See `Pointer.mix`; `factor` is its `memory`."""
    parts = sections(memory, reach)
    scores = logits[tokens].astype(np.float64)
    scores -= scores.max()
    total = 0.0
    for score in scores.tolist():  # in this order, and by the same function as compiled code
        total += math.exp(score)
    number = parts.proposed[-1]
    for token, odds in zip(parts.proposed[:number], parts.odds[:number].tolist(), strict=True):
        place = int(tokens.searchsorted(token))
        if place < len(tokens) and tokens[place] == token:
            weight = math.exp(float(scores[place])) + factor * odds * total
            if weight > 0:  # neither of them underflows
                scores[place] = math.log(weight)
    return scores
