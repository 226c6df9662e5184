"""A pointer into the sequence so far, whose proposals are mixed with a decoder's predictions.

A decoder with a small or constant state forgets details of a sequence; the sequence itself does
not. A pointer matches the end of the sequence with earlier places, its *sources*, and proposes the
tokens that followed them. Sequences consist of units (bars of music, lines of text): each distance
in units has one source, the place with the longest match. With the sum S of exp(g) over all
sources, and S(x) over those that propose x, the mixture is

    p(x) = (softmax(logits)(x) + S(x) / sqrt(S)) / (1 + sqrt(S))

The log-odds g of a source are a sum of entries of small tables: by the length of the match, by the
distance and its alignment to phrases of 2, 4, 8 and 16 units, by how well sources at that distance
have predicted lately, by whether the sequence itself has named the unit of the source, and by the
family of the last token. `relpe-train fit-pointer` fits the
tables to held-out sequences; the weights of the decoder stay as they are. The root, because sources
are not independent: several often propose a token for the same reason. In generation sqrt(S) is
bounded.

Sources: Merity et al. (2017), section 2.2: mixture of softmax and pointer; Grave, Joulin and
Usunier (2017), section 3: a cache that needs no training of the model; Akyürek et al. (2024),
section 6: matches of n-grams as attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.models import pointer_numpy
from relpe.models.pointer_numpy import (
    LONGEST,
    NUM_DISTANCES,
    NUM_NAMINGS,
    NUM_RECORDS,
    Settings,
    followers,
    memory_size,
    namings,
    records,
    sections,
)

NUM_LENGTHS = 26
"""Half-octave classes of lengths: 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15, ..., 6,144 and more."""
NUM_ALIGNMENTS = 6
"""Classes of distances by the largest power of two that divides them: distance 0, then 1, 2, 4, 8,
and 16 or more; distances of 64 and more count as odd."""
MOST_REACH, MOST_IDS = 2**20, 2**16
"""Limits of the reach, and of token ids."""
NUM_RANGES = 13
"""Half-octave classes of distances in units: 0, 1, 2, 3, 4-5, 6-7, 8-11, ..., 64 and more."""

_FIRST_LENGTHS = [0, 1, *(2**octave * half // 2 for octave in range(1, 13) for half in (2, 3))]
LENGTH_CLASSES = np.searchsorted(_FIRST_LENGTHS, np.arange(LONGEST + 1), side="right") - 1
"""Class of each length of a match."""
RANGES = np.minimum(LENGTH_CLASSES[:NUM_DISTANCES], NUM_RANGES - 1)
"""Class of each distance by its size."""
ALIGNMENTS = np.array([0, *(min(d & -d, 16).bit_length() for d in range(1, 64)), 1, 1])
"""Class of each distance by its alignment."""


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Tables whose entries sum to the log-odds of a source against the decoder."""

    similar: tuple[float, ...] = tuple(0.3 * index - 6 for index in range(NUM_LENGTHS))
    """By class of the length of the tolerant match."""
    exact: tuple[float, ...] = (0.0,) * NUM_LENGTHS
    """By class of the length of the exact match at the same place."""
    distance: tuple[float, ...] = (0.0,) * NUM_RANGES
    """By class of the distance in units."""
    alignment: tuple[float, ...] = (0.0,) * NUM_ALIGNMENTS
    """By class of the alignment of that distance."""
    record: tuple[float, ...] = (0.0,) * NUM_RECORDS
    """By class of the track record."""
    named: tuple[float, ...] = (0.0,) * NUM_NAMINGS
    """By what the sequence has named: nothing, another unit, the unit of the source."""
    family: tuple[float, ...] = (0.0,)
    """By the family of the last token."""

    def __post_init__(self) -> None:
        for name, size in SIZES.items():
            if len(getattr(self, name)) != size:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries, expected {size}")
        values = np.concatenate([np.ravel(getattr(self, one.name)) for one in fields(self)])
        if not np.isfinite(values).all() or values.max() > MOST_ODDS:
            raise ValueError(f"entries of the gates must be finite and at most {MOST_ODDS}")


