"""The task `copying`: repetition of a random string (Jelassi et al., 2024, *Repeat After Me*)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import check_range
from training.tasks.generated import NO_TARGET, GeneratedTask


@dataclass(frozen=True, kw_only=True)
class CopyingTask(GeneratedTask):
    """A random string, a separator, and the string again.

    Its size is the length of the string. Each symbol of the copy is the target of the position
    before it. If all of them are predicted, greedy generation makes the same copy.
    """

    kind: Literal["copying"] = "copying"
    num_symbols: int = 32
    """Number of different symbols; the separator is the id after them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_symbols", self.num_symbols, 2)

    @property
    def num_tokens(self) -> int:
        """Symbols and the separator."""
        return self.num_symbols + 1

    @property
    def chance(self) -> float:
        """All symbols are equally likely."""
        return 1 / self.num_symbols

    def length_of(self, size: int) -> int:
        """Return the string, the separator, and the string without its last symbol."""
        return 2 * size

    def examples(self, draws: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
        """Draw examples (count, 2 size, 2); targets begin at the separator."""
        text = draws.integers(self.num_symbols, size=(count, size))
        separator = np.full((count, 1), self.num_symbols)
        rows = np.full((count, 2 * size, 2), NO_TARGET)
        rows[..., 0] = np.concatenate([text, separator, text[:, :-1]], 1)
        rows[:, size:, 1] = text
        return rows
