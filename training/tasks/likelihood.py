"""Tasks that measure the likelihood of data: a decoder predicts each value from those before it.

A task turns data into rows of tokens, with targets at the positions that count. It is a dataclass
with a `kind` and few methods; this file has everything else.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from relpe.models.config import to_plain
from relpe.models.decoder import Decoder, DecoderConfig
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, rows_of
from training.learning.positions import positions_of
from training.tasks.batches import Passes, StepData
from training.tasks.generated import NO_TARGET, GeneratedModule, Split
from training.tasks.module import new_model

Rows = NDArray[np.integer[Any]]
"""(n, l, 2): the input and the target, or NO_TARGET, of each position."""


@dataclass(frozen=True, kw_only=True)
class LikelihoodTask(ABC):
    """Prediction of values from those before them."""

    tokenizer: ClassVar[None] = None
    """The data have no tokenizer."""

    kind: str
    """Selects the task."""
    data: Path | None
    """Folder of the data; None: data that come with a package."""
    model: DecoderConfig
    """Configuration of the model."""
    batch_size: int = 32
    """Rows per step, in all processes and micro-batches together."""
    validation_examples: int = 256
    """Largest number of rows of a validation."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "validation_examples"):
            check_range(name, getattr(self, name), 1)
        if self.model.vocabulary_size != self.num_tokens:
            raise TrainingError(
                f"model.vocabulary_size is {self.model.vocabulary_size}, but the task has "
                f"{self.num_tokens} tokens; set task.model.vocabulary_size={self.num_tokens}"
            )
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

    @property
    def axes(self) -> int:
        """Number of axes of the positions."""
        return 1

    @property
    @abstractmethod
    def origin(self) -> str:
        """Where the data come from, for reports."""

    @abstractmethod
    def rows(self, name: Split) -> Rows:
        """The rows of a split.

        Raises:
            TrainingError: the data are missing or damaged.
        """

    @abstractmethod
    def figures(self, name: Split, nats: NDArray[np.float64]) -> dict[str, float]:
        """What `relpe-train evaluate` prints, by name.

        `nats` (n, l) are those of the targets of the rows of a split, 0 where there is none.
        """

    def positions(self, tokens: Tensor) -> Tensor:
        """Positions (1 or b, l, p) of tokens (b, l)."""
        return positions_of(tokens, 1)

    @property
    def tokens_per_step(self) -> int:
        """Positions of a step, padding included."""
        return self.batch_size * self.length

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> LikelihoodData:
        """Build the data module of one process.

        Raises:
            TrainingError: the data cannot be used, or the batch cannot be divided among the
                processes.
        """
        return LikelihoodData(self, trainer, processes)

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> LikelihoodModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        decoder = new_model(self.model, trainer.seed, self.axes)
        return LikelihoodModule(decoder, self, optimizer, trainer)

    def decoder_config(self, folder: object) -> DecoderConfig:
        """The configuration of the decoder; it needs nothing from a folder."""
        return self.model


class LikelihoodData(StepData):
    """Training rows, starting at the trainer's current step, and validation rows."""

    def __init__(self, task: LikelihoodTask, trainer: TrainerConfig, processes: Processes) -> None:
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        self._task, self._train = task, task.rows("train")
        self._held_out = task.rows("validation")[: task.validation_examples]
        super().__init__(
            LikelihoodBatches(task, self._train, trainer.seed, rows), rows, trainer, processes
        )

    @property
    def validates(self) -> bool:
        """Whether there are validation rows."""
        return len(self._held_out) > 0

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Identity of the data for run.json: the settings of the task and the training rows."""
        settings = {k: v for k, v in to_plain(self._task).items() if k not in ("model", "data")}
        digest = hashlib.sha256(repr(sorted(settings.items())).encode())
        digest.update(self._train.tobytes())
        source = f"{self._task.kind}: {self._task.origin}"
        return {"hash": digest.hexdigest(), "source": source, "splits": {}}

    def val_dataloader(self) -> DataLoader[Tensor]:
        """The validation rows of this process; those that pad its share have no targets."""
        padding = -len(self._held_out) % self._processes.world
        empty = np.stack([np.zeros((padding, self._task.length), np.int64)] * 2, -1)
        empty[..., 1] = NO_TARGET
        return self.validation_loader(np.concatenate([self._held_out.astype(np.int64), empty]))


class LikelihoodBatches:
    """Training batches; that of a step depends only on (seed, step)."""

    def __init__(self, task: LikelihoodTask, examples: Rows, seed: int, rows: range) -> None:
        self._examples, self._rows = examples, rows
        self._passes = Passes(len(examples), task.batch_size, seed)

    def __getitem__(self, step: int) -> Tensor:
        """The rows (b, l, 2) of this process."""
        chosen = self._passes[step][self._rows.start : self._rows.stop]
        return torch.from_numpy(self._examples[chosen].astype(np.int64))


class LikelihoodModule(GeneratedModule):
    """A decoder that predicts values, at the positions of its task."""

    def __init__(
        self,
        decoder: Decoder,
        task: LikelihoodTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        super().__init__(decoder, optimizer, trainer, tokens_per_step=task.tokens_per_step)
        self._task = task

    def positions(self, tokens: Tensor) -> Tensor:
        """Positions (1 or b, l, p) of tokens (b, l)."""
        return self._task.positions(tokens)


def windows(first: int, last: int, length: int) -> Iterable[tuple[int, int, int]]:
    """Windows of at most `length` positions that ask each position from `first` to `last` once.

    Each is (start, stop, asked): it asks the positions from `asked` to `stop`, of which there are
    at most half of `length` if others precede them, and reads those from `start` on.
    """
    while first < last:
        stop = min(last, max(first + max(1, length // 2), length))
        yield max(0, stop - length), stop, first
        first = stop
