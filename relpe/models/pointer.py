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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple, Protocol

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
    """What a pointer knows of its sequence, in arrays: 12 bytes for each token of the reach."""

    tokens: NDArray[np.int32]
    """(2 reach,): the newest token is at the index `front_of` its number, older ones after it."""
    similar: NDArray[np.int16]
    """(reach,): length of the tolerant match; index i is for the place i + 1 tokens before."""
    exact: NDArray[np.int16]
    """(reach,): length of the exact match at the same places."""
    starts: NDArray[np.int64]
    """(128,): number of tokens before the present unit, before the one that precedes it, ..."""
    found: NDArray[np.int64]
    """(3, 66): `similar`, `exact` and `distances` of `Sources`."""
    hits: NDArray[np.float64]
    """(67,): decaying number of informative tokens that each source has proposed; at the end, the
    decaying number of all informative tokens."""


class Tables(NamedTuple):
    """Gates by value instead of by class."""

    similar: NDArray[np.float64]
    """(`LONGEST` + 1,): by length."""
    exact: NDArray[np.float64]
    """(`LONGEST` + 1,): by length."""
    distance: NDArray[np.float64]
    """(66,): by class of distances."""
    record: NDArray[np.float64]
    """By class of track records."""
    family: NDArray[np.float64]
    """By family."""
    families: NDArray[np.int64]
    """First id of each family."""
    generated: float

    @classmethod
    def of(cls, config: PointerConfig) -> Tables:
        """The tables of a pointer."""
        gates = config.gates
        return cls(
            np.array(gates.similar)[LENGTH_CLASSES],
            np.array(gates.exact)[LENGTH_CLASSES],
            np.array(gates.alignment)[ALIGNMENTS],
            np.array(gates.record),
            np.array(gates.family),
            np.array(config.families),
            gates.generated,
        )


