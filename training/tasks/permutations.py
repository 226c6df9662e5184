"""The task `permutations`: word problems of symmetric groups; of two objects, it is parity.

Sources: Barrington (1989); Merrill, Petty and Sabharwal (2024, *The Illusion of State*); Grazzi et
al. (2024, *Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues*).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import check_range
from training.tasks.generated import GeneratedTask


@dataclass(frozen=True, kw_only=True)
class PermutationsTask(GeneratedTask):
    """Random permutations; the target of each position is the product of those so far.

    Its size is the number of permutations. The identity is one of them, so that with two objects
    the target is whether the number of exchanges is odd. Products are not part of the inputs.
    """

    kind: Literal["permutations"] = "permutations"
    objects: int
    """Number of objects that are permuted: 2 for parity, 3 for S3, 5 for S5."""

    def __post_init__(self) -> None:
        check_range("objects", self.objects, 2, 6)
        super().__post_init__()

    @property
    def num_tokens(self) -> int:
        """One for each permutation, in lexicographic order."""
        return math.factorial(self.objects)

    @property
    def chance(self) -> float:
        """All products are equally likely."""
        return 1 / self.num_tokens

    def length_of(self, size: int) -> int:
        """Return the number of tokens: one for each permutation."""
        return size

    def examples(self, draws: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
        """Draw examples (count, size, 2)."""
        table = products(self.objects)
        words = draws.integers(self.num_tokens, size=(count, size))
        rows = np.empty((count, size, 2), np.int64)
        rows[..., 0] = words
        now = np.zeros(count, np.int64)  # the identity
        for place in range(size):
            now = table[now, words[:, place]]
            rows[:, place, 1] = now
        return rows


@cache
def products(objects: int) -> NDArray[np.int64]:
    """Return the product (n!, n!) of each two permutations: the row first, then the column."""
    every = list(itertools.permutations(range(objects)))
    index = {permutation: number for number, permutation in enumerate(every)}
    return np.array([[index[tuple(b[i] for i in a)] for b in every] for a in every])
