"""The task `sequence_transduction`: copy, repeat or reverse a random sequence.

Source: Kogkalidis, Bernardy and Garg (2024), section 4.1. Unlike their code, all sources and
targets begin with a start symbol and end with an end symbol, and no source is in two splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from relpe.decoding.transduce import Line
from training.errors import check_range
from training.tasks.transduction.pair_task import START
from training.tasks.transduction.pairs import Pair
from training.tasks.transduction.task import TransductionTask


@dataclass(frozen=True, kw_only=True)
class SequenceTransductionTask(TransductionTask):
    """A random sequence, and its copy, two copies, or the sequence from its end.

    The size is the number of symbols. Ids are 0 (start), 1 to `num_symbols`, and the end after
    them.
    """

    kind: Literal["sequence_transduction"] = "sequence_transduction"
    function: Literal["copy", "repeat", "reverse"] = "copy"
    """What the target is."""
    num_symbols: int = 20
    """Number of different symbols."""
    size: int = 100
    deviation: float = 10.0
    test_sizes: tuple[int, ...] = (100, 200, 300, 400)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_symbols", self.num_symbols, 2)

    @property
    def end(self) -> int:
        """Id of the symbol after the last token."""
        return self.num_symbols + 1

    @property
    def num_tokens(self) -> int:
        """Symbols, start and end."""
        return self.num_symbols + 2

    @property
    def target_tokens(self) -> int:
        """Symbols and the end."""
        return self.size * (2 if self.function == "repeat" else 1) + 1

    @property
    def name(self) -> str:
        """The function."""
        return self.function

    def draw(self, draws: np.random.Generator, size: int) -> Pair:
        """Draw a sequence and its image."""
        symbols = draws.integers(1, self.num_symbols + 1, size=size)
        images = {
            "copy": symbols,
            "repeat": np.concatenate([symbols, symbols]),
            "reverse": symbols[::-1],
        }
        wrapped = (
            np.concatenate([[START], row, [self.end]])[:, None]
            for row in (symbols, images[self.function])
        )
        return Pair(*wrapped)

    def target_of(self, pair: Pair) -> Line:
        """Return a sequence until the end symbol."""
        return Line(self.end)