class Kernel(Protocol):
    """The work for each token, by NumPy or compiled; both give the same numbers."""

    def read(
        self,
        buffers: Buffers,
        tokens: NDArray[np.int64],
        count: int,
        unit: int,
        ignored: NDArray[np.int64],
        kept: float,
    ) -> None:
        """Updates `buffers` for `tokens` (n,), of which `count` others come before.

        `unit` is the id that begins a unit, or -1; `ignored` (n, 2) are the ranges of the config;
        `kept` is the factor of `hits` at each informative token.
        """
        ...

    def propose(
        self, buffers: Buffers, tables: Tables, count: int, first_generated: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Tokens (n,) that sources propose, and their log-odds (n,), after `count` tokens."""
        ...


class NumpyKernel:
    """`Kernel` by NumPy: the reference, used where Numba is not installed."""

    def read(
        self,
        buffers: Buffers,
        tokens: NDArray[np.int64],
        count: int,
        unit: int,
        ignored: NDArray[np.int64],
        kept: float,
    ) -> None:
        """See `Kernel.read`."""
        reach = len(buffers.similar)
        for before, token in enumerate(tokens.tolist(), count):
            ranges = [(first, stop) for first, stop in ignored.tolist() if first <= token < stop]
            if before and not ranges:
                buffers.hits[:] *= kept
                buffers.hits[:-1] += _proposed(buffers, before) == token
                buffers.hits[-1] += 1
            front = front_of(before + 1, reach)
            if before and not before % reach:
                buffers.tokens[reach:] = buffers.tokens[:reach]
            buffers.tokens[front] = token
            if token == unit:
                buffers.starts[1:] = buffers.starts[:-1]
                buffers.starts[0] = before
            first, stop = ranges[0] if ranges else (token, token + 1)
            _match(buffers, before, front, first, stop)

    def propose(
        self, buffers: Buffers, tables: Tables, count: int, first_generated: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Kernel.propose`."""
        similar, exact, distances = buffers.found
        known = np.flatnonzero(similar)
        last = buffers.tokens[front_of(count, len(buffers.similar))]
        family = tables.families.searchsorted(last, side="right") - 1
        log_odds = tables.similar[similar[known]] + tables.exact[exact[known]]
        log_odds += tables.distance[known]
        log_odds += tables.record[_records(buffers)[known]]
        log_odds += tables.family[family]
        log_odds[count - distances[known] >= first_generated] += tables.generated
        return _proposed(buffers, count)[known], log_odds


def front_of(count: int, reach: int) -> int:
    """Index of the newest of `count` tokens in `Buffers.tokens`.

    It falls from reach - 1 to 0; then the tokens are moved from the first half to the second.
    """
    return reach - 1 - (count - 1) % reach


def _match(buffers: Buffers, count: int, front: int, first: int, stop: int) -> None:
    """Updates `similar`, `exact` and `found` for the token at `front`, after `count` others.

    A tolerant match at this token accepts ids from `first` to `stop`.
    """
    seen = min(count, len(buffers.similar))
    before = buffers.tokens[front + 1 : front + 1 + seen]
    similar, exact = buffers.similar[:seen], buffers.exact[:seen]
    equal = (before >= first) & (before < stop)
    similar[:] = np.where(equal, np.minimum(similar, LONGEST - 1) + 1, similar >> 1)
    equal = before == buffers.tokens[front]
    exact[:] = np.where(equal, np.minimum(exact, LONGEST - 1) + 1, 0)
    ends = count - buffers.starts[[*range(NUM_DISTANCES - 2), -1]]
    edges = [0, *np.minimum(ends, seen).tolist(), seen]
    buffers.found[:] = 0
    for distance, (nearest, end) in enumerate(pairwise(edges)):
        if nearest < end:
            place = nearest + int(similar[nearest:end].argmax())  # the nearest of several
            if similar[place]:
                buffers.found[:, distance] = similar[place], exact[place], place + 1


def _proposed(buffers: Buffers, count: int) -> NDArray[np.int64]:
    """What each source proposes (66,) after `count` tokens, or -1."""
    distances = buffers.found[2]
    front = front_of(count, len(buffers.similar))
    return np.where(distances, buffers.tokens[front - 1 + distances], np.int64(-1))


def _records(buffers: Buffers) -> NDArray[np.int64]:
    """Class of the track record of each source (66,)."""
    shares = buffers.hits[:-1] * (NUM_RECORDS / max(float(buffers.hits[-1]), 1.0))
    return np.minimum(shares, NUM_RECORDS - 1).astype(np.int64)


def fastest_kernel() -> Kernel:
    """A kernel compiled by Numba if possible, otherwise by NumPy."""
    try:
        from relpe.models.pointer_kernel import CompiledKernel
    except (ImportError, RuntimeError):  # RuntimeError: Numba found no folder for its cache
        return NumpyKernel()
    return CompiledKernel()


class Pointer:
    """The pointer of one sequence; extended in place, forked by `copy`.

    Its state takes 12 bytes for each token of the reach, and is allocated at once. A token takes
    time in proportion to the reach at most, however long the sequence: it updates the length of the
    match at each distance.
    """

    def __init__(self, config: PointerConfig, kernel: Kernel | None = None) -> None:
        """`kernel` is the fastest one by default."""
        self.config = config
        self.count = 0
        """Tokens so far."""
        self._kernel = fastest_kernel() if kernel is None else kernel
        self._tables = Tables.of(config)
        self._unit = -1 if config.unit is None else config.unit
        self._ignored = np.array(config.ignored, np.int64).reshape(-1, 2)
        self._kept = 1 - 1 / config.recent
        self._first_generated = 2**62
        self._buffers = Buffers(
            np.zeros(2 * config.reach, np.int32),
            np.zeros(config.reach, np.int16),
            np.zeros(config.reach, np.int16),
            np.zeros(2 * (NUM_DISTANCES - 2), np.int64),
            np.zeros((3, NUM_DISTANCES), np.int64),
            np.zeros(NUM_DISTANCES + 1),
        )

    def copy(self) -> Pointer:
        """A pointer that continues on its own."""
        new = object.__new__(Pointer)
        new.__dict__ |= self.__dict__
        new._buffers = Buffers(*(array.copy() for array in self._buffers))
        return new

    def end_prompt(self) -> None:
        """Marks the tokens that follow as generated."""
        self._first_generated = self.count

    def extend(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Appends tokens (n,), ids from 0 to 2**31 - 2."""
        added = np.array(tokens, np.int64)
        self._kernel.read(
            self._buffers, added, self.count, self._unit, self._ignored, self._kept
        )
        self.count += len(added)

    def sources(self) -> Sources:
        """The sources of the next token."""
        similar, exact, distances = self._buffers.found.copy()
        tokens = _proposed(self._buffers, self.count)
        return Sources(tokens, similar, exact, distances, _records(self._buffers))

    def proposals(self) -> Proposals:
        """What may come next; empty where nothing matches."""
        tokens, log_odds = self._kernel.propose(
            self._buffers, self._tables, self.count, self._first_generated
        )
        return Proposals(tokens, np.exp(log_odds))


def mixture(
    log_probabilities: NDArray[np.float64],
    tokens: NDArray[np.integer],
    proposals: Proposals,
    memory: float = 1.0,
) -> NDArray[np.float64]:
    """Log-probabilities (n,) of `tokens` (n,), mixed with the proposals that are among them.

    `tokens` ascend, at least one. `log_probabilities` (n,) are normalised, and so is the result.
    `memory` is a factor of the odds; 0 leaves the probabilities as they are.
    """
    odds = np.bincount(proposals.tokens, proposals.odds, tokens[-1] + 1)[tokens]
    odds *= memory
    places = odds.nonzero()[0]
    mixed = log_probabilities.copy()
    mixed[places] = np.logaddexp(mixed[places], np.log(odds[places]))
    mixed -= math.log1p(np.add.reduce(odds))
    return mixed
