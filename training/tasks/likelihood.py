"""Tasks that measure the likelihood of data: a decoder predicts each value from those before it.

A task turns data into rows of tokens, with targets at the positions that count.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.models.decoder import Decoder, DecoderConfig
from training.errors import TrainingError
from training.learning.positions import positions_of
from training.tasks.batches import parts_of
from training.tasks.generated import NO_TARGET, GeneratedModule
from training.tasks.task import Measured, Results, Split, Task, check_vocabulary

Rows = NDArray[np.integer[Any]]
"""(n, l, 2): the input and the target, or NO_TARGET, of each position."""


class LikelihoodModule(GeneratedModule):
    """A decoder that predicts values, at the positions of its task."""

    def positions(self, tokens: Tensor) -> Tensor:
        """Return the positions (1 or b, l, p) of tokens (b, l)."""
        return self._task.positions(tokens)


@dataclass(frozen=True, kw_only=True)
class LikelihoodTask(Task):
    """Prediction of values from those before them."""

    module = LikelihoodModule

    model: DecoderConfig
    batch_size: int = 32
    validation_examples: int = 256
    """Largest number of rows of a validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vocabulary(self.model.vocabulary_size, self.num_tokens, exact=True)
        if self.model.events is not None:
            raise TrainingError("model.events: these sequences have no events; leave it out")

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Number of different tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of positions of a row."""

    @abstractmethod
    def rows(self, name: Split) -> Rows:
        """Return the rows of a split.

        Raises:
            TrainingError: the data are missing or damaged.
        """

    @abstractmethod
    def figures(self, name: Split, nats: NDArray[np.float64]) -> dict[str, float]:
        """Return what `relpe-train evaluate` prints, by name.

        `nats` (n, l) are those of the targets of the rows of a split, 0 where there is none.
        """

    def positions(self, tokens: Tensor) -> Tensor:
        """Return the positions (1 or b, l, p) of tokens (b, l)."""
        return positions_of(tokens, 1)

    @property
    def tokens_per_step(self) -> int:
        """Positions of a step, padding included."""
        return self.batch_size * self.length

    def training_examples(self) -> Rows:
        """Return the rows of the training split."""
        return self.rows("train")

    def held_out(self, world: int) -> Rows:
        """Return the rows for validation; those that fill the share of a process ask nothing."""
        rows = self.rows("validation")[: self.validation_examples].astype(np.int64)
        empty = np.zeros((-len(rows) % world, self.length, 2), np.int64)
        empty[..., 1] = NO_TARGET
        return np.concatenate([rows, empty])

    def batch(self, examples: Rows, numbers: Sequence[int]) -> Tensor:
        """Return the rows (b, l, 2)."""
        return torch.from_numpy(examples[numbers].astype(np.int64))

    def content(self, examples: Rows) -> list[bytes]:
        """Return all rows."""
        return [examples.tobytes()]

    def evaluate(self, model: Decoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the likelihood of the targets of a split."""
        rows = self.rows(split)
        if not len(rows):
            raise TrainingError(f"--split {split}: there are no such data")
        device = model.embedding.weight.device
        nats = np.zeros(rows.shape[:2])
        with torch.inference_mode():
            for part in parts_of(range(len(rows)), batch_size):
                tokens, targets = self.batch(rows, part).to(device).unbind(-1)
                logits, _ = model(tokens, self.positions(tokens), model.init_state(len(tokens)))
                losses = (
                    -logits.double().log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])
                )
                nats[part] = losses[..., 0].where(targets != NO_TARGET, 0.0).cpu().numpy()
        tokens = self.batch(rows, range(min(batch_size, len(rows))))[..., 0].to(device)
        positions, state = self.positions(tokens), model.init_state(len(tokens))
        results = {
            "task": self.kind,
            "data": self.origin,
            "split": split,
            "targets": int((rows[..., 1] != NO_TARGET).sum()),
            "figures": self.figures(split, nats),
        }
        return Measured(results, lambda: model(tokens, positions, state), len(tokens))

    def summary(self, results: Results) -> list[str]:
        """Return the figures in one line."""
        figures = ", ".join(
            f"{value:.4f} {name.replace('_', ' ')}" for name, value in results["figures"].items()
        )
        return [
            f"{self.kind} ({results['data']}), {results['split']}, {results['targets']:,} "
            f"values: {figures}"
        ]


def windows(first: int, last: int, length: int) -> Iterable[tuple[int, int, int]]:
    """Yield windows of at most `length` positions that ask each from `first` to `last` once.

    Each is (start, stop, asked): it asks the positions from `asked` to `stop`, of which there are
    at most half of `length` if others precede them, and reads those from `start` on.
    """
    while first < last:
        stop = min(last, max(first + max(1, length // 2), length))
        yield max(0, stop - length), stop, first
        first = stop
