"""Training examples: row r of the batch of step s depends only on (seed, s, r)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import PAD
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.learning.seeding import generator


@dataclass(frozen=True)
class Examples(ABC):
    """Batches of training examples, by step.

    They do not depend on the shards. A process that draws some rows of a batch reads only those.
    """

    corpus: Corpus
    tokenizer: Remi
    length: int
    """Tokens that the model reads; an example has one more token, the last target."""
    batch_size: int
    seed: int
    beginnings: float = 0.1
    """Share of accompaniments that are the beginning of a piece."""
    transposition: tuple[int, int] = (-5, 6)
    """Smallest and largest transposition in semitones."""
    augmentation: Augmentation = NOTHING
    """Further random changes."""
    first_row: int = 0
    """Index of the first row of the batch that this process draws."""

    def __post_init__(self) -> None:
        if not len(self.corpus):
            raise TrainingError("the train split is empty; prepare a corpus with training files")

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        """Return the batch of one step: (batch_size, length + 1).

        PAD follows an example that is too short; ~t stands for a token t that is not predicted.
        """
        return np.stack(
            [self.example(step, self.first_row + row) for row in range(self.batch_size)]
        )

    def example(self, step: int, row: int) -> NDArray[np.int64]:
        """Return one row of the batch of a step: (length + 1,)."""
        ids = self._draw(generator(self.seed, step, "data", row))[: self.length + 1]
        padded = np.full(self.length + 1, PAD, np.int64)
        padded[: len(ids)] = ids
        return padded

    def _read(self, piece: int, stop: int | None = None) -> NDArray[np.int32]:
        """Read the tokens of a piece up to `stop`; raise TrainingError if they are damaged."""
        ids, bars = self.corpus.piece(piece, stop=stop), self.corpus.piece_bars(piece)
        bar_indices = np.flatnonzero(ids == self.tokenizer.vocabulary.ids["Bar"])
        if not np.array_equal(bar_indices, bars[: np.searchsorted(bars, len(ids))]):
            name = [*self.corpus.names, *map(str, range(piece + 1))][piece]
            raise TrainingError(
                f"the stored tokens of {name} are damaged; prepare the corpus again"
            )
        return ids

    @abstractmethod
    def _draw(self, draw: np.random.Generator) -> NDArray[np.int64]:
        """Return an example, which may be too long."""


def draw_bar(
    starts: NDArray[np.int64],
    length: int,
    least: int,
    beginnings: float,
    draw: np.random.Generator,
) -> int:
    """Return the first bar of an example of a piece; 0 with probability `beginnings`.

    Bars followed by less than `least` tokens are not drawn, since most of the example would be
    padding. `starts` are the indices of the Bar tokens of the piece, `length` its tokens.
    """
    last = int(np.searchsorted(starts, length - least, side="right"))
    beginning = draw.random() < beginnings
    return 0 if beginning or last < 2 else int(draw.integers(1, last))