SIZES = {
    "similar": NUM_LENGTHS,
    "exact": NUM_LENGTHS,
    "distance": NUM_RANGES,
    "alignment": NUM_ALIGNMENTS,
    "record": NUM_RECORDS,
    "named": NUM_NAMINGS,
}
"""Entries of the tables of a gate; `family` has one for each family."""
MOST_ODDS = 50.0
"""Largest entry of a gate, far above all that are fitted, so that exponentials are finite."""


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """Log-odds that generation adds to the gates, and their upper bound.

    Gates are fitted to real sequences, which never contain the model's own tokens. In generation a
    copy of a copy confirms itself, and a wrong token ends a return that a real sequence would have
    continued. The balance makes up for both, so that as much comes back as in real sequences.
    """

    strength: float = 0.0
    """Added to the log-odds of all sources together."""
    most: float = MOST_ODDS
    """Upper bound of these log-odds. However long a copy, the decoder can always end it."""
    most_generated: float = MOST_ODDS
    """Upper bound of the log-odds of all sources together that propose generated tokens, which are
    not part of the prompt. A phrase of the model's own then comes back varied, not note for note,
    as the decoder takes some of its tokens."""
    aligned: float = 0.0
    """Added at distances of 4, 8 and 12 units, and subtracted at odd ones below 64."""
    near: float = 0.0
    """Added at distances of less than four units."""
    named: float = 0.0
    """Added for the unit that the sequence has named."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if not abs(getattr(self, one.name)) <= MOST_ODDS:
                raise ValueError(
                    f"{one.name} is {getattr(self, one.name)}, expected -{MOST_ODDS} to {MOST_ODDS}"
                )


@dataclass(frozen=True, kw_only=True)
class PointerConfig:
    """What a pointer compares, and its fitted gates."""

    reach: int = 16_384
    """Largest distance to a source, in tokens."""
    unit: int | None = None
    """Id of the token that begins a unit; None: the sequence is one unit, with one source."""
    ignored: tuple[tuple[int, int], ...] = ()
    """Ranges of ids, first and stop, whose differences a tolerant match ignores."""
    names: tuple[int, int] | None = None
    """Range of ids, first and stop, that name an earlier unit: the first id names the unit before
    the present one, the next id the unit before that, and so on. Sources in that unit have another
    gate until the present unit ends."""
    families: tuple[int, ...] = (0,)
    """First id of each family of tokens, ascending from 0."""
    recent: int = 64
    """Time constant of the track record, in informative tokens (those outside `ignored`)."""
    gates: GateConfig = GateConfig()
    balance: BalanceConfig = BalanceConfig()
    """Of generation; likelihood is measured without it."""

    def __post_init__(self) -> None:
        for name, most in (("reach", MOST_REACH), ("recent", MOST_REACH)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 to {most}")
        if self.unit is not None and self.unit < 0:
            raise ValueError(f"unit is {self.unit}, expected an id of at least 0")
        firsts, stops = [first for first, _ in self.ignored], [stop for _, stop in self.ignored]
        overlap = any(a > b for a, b in zip([0, *stops], firsts, strict=False))
        if overlap or any(a >= b for a, b in self.ignored):
            raise ValueError(f"ignored is {self.ignored}, expected ascending ranges of ids")
        if self.names is not None and not 0 <= self.names[0] < self.names[1]:
            raise ValueError(f"names are {self.names}, expected the first id and the stop")
        if self.families[:1] != (0,) or list(self.families) != sorted(set(self.families)):
            raise ValueError(f"families are {self.families}, expected ids ascending from 0")
        if len(self.gates.family) != len(self.families):
            raise ValueError(
                f"gates.family has {len(self.gates.family)} entries, expected one for each of the "
                f"{len(self.families)} families"
            )

    def check(self, vocabulary_size: int) -> None:
        """Raises a ValueError if ids of the config are not in a vocabulary, or it is too large."""
        if vocabulary_size > MOST_IDS:
            raise ValueError(
                f"vocabulary_size is {vocabulary_size}, expected at most {MOST_IDS} with a pointer"
            )
        unit = 0 if self.unit is None else self.unit
        ranges = (*self.ignored, self.names or (0, 1))
        largest = max(unit, *self.families, *(stop - 1 for _, stop in ranges))
        if largest >= vocabulary_size:
            raise ValueError(
                f"pointer has the id {largest}, expected ids below vocabulary_size, "
                f"{vocabulary_size}"
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
    named: NDArray[np.int64]
    """Whether the sequence has named a unit: 0: none; 1: another one; 2: the one at that distance.
    """


class Proposals(NamedTuple):
    """Tokens that may come next, (n,) each, all different."""

    tokens: NDArray[np.int64]
    odds: NDArray[np.float64]
    """Odds against the decoder, above 0: the sum over the sources that propose a token."""


class Pointer:
    """The pointer of one sequence; extended in place, forked by `copy`.

    Its state takes 8 bytes for each token of the reach, 0.1 MB by default, and is allocated at
    once. A token takes time in proportion to the reach at most, however long the sequence: it
    updates the length of the match at each distance.
    """

    def __init__(self, config: PointerConfig, kernel: ModuleType | None = None) -> None:
        """`kernel` is the module of the arithmetic, by default `fastest_kernel()`."""
        self.config = config
        self.count = 0
        """Tokens so far."""
        self._kernel = fastest_kernel() if kernel is None else kernel
        self._settings = _settings(config)
        self._memory = np.zeros(memory_size(config.reach), np.int64)
        self._first_generated = 2**62

    def copy(self) -> Pointer:
        """A pointer that continues on its own."""
        new = object.__new__(Pointer)
        new.__dict__ |= self.__dict__
        new._memory = self._memory.copy()
        return new

    def end_prompt(self) -> None:
        """Marks the tokens that follow as generated."""
        self._first_generated = self.count

    def extend(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Appends tokens (n,), ids from 0 to `MOST_IDS` - 1."""
        added = np.array(tokens, np.int64)
        reach, count = self.config.reach, self.count
        self._kernel.read(self._memory, reach, self._settings, added, count, self._first_generated)
        self.count += len(added)

    def sources(self) -> Sources:
        """The sources of the next token."""
        parts = sections(self._memory, self.config.reach)
        similar, exact, distances = parts.found.copy()
        return Sources(
            followers(parts, self.count), similar, exact, distances, records(parts), namings(parts)
        )

    def proposals(self) -> Proposals:
        """What may come next; empty where nothing matches."""
        parts = sections(self._memory, self.config.reach)
        number = int(parts.proposed[-1])
        return Proposals(parts.proposed[:number].copy(), parts.odds[:number].copy())

    def mix(
        self, logits: NDArray[np.floating], tokens: NDArray[np.integer], memory: float = 1.0
    ) -> NDArray[np.float64]:
        """Log-probabilities (n,) of `tokens` (n,) by the mixture, up to a common constant.

        `tokens`, ascending and at least one, are those that may come next. The softmax of their
        logits, out of (v,), is mixed with the proposals that are among them. `memory` is a factor
        of the odds; 0: the softmax alone.
        """
        scores = np.ascontiguousarray(logits, np.float32)
        among = np.ascontiguousarray(tokens, np.int64)
        return self._kernel.mix(self._memory, self.config.reach, scores, among, float(memory))


