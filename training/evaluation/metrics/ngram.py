"""N-gram models with back-off, a baseline for neural models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.remi.remi import Remi
from training.data.corpus import Corpus

Smoothing = Literal["kneser_ney", "witten_bell"]
SMOOTHINGS: tuple[Smoothing, ...] = ("kneser_ney", "witten_bell")
PAD = 0


@dataclass(frozen=True, eq=False)
class Counts:
    """Distinct n-grams of the highest order, packed into integers, and their counts."""

    order: int
    vocabulary_size: int
    grams: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(
        cls, pieces: Iterable[Sequence[int] | NDArray[np.integer]], order: int, vocabulary_size: int
    ) -> Counts:
        """Count the n-grams of pieces; each piece is preceded by order - 1 PAD tokens (0).

        Raises:
            ValueError: an n-gram of this order does not fit into 63 bits.
        """
        bits = token_bits(vocabulary_size)
        if not 1 <= order <= greatest_order(vocabulary_size):
            raise ValueError(f"order is {order}, expected 1 to {greatest_order(vocabulary_size)}")
        packed = [_pack(np.asarray(piece), order, bits) for piece in pieces]
        grams, counts = np.unique(
            np.concatenate([np.zeros(0, np.int64), *packed]), return_counts=True
        )
        return cls(order, vocabulary_size, grams, counts)

    def __add__(self, other: Counts) -> Counts:
        """Return the sum of both counts."""
        grams, place = np.unique(np.concatenate([self.grams, other.grams]), return_inverse=True)
        counts = np.zeros(len(grams), np.int64)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        return Counts(self.order, self.vocabulary_size, grams, counts)


@dataclass(frozen=True, eq=False)
class _Level:
    """The n-grams of one order: p(w | h) = share(h w) + left(h) p(w | shorter h)."""

    grams: NDArray[np.int64]
    shares: NDArray[np.float64]
    """Of each gram h w."""
    histories: NDArray[np.int64]
    left: NDArray[np.float64]
    """Of each history h; it is 1 for others."""


class NGram:
    """Interpolated n-gram model: modified Kneser-Ney or Witten-Bell (Chen & Goodman, 1998).

    Unigrams back off to the uniform distribution, so that every token has a probability.
    """

    def __init__(self, counts: Counts, smoothing: Smoothing) -> None:
        self.order = counts.order
        self.vocabulary_size = counts.vocabulary_size
        self._bits = token_bits(counts.vocabulary_size)
        self._levels: list[_Level] = []  # from the highest order down to unigrams
        grams, numbers = counts.grams, counts.counts
        for order in range(counts.order, 0, -1):
            self._levels.append(_level(grams, numbers, self._bits, smoothing))
            # drop the first token; Kneser-Ney counts distinct n-grams with the same remaining
            # tokens, Witten-Bell counts their occurrences
            shorter = grams & ((1 << self._bits * (order - 1)) - 1)
            weights = np.ones_like(numbers) if smoothing == "kneser_ney" else numbers
            if smoothing == "kneser_ney":
                # the beginning of a piece has only padding before it, so keep its count
                begins = grams >> self._bits * (order - 1) == PAD
                weights = np.where(begins, numbers, weights)
            grams, place = np.unique(shorter, return_inverse=True)
            numbers = np.bincount(place, weights, len(grams)).astype(np.int64)

    def probabilities(self, piece: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the probability of each token of a piece given those before it: (l,)."""
        packed = _pack(np.asarray(piece), self.order, self._bits)
        result = np.full(len(packed), 1 / self.vocabulary_size)
        for order in range(1, self.order + 1):
            level = self._levels[self.order - order]
            grams = packed & ((1 << self._bits * order) - 1)
            shares = _look_up(level.grams, level.shares, grams, 0.0)
            left = _look_up(level.histories, level.left, grams >> self._bits, 1.0)
            result = shares + left * result
        return result

    def nats(self, piece: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the negative log-likelihood (nats) of a piece's tokens but the first: (l - 1,)."""
        return -np.log(self.probabilities(piece)[1:])


def greatest_order(vocabulary_size: int) -> int:
    """Return the highest order whose n-grams fit into 63 bits."""
    return 63 // token_bits(vocabulary_size)


def token_bits(vocabulary_size: int) -> int:
    """Return the number of bits of a token id."""
    return max(1, (vocabulary_size - 1).bit_length())


def _pack(piece: NDArray[np.integer], order: int, bits: int) -> NDArray[np.int64]:
    """Return the n-gram that ends with each token of a piece.

    Its last token is in the lowest bits.
    """
    padded = np.concatenate([np.full(order - 1, PAD, np.int64), piece.astype(np.int64)])
    packed = np.zeros(len(piece), np.int64)
    for back in range(order):
        packed |= padded[order - 1 - back : len(padded) - back] << (bits * back)
    return packed


def _level(
    grams: NDArray[np.int64], counts: NDArray[np.int64], bits: int, smoothing: Smoothing
) -> _Level:
    histories, place = np.unique(grams >> bits, return_inverse=True)
    totals = np.bincount(place, counts, len(histories))
    if smoothing == "witten_bell":
        kinds = np.bincount(place, minlength=len(histories))
        return _Level(grams, counts / (totals + kinds)[place], histories, kinds / (totals + kinds))
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    taken = np.bincount(place, discounts, len(histories))
    return _Level(grams, (counts - discounts) / totals[place], histories, taken / totals)


def _discounts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return discounts of the counts 0, 1, 2 and 3 or more, estimated from the counts of counts."""
    _, one, two, three, four = np.bincount(np.minimum(counts, 5), minlength=6)[:5]
    share = one / max(one + 2 * two, 1)
    estimates = (1 - 2 * share * two / max(one, 1), 2 - 3 * share * three / max(two, 1),
                 3 - 4 * share * four / max(three, 1))  # fmt: skip
    bounded = [min(max(value, 0.1), k - 0.05) for k, value in enumerate(estimates, 1)]
    return np.array([0.0, *bounded])


def _look_up(
    keys: NDArray[np.int64],
    values: NDArray[np.float64],
    queries: NDArray[np.int64],
    default: float,
) -> NDArray[np.float64]:
    place = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[place] == queries, values[place], default)


def ngram_nats(
    order: int,
    train: Corpus,
    tokenizer: Remi,
    pieces: Sequence[NDArray[np.int64]],
) -> dict[str, list[NDArray[np.float64]]]:
    """Return nats of n-gram models trained on a corpus as it is, and in all transpositions."""
    size = len(tokenizer.vocabulary.names)

    def count(semitones: int) -> Counts:
        versions = (tokenizer.transpose(train.piece(i), semitones) for i in range(len(train)))
        return Counts.of((version for version in versions if version is not None), order, size)

    plain = transposed = count(0)
    for semitones in tqdm([*range(-5, 0), *range(1, 7)], desc="n-grams"):
        transposed += count(semitones)
    result: dict[str, list[NDArray[np.float64]]] = {}
    for name, counts in (("untransposed", plain), ("12 transpositions", transposed)):
        for smoothing in SMOOTHINGS:
            model = NGram(counts, smoothing)
            result[f"{smoothing}, {name}"] = [model.nats(piece) for piece in pieces]
    return result
