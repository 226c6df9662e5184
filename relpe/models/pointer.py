"""A pointer into the sequence so far, whose proposals are mixed with a decoder's predictions.

A decoder with a small or constant state forgets details of a sequence; the sequence itself does
not. A pointer matches the end of the sequence with earlier places, its *sources*, and proposes the
tokens that followed them. Sequences consist of units (bars of music, lines of text): each distance
in units has one source, the place with the longest match. The mixture is normalised:

    p(x) = (softmax(logits)(x) + sum of exp(g) over sources that propose x) / (1 + sum of exp(g))

The log-odds g of a source are a sum of entries of small tables: by the length of the match, by the
alignment of its distance to phrases of 2, 4, 8 and 16 units, by how well sources at that distance
have predicted lately, and by the family of the last token. `relpe-train fit-pointer` fits the
tables to held-out sequences; the weights of the decoder stay as they are.

Sources: Merity et al. (2017), section 2.2: mixture of softmax and pointer; Grave, Joulin and
Usunier (2017), section 3: a cache that needs no training of the model; Akyürek et al. (2024),
section 6: matches of n-grams as attention.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 2**15 - 2
"""Matches are counted up to this length, in tokens."""
NUM_LENGTHS = 26
"""Half-octave classes of lengths: 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15, ..., 6,144 and more."""
NUM_DISTANCES = 66
"""Classes of distances in units: 0 to 63, 64 to 127, 128 and more."""
NUM_RECORDS = 10
"""Classes of track records: equal parts of 0 to 1."""
NUM_ALIGNMENTS = 6
"""Classes of distances by the largest power of two that divides them: distance 0, then 1, 2, 4, 8,
and 16 or more; distances of 64 and more count as odd."""

_FIRST_LENGTHS = [0, 1, *(2**octave * half // 2 for octave in range(1, 13) for half in (2, 3))]
LENGTH_CLASSES = np.searchsorted(_FIRST_LENGTHS, np.arange(LONGEST + 1), side="right") - 1
"""Class of each length of a match."""
ALIGNMENTS = np.array([0, *(min(d & -d, 16).bit_length() for d in range(1, 64)), 1, 1])
"""Class of each class of distances by its alignment."""


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Tables whose entries sum to the log-odds of a source against the decoder."""

    similar: tuple[float, ...] = tuple(0.3 * index - 6 for index in range(NUM_LENGTHS))
    """By class of the length of the tolerant match."""
    exact: tuple[float, ...] = (0.0,) * NUM_LENGTHS
    """By class of the length of the exact match at the same place."""
    alignment: tuple[float, ...] = (0.0,) * NUM_ALIGNMENTS
    """By class of the distance in units."""
    record: tuple[float, ...] = (0.0,) * NUM_RECORDS
    """By class of the track record."""
    family: tuple[float, ...] = (0.0,)
    """By the family of the last token."""
    generated: float = 0.0
    """Added where the proposed token was generated: it is not part of the prompt."""

    def __post_init__(self) -> None:
        sizes = (NUM_LENGTHS, NUM_LENGTHS, NUM_ALIGNMENTS, NUM_RECORDS)
        for name, size in zip(("similar", "exact", "alignment", "record"), sizes, strict=True):
            if len(getattr(self, name)) != size:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries, expected {size}")
        values = [value for one in fields(self) for value in np.ravel(getattr(self, one.name))]
        if not np.isfinite(values).all() or max(values) > MOST_ODDS:
            raise ValueError(f"entries of the gates must be finite and at most {MOST_ODDS}")


MOST_ODDS = 50.0
"""Largest entry of a gate, far above all that are fitted, so that exponentials are finite."""