def fastest_kernel() -> ModuleType:
    """`pointer_kernel` if Numba is installed and can compile it, otherwise `pointer_numpy`."""
    try:
        from relpe.models import pointer_kernel
    except (ImportError, RuntimeError):  # RuntimeError: Numba found no folder for its cache
        return pointer_numpy
    return pointer_kernel


def warm_up() -> None:
    """Compiles the kernel, if Numba is installed: some seconds the first time on a machine."""
    pointer = Pointer(PointerConfig(reach=1))
    pointer.extend([0])
    pointer.mix(np.zeros(1, np.float32), np.zeros(1, np.int64))


def _settings(config: PointerConfig) -> Settings:
    gates, balance = config.gates, config.balance
    by_distance = np.array(gates.distance)[RANGES] + np.array(gates.alignment)[ALIGNMENTS]
    units = np.arange(NUM_DISTANCES)
    aligned = np.isin(units, (4, 8, 12)) * 1.0 - ((ALIGNMENTS == 1) & (units < 64))
    by_distance += balance.aligned * aligned + balance.near * (units < 4)
    by_naming = np.array(gates.named) + np.array([0, 0, balance.named])
    tables = (gates.similar, gates.exact, by_distance, gates.record, by_naming, gates.family)
    return Settings(
        -1 if config.unit is None else config.unit,
        1 - 1 / config.recent,
        math.exp(balance.strength),
        math.exp(balance.most),
        math.exp(balance.most_generated),
        np.array(config.ignored, np.int64).reshape(-1, 2),
        np.array(config.names or (0, 0), np.int64),
        np.array(config.families, np.int64),
        np.array(_FIRST_LENGTHS, np.int64),
        np.exp(np.concatenate(tables)),
    )
