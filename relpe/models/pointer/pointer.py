"""The pointer of a sequence, which finds its sources and mixes their proposals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.models.pointer.config import (
    ALIGNMENTS,
    LEAST_IMPOSED,
    LENGTH_CLASSES,
    MOST_IDS,
    MOST_IMPOSED,
    NUM_DISTANCES,
    NUM_RECORDS,
    RANGES,
    PointerConfig,
)

if TYPE_CHECKING:
    from relpe.models.pointer.arithmetic import Sections, Settings


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

    def __init__(self, config: PointerConfig) -> None:
        from relpe.models.pointer import arithmetic  # imports Numba: takes half a second

        self.config = config
        self.count = 0
        """Tokens so far."""
        self._arithmetic = arithmetic
        self._settings = _settings(config)
        self.temperatures = _temperatures(config.balance.temperature, config.families)
        """Factors of the temperature of sampling, by token (`MOST_IDS`,); None: 1 for all."""
        self._memory = np.zeros(arithmetic.memory_size(config.reach, NUM_DISTANCES), np.int64)
        self._sections().sources[0] = -1
        self._first_generated = 2**62

    def _sections(self) -> Sections:
        return self._arithmetic.sections(self._memory, self.config.reach)

    def copy(self) -> Pointer:
        """Return a pointer that continues on its own."""
        new = object.__new__(Pointer)
        new.__dict__ |= self.__dict__
        new._memory = self._memory.copy()
        return new

    def end_prompt(self) -> None:
        """Mark the tokens that follow as generated."""
        self._first_generated = self.count

    def extend(self, tokens: Sequence[int] | NDArray[np.integer], *, imposed: bool = False) -> None:
        """Append tokens (n,), ids from 0 to `MOST_IDS` - 1.

        `imposed`: a unit that they name is to come back as closely as possible; see
        `BalanceConfig.imposed`.
        """
        added = np.array(tokens, np.int64)
        if not len(added):
            return
        place = self.config.reach, self._settings, added, self.count, self._first_generated
        self._arithmetic.read(self._memory, *place, imposed)
        self.count += len(added)

    def sources(self) -> Sources:
        """Return the sources of the next token."""
        return Sources(*self._sections().sources.copy())

    def proposals(self) -> Proposals:
        """Return what may come next; empty where nothing matches."""
        parts = self._sections()
        number = parts.proposed[-1]
        return Proposals(parts.proposed[:number].copy(), parts.odds[:number].copy())

    def mix(
        self, logits: NDArray[np.floating], tokens: NDArray[np.integer], memory: float = 1.0
    ) -> NDArray[np.float64]:
        """Return log-probabilities (n,) of `tokens` (n,) by the mixture, up to a common constant.

        `tokens`, ascending and at least one, are those that may come next. The softmax of their
        logits, out of (v,), is mixed with the proposals that are among them. `memory` is a factor
        of the odds; 0: the softmax alone.
        """
        scores = np.ascontiguousarray(logits, np.float32)
        among = np.ascontiguousarray(tokens, np.int64)
        return self._arithmetic.mix(self._memory, self.config.reach, scores, among, float(memory))


def warm_up() -> None:
    """Compile the arithmetic, if Numba is installed: some seconds the first time on a machine."""
    pointer = Pointer(PointerConfig(reach=1))
    pointer.extend([0])
    pointer.mix(np.zeros(1, np.float32), np.zeros(1, np.int64))


@lru_cache(maxsize=8)
def _temperatures(
    factors: tuple[float, ...], families: tuple[int, ...]
) -> NDArray[np.float64] | None:
    if not factors:
        return None
    by_token = np.repeat(np.array(factors, np.float64), np.diff([*families, MOST_IDS]))
    by_token.setflags(write=False)  # all pointers of this config share it
    return by_token


def _settings(config: PointerConfig) -> Settings:
    from relpe.models.pointer.arithmetic import Settings

    gates, balance = config.gates, config.balance
    units = np.arange(NUM_DISTANCES)
    aligned = np.isin(units, (4, 8, 12)) * 1.0 - ((ALIGNMENTS == 1) & (units < 64))
    unnamed = balance.aligned * aligned + balance.near * (units < 4)
    by_distance = np.array(gates.distance)[RANGES] + np.array(gates.alignment)[ALIGNMENTS] + unnamed
    by_naming = *gates.named[:2], *(gates.named[2] + balance.named - unnamed)
    tables = gates.similar, gates.exact, by_distance, gates.record, by_naming, gates.family
    odds = np.zeros((len(tables), max(map(len, tables))))
    no_change = (0.0,) * len(config.families)
    for row, table in zip(odds, tables, strict=True):
        row[: len(table)] = np.exp(table)
    return Settings(
        -1 if config.unit is None else config.unit,
        config.names or (0, 0),
        NUM_RECORDS,
        1 - 1 / config.recent,
        math.exp(balance.strength),
        math.exp(balance.most),
        math.exp(balance.most_generated),
        math.exp(balance.imposed),
        math.exp(LEAST_IMPOSED),
        math.exp(MOST_IMPOSED),
        np.exp(balance.proposed or no_change),
        np.array(balance.run or no_change),
        np.array(config.ignored, np.int64).reshape(-1, 2),
        np.array(config.families, np.int64),
        LENGTH_CLASSES,
        odds,
    )