@dataclass(frozen=True, kw_only=True)
class PointerConfig:
    """What a pointer compares, and its fitted gates."""

    reach: int = 16_384
    """Largest distance to a source, in tokens."""
    unit: int | None = None
    """Id of the token that begins a unit; None: the sequence is one unit, with one source."""
    ignored: tuple[tuple[int, int], ...] = ()
    """Ranges of ids, first and stop, whose differences a tolerant match ignores."""
    families: tuple[int, ...] = (0,)
    """First id of each family of tokens, ascending from 0."""
    recent: int = 32
    """Time constant of the track record, in informative tokens (those outside `ignored`)."""
    gates: GateConfig = GateConfig()

    def __post_init__(self) -> None:
        for name in ("reach", "recent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.families[:1] != (0,) or list(self.families) != sorted(set(self.families)):
            raise ValueError(f"families are {self.families}, expected ids ascending from 0")
        if len(self.gates.family) != len(self.families):
            raise ValueError(
                f"gates.family has {len(self.gates.family)} entries, expected one for each of the "
                f"{len(self.families)} families"
            )


class Sources(NamedTuple):
    """The source of each distance class, (66,) each."""

    tokens: NDArray[np.int64]
    """What each proposes; -1 where nothing matches."""
    similar: NDArray[np.int64]
    """Length of the tolerant match: one more for each token that agrees, up to ignored differences,
    and halved (rounded down) by each that does not; 0: no match, and no source."""
    exact: NDArray[np.int64]
    """Length of the exact match, which ends at the first difference."""
    distances: NDArray[np.int64]
    """From the next token back to the proposed one, in tokens."""
    records: NDArray[np.int64]
    """Class of the track record, 0 to `NUM_RECORDS` - 1: the share of the recent informative tokens
    that sources at that distance have proposed, up to ignored differences."""


class Proposals(NamedTuple):
    """Tokens that may come next, (n,) each; a token may occur several times."""

    tokens: NDArray[np.int64]
    odds: NDArray[np.float64]
    """Odds against the decoder, above 0."""


class Buffers(NamedTuple):
    """The tokens within reach, and how long the end of the sequence matches earlier places.

    The first three are (2 reach,) and hold the newest token at an index called front, older ones
    after it. `similar` and `exact` are (reach,): index i is for the place i + 1 tokens before.
    """

    tokens: NDArray[np.int32]
    keys: NDArray[np.int32]
    """What a tolerant match compares: the first id of an ignored range in place of its others."""
    units: NDArray[np.int32]
    """Number of the unit of each token."""
    similar: NDArray[np.int16]
    """Length of the tolerant match, by keys."""
    exact: NDArray[np.int16]
    """Length of the exact match, by tokens."""
    found: NDArray[np.int64]
    """(3, 66): `similar`, `exact` and `distances` of `Sources`."""


def match(buffers: Buffers, front: int, seen: int) -> None:
    """Updates `similar`, `exact` and `found` for the token at `front`, by NumPy.

    `seen` is the number of tokens before it that are within reach. The compiled version gives the
    same numbers.
    """
    before = slice(front + 1, front + 1 + seen)
    similar, exact = buffers.similar[:seen], buffers.exact[:seen]
    equal = buffers.keys[before] == buffers.keys[front]
    similar[:] = np.where(equal, np.minimum(similar + 1, LONGEST), similar >> 1)
    equal = buffers.tokens[before] == buffers.tokens[front]
    exact[:] = np.where(equal, np.minimum(exact + 1, LONGEST), 0)
    distances = buffers.units[front] - buffers.units[before]  # never falls
    edges = np.searchsorted(distances, [*range(NUM_DISTANCES - 1), 128]).tolist()
    buffers.found[:] = 0
    for distance, (first, stop) in enumerate(pairwise([*edges, seen])):
        if first < stop:
            place = first + int(similar[first:stop].argmax())  # the nearest of several
            if similar[place]:
                found = similar[place], exact[place], place + 1
                buffers.found[:, distance] = found


def fastest_match() -> Callable[[Buffers, int, int], None]:
    """`match`, compiled where Numba is installed."""
    try:
        from relpe.models.pointer_kernel import match_arrays
    except (ImportError, RuntimeError):  # RuntimeError: Numba found no folder for its cache
        return match
    return lambda buffers, front, seen: match_arrays(*buffers, front, seen, LONGEST, NUM_DISTANCES)


class Pointer:
    """The pointer of one sequence; extended in place, forked by `copy`.

    A token takes time in proportion to the reach at most, however long the sequence: it updates the
    length of the match at each distance.
    """

    def __init__(self, config: PointerConfig) -> None:
        self.config = config
        self.count = 0
        """Tokens so far."""
        self._match = fastest_match()
        self._keys = {id_: first for first, stop in config.ignored for id_ in range(first, stop)}
        gates = config.gates
        self._by_similar = np.array(gates.similar)[LENGTH_CLASSES]
        self._by_exact = np.array(gates.exact)[LENGTH_CLASSES]
        self._by_distance = np.array(gates.alignment)[ALIGNMENTS]
        self._by_record = np.array(gates.record)
        reach = config.reach
        self._front = reach
        self._buffers = Buffers(
            *(np.zeros(2 * reach, np.int32) for _ in range(3)),
            *(np.zeros(reach, np.int16) for _ in range(2)),
            np.zeros((3, NUM_DISTANCES), np.int64),
        )
        self._unit = 0
        self._first_generated = math.inf
        self._hits = np.zeros(NUM_DISTANCES)
        self._tries = 0.0

    def copy(self) -> Pointer:
        """A pointer that continues on its own."""
        new = object.__new__(Pointer)
        new.__dict__ |= self.__dict__
        new._buffers = Buffers(*(array.copy() for array in self._buffers))
        return new

    def end_prompt(self) -> None:
        """Marks the tokens that follow as generated."""
        self._first_generated = self.count

    def extend(self, tokens: Iterable[int]) -> None:
        """Appends tokens."""
        buffers, reach = self._buffers, self.config.reach
        kept = 1 - 1 / self.config.recent
        for token in tokens:
            key = self._keys.get(token, token)
            if key == token and self.count and token not in self._keys:
                self._hits = kept * self._hits + (self._proposed(buffers.keys) == key)
                self._tries = kept * self._tries + 1
            if not self._front:
                for array in buffers[:3]:
                    array[reach:] = array[:reach]
                self._front = reach
            self._front -= 1
            self._unit += token == self.config.unit
            for array, value in zip(buffers[:3], (token, key, self._unit), strict=True):
                array[self._front] = value
            self._match(buffers, self._front, min(self.count, reach))
            self.count += 1

    def _proposed(self, values: NDArray[np.int32]) -> NDArray[np.int64]:
        """The value of what each source proposes (66,), or -1."""
        distances = self._buffers.found[2]
        proposed = values[self._front - 1 + distances].astype(np.int64)
        proposed[distances == 0] = -1
        return proposed

    def sources(self) -> Sources:
        """The sources of the next token."""
        records = np.minimum(self._hits * (NUM_RECORDS / max(self._tries, 1.0)), NUM_RECORDS - 1)
        similar, exact, distances = self._buffers.found.copy()
        tokens = self._proposed(self._buffers.tokens)
        return Sources(tokens, similar, exact, distances, records.astype(np.int64))

    @property
    def family(self) -> int:
        """Index of the family of the last token."""
        return bisect_right(self.config.families, int(self._buffers.tokens[self._front])) - 1

    def proposals(self) -> Proposals:
        """What may come next; empty where nothing matches."""
        tokens, similar, exact, distances, records = self.sources()
        known = np.flatnonzero(similar)
        if not len(known):
            return Proposals(known, np.zeros(0))
        gates = self.config.gates
        log_odds = self._by_similar[similar[known]] + self._by_exact[exact[known]]
        log_odds += self._by_distance[known] + self._by_record[records[known]]
        log_odds += gates.family[self.family]
        log_odds[self.count - distances[known] >= self._first_generated] += gates.generated
        return Proposals(tokens[known], np.exp(log_odds))


def mixture(
    log_probabilities: NDArray[np.float64],
    tokens: NDArray[np.integer],
    proposals: Proposals,
    memory: float = 1.0,
) -> NDArray[np.float64]:
    """Log-probabilities (n,) of `tokens` (n,), mixed with the proposals that are among them.

    `tokens` rise, and `log_probabilities` (n,) are normalised, and so is the result. `memory` is a
    factor of the odds; 0 leaves the probabilities as they are.
    """
    places = np.searchsorted(tokens, proposals.tokens)
    places[places == len(tokens)] = 0
    among = tokens[places] == proposals.tokens
    odds = np.bincount(places[among], memory * proposals.odds[among], len(tokens))
    proposed = np.flatnonzero(odds)
    mixed = log_probabilities.copy()
    mixed[proposed] = np.logaddexp(mixed[proposed], np.log(odds[proposed]))
    return mixed - math.log1p(odds.sum())
