"""Pointer into the sequence so far: proposes tokens that followed the same context before.

A decoder with a small or constant state forgets; the sequence itself does not. A pointer compares
the end of the sequence with every earlier place, and proposes the token that followed the longest
match. Its proposals are mixed with the softmax of the decoder by weights that depend on the length
of the match and a few more features, and that are fitted to held-out sequences:

    p(x) = w_0 softmax(logits)(x) + w_1 [x = c_1] + w_2 [x = c_2],   w = softmax(0, g_1, g_2)

Sources: Merity et al. (2017), sections 2.2 and 2.3, for the mixture with a pointer; Grave, Joulin &
Usunier (2017), section 3, for a cache that needs no training of the model; Akyürek et al. (2024),
section 6, for matches of n-grams as a head.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 2**15 - 2
"""Matches are counted up to this length."""
NUM_BUCKETS = 25
"""Half-octave buckets of lengths and distances: 1, 2, 3, 4-5, 6-7, 8-11, ... 6,144 and more."""


def bucket(value: int) -> int:
    """Half-octave bucket, 0 to `NUM_BUCKETS` - 1, of a length or distance of at least 1."""
    octave = value.bit_length() - 1
    half = (value >> (octave - 1)) & 1 if octave else 0
    return min(2 * octave - (octave > 0) + half, NUM_BUCKETS - 1)


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Log-odds of one proposal against the decoder: the sum of one entry of each table."""

    length: tuple[float, ...] = tuple(-3 + 0.3 * index for index in range(NUM_BUCKETS))
    """By `bucket` of the length of the match."""
    distance: tuple[float, ...] = (0.0,) * NUM_BUCKETS
    """By `bucket` of the distance to the source, in tokens."""
    family: tuple[float, ...] = (0.0,)
    """By the family of the last token."""
    generated: float = 0.0
    """Added if the source is a generated token, not one of the prompt."""

    def __post_init__(self) -> None:
        for name in ("length", "distance"):
            if len(getattr(self, name)) != NUM_BUCKETS:
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries, expected {NUM_BUCKETS}"
                )


@dataclass(frozen=True, kw_only=True)
class PointerConfig:
    """A pointer with its fitted gates."""

    reach: int = 16_384
    """Largest distance to a source, in tokens."""
    ignored: tuple[tuple[int, int], ...] = ()
    """Ranges of ids, first and stop: within one of them, all ids are equal in the second search."""
    families: tuple[int, ...] = (0,)
    """First id of each family of tokens, rising from 0."""
    exact: GateConfig = GateConfig()
    """Of the longest match of all tokens."""
    similar: GateConfig = GateConfig()
    """Of the longest match that ignores differences within the ranges of `ignored`."""

    def __post_init__(self) -> None:
        if self.reach < 1:
            raise ValueError(f"reach is {self.reach}, expected at least 1")
        for gate in (self.exact, self.similar):
            if len(gate.family) != len(self.families):
                raise ValueError(
                    f"family has {len(gate.family)} entries, expected {len(self.families)}, one "
                    "for each of families"
                )


class Match(NamedTuple):
    """The longest match of one search; the nearest one of several."""

    token: int
    """The proposal: what followed the source."""
    length: int
    """Tokens that match."""
    distance: int
    """From the next token back to the proposed one."""


class Proposal(NamedTuple):
    """A token, and its log-odds against the decoder."""

    token: int
    log_odds: float


class Pointer:
    """The sequence of one row, with its matches; extended in place, forked by `copy`.

    A token takes the same time wherever it is: for each distance up to the reach, a search counts
    how many of the last tokens agree with those at that distance before them. A token adds one
    where it agrees, and sets the count to 0 where it does not.
    """

    def __init__(self, config: PointerConfig) -> None:
        self.config = config
        self._keys = _Keys(config.ignored)
        self.count = 0
        """Tokens so far."""
        self._first_generated = LONGEST * LONGEST
        # newest first, so that indices are distances; moved back when the front is reached
        self._front = config.reach
        self._history = np.full((2, 2 * config.reach), -1, np.int32)
        self._runs = np.zeros((2, config.reach), np.int16)
        self._equal = np.zeros(config.reach, np.bool_)

    def copy(self) -> Pointer:
        """A pointer that continues on its own."""
        new = object.__new__(Pointer)
        new.__dict__ |= self.__dict__
        for name in ("_history", "_runs", "_equal"):
            setattr(new, name, getattr(self, name).copy())
        return new

    def end_prompt(self) -> None:
        """Marks the tokens that follow as generated."""
        self._first_generated = self.count

    def extend(self, tokens: Iterable[int]) -> None:
        """Appends tokens."""
        reach, runs, equal = self.config.reach, self._runs, self._equal
        for token in tokens:
            if not self._front:
                self._history[:, reach:] = self._history[:, :reach]
                self._front = reach
            front, self._front = self._front, self._front - 1
            for search, key in enumerate((token, self._keys[token])):
                run = runs[search]
                np.equal(self._history[search, front : front + reach], key, out=equal)
                np.add(run, 1, out=run)
                np.multiply(run, equal, out=run)
                np.minimum(run, LONGEST, out=run)
                self._history[search, front - 1] = key
            self.count += 1

    def matches(self) -> tuple[Match | None, Match | None]:
        """The longest exact match, and the longest one that ignores some differences."""
        return self._match(0), self._match(1)

    def _match(self, search: int) -> Match | None:
        run = self._runs[search]
        index = int(run.argmax())  # the first of several is the nearest
        length = int(run[index])
        if not length:
            return None
        # index 0 is the newest token, compared with the one before it
        return Match(int(self._history[0, self._front + index]), length, index + 1)

    def proposals(self) -> list[Proposal]:
        """Tokens that may come next, with their log-odds; none without a match."""
        config, found = self.config, []
        if not self.count:
            return found
        family = bisect_right(config.families, int(self._history[0, self._front])) - 1
        for gate, match in zip((config.exact, config.similar), self.matches(), strict=True):
            if match is not None:
                odds = gate.length[bucket(match.length)] + gate.distance[bucket(match.distance)]
                odds += gate.family[family]
                if self.count - match.distance >= self._first_generated:
                    odds += gate.generated
                found.append(Proposal(match.token, odds))
        return found


class _Keys(dict[int, int]):
    """What each id is compared by: itself, or the first id of its range."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        super().__init__({token: first for first, stop in ranges for token in range(first, stop)})

    def __missing__(self, token: int) -> int:
        return token


def mixture(
    log_probabilities: NDArray[np.float64],
    tokens: NDArray[np.integer],
    proposals: Iterable[Proposal],
    memory: float = 1.0,
) -> NDArray[np.float64]:
    """Log-probabilities (n,) of the `tokens` (n,), rising ids, mixed with proposals among them.

    `log_probabilities` (n,) are normalised over these tokens. `memory` is a factor of the odds of
    all proposals; 0 returns `log_probabilities`.
    """
    mixed = log_probabilities
    if memory:
        places = [(np.searchsorted(tokens, p.token), p) for p in proposals]
        kept = [(i, p.log_odds) for i, p in places if i < len(tokens) and tokens[i] == p.token]
        if kept:
            odds = [memory * math.exp(value) for _, value in kept]
            total = 1 + sum(odds)
            mixed = log_probabilities - math.log(total)
            for (index, _), value in zip(kept, odds, strict=True):
                mixed[index] = np.logaddexp(mixed[index], math.log(value / total))
    return mixed
