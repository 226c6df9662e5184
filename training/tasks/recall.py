"""The task `recall`: multi-query associative recall (Arora et al., 2023, *Zoology*)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError, check_range
from training.tasks.generated import NO_TARGET, GeneratedTask


@dataclass(frozen=True, kw_only=True)
class RecallTask(GeneratedTask):
    """Pairs of a key and a value, then all keys in random order; the value of each is asked.

    Its size is the number of pairs. The value follows its key in the second part too, so that
    sequences consist of pairs throughout. Keys of a sequence are different; ids are those of the
    keys, then those of the values.
    """

    kind: Literal["recall"] = "recall"
    num_keys: int = 128
    """Number of different keys."""
    num_values: int = 64
    """Number of different values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_values", self.num_values, 2)
        most = max(self.size, *self.test_sizes)
        if self.num_keys < most:
            raise TrainingError(
                f"num_keys is {self.num_keys}, expected at least the largest size, {most}"
            )

    @property
    def num_tokens(self) -> int:
        """Keys and values."""
        return self.num_keys + self.num_values

    @property
    def chance(self) -> float:
        """All values are equally likely."""
        return 1 / self.num_values

    def length_of(self, size: int) -> int:
        """Return the number of tokens: two for each pair, and two for each question."""
        return 4 * size

    def examples(self, draws: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
        """Draw examples (count, 4 size, 2); targets are at the keys of the second part."""
        keys = draws.permuted(np.tile(np.arange(self.num_keys), (count, 1)), axis=1)[:, :size]
        values = self.num_keys + draws.integers(self.num_values, size=(count, size))
        pairs = np.stack([keys, values], -1)
        order = draws.permuted(np.tile(np.arange(size), (count, 1)), axis=1)
        asked = np.take_along_axis(pairs, order[..., None], 1)
        rows = np.full((count, 4 * size, 2), NO_TARGET)
        rows[..., 0] = np.concatenate([pairs, asked], 1).reshape(count, -1)
        rows[:, 2 * size :: 2, 1] = asked[..., 1]
        return rows
