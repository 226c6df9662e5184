"""Tasks whose sequences are generated: what a model can recall, copy and track.

A sequence has inputs, and at some of its positions a target, which is a function of the inputs up
to that position. A task is a dataclass with a `kind` and one method that draws sequences; this file
has everything else.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from relpe.models.config import to_plain
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, rows_of
from training.learning.positions import positions_of
from training.learning.seeding import generator
from training.tasks.batches import StepData
from training.tasks.module import TaskModule, new_model

Split: TypeAlias = Literal["train", "validation", "test"]
NO_TARGET = -1
"""Target of a position at which nothing is asked."""
VALIDATION_EXAMPLES = 128
_ATTEMPTS = 64


@dataclass(frozen=True, kw_only=True)
class GeneratedTask(ABC):
    """Prediction of the targets of generated sequences."""

    tokenizer: ClassVar[None] = None
    """Generated tasks have no tokenizer."""

    kind: str
    """Selects the task."""
    data: None = None
    """Generated tasks read no data."""
    model: DecoderConfig
    """Configuration of the model."""
    size: int
    """Largest size of training examples; what it counts depends on the task."""
    smallest: int = 8
    """Smallest size of training examples; each step has one size, drawn at random."""
    batch_size: int = 64
    """Examples per step, in all processes and micro-batches together."""
    test_sizes: tuple[int, ...]
    """Sizes of the examples that `relpe-train evaluate` measures."""
    test_examples: int = 256
    """Number of test examples of each size."""

    def __post_init__(self) -> None:
        for name in ("smallest", "batch_size", "test_examples"):
            check_range(name, getattr(self, name), 1)
        check_range("size", self.size, self.smallest)
        if not self.test_sizes or min(self.test_sizes) < 1:
            raise TrainingError(
                f"test_sizes are {list(self.test_sizes)}, expected at least one positive size"
            )
        if self.model.vocabulary_size < self.num_tokens:
            raise TrainingError(
                f"model.vocabulary_size is {self.model.vocabulary_size}, but the task has "
                f"{self.num_tokens} tokens; set task.model.vocabulary_size={self.num_tokens}"
            )
        if self.model.events is not None:
            raise TrainingError("model.events: generated sequences have no events; leave it out")

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Number of different tokens."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """Expected accuracy of an answer that does not depend on the inputs."""

    @abstractmethod
    def length_of(self, size: int) -> int:
        """Tokens of an example of a size."""

    @abstractmethod
    def examples(self, draws: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
        """Draw examples (count, l, 2): inputs, and targets or NO_TARGET."""

    @property
    def length(self) -> int:
        """Tokens of the longest training examples."""
        return self.length_of(self.size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step of the largest size; budgets count every step like this."""
        return self.batch_size * self.length

    def draw(
        self, draws: np.random.Generator, count: int, size: int, split: Split
    ) -> NDArray[np.int64]:
        """Draw examples (count, l, 2) of a split. No sequence of inputs belongs to two splits.

        Raises:
            TrainingError: there are too few sequences of this size.
        """
        found = np.empty((0, self.length_of(size), 2), np.int64)
        for _ in range(_ATTEMPTS):
            more = self.examples(draws, 2 * count, size)
            mine = [split_of(row[:, 0]) == split for row in more]
            found = np.concatenate([found, more[mine]])
            if len(found) >= count:
                return found[:count]
        raise TrainingError(
            f"there are too few sequences of size {size} for the split {split}; use larger sizes"
        )

    def test_set(self, size: int) -> Tensor:
        """The test examples (n, l, 2) of a size, which are the same for all runs."""
        draws = generator(0, size, "test")
        return torch.from_numpy(self.draw(draws, self.test_examples, size, "test"))

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> GeneratedData:
        """Build the data module of one process.

        Raises:
            TrainingError: the batch cannot be divided among the processes.
        """
        return GeneratedData(self, trainer, processes)

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> GeneratedModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        decoder = new_model(self.model, trainer.seed, axes=1)
        return GeneratedModule(decoder, optimizer, trainer, tokens_per_step=self.tokens_per_step)

    def decoder_config(self, folder: object) -> DecoderConfig:
        """The configuration of the decoder; it needs nothing from a folder."""
        return self.model


def split_of(inputs: NDArray[np.integer[Any]]) -> Split:
    """The split of a sequence of inputs (l,), by a hash of its content."""
    part = hashlib.blake2b(inputs.tobytes(), digest_size=1).digest()[0] % 16
    return "train" if part > 1 else ("validation", "test")[part]


class GeneratedData(StepData):
    """Training examples, starting at the trainer's current step, and validation examples."""

    validates = True
    """Whether there are validation examples."""

    def __init__(self, task: GeneratedTask, trainer: TrainerConfig, processes: Processes) -> None:
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        super().__init__(Batches(task, trainer.seed, rows), rows, trainer, processes)
        self._task = task

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Identity of the data for run.json: the kind of task and its settings."""
        settings = {k: v for k, v in to_plain(self._task).items() if k not in ("model", "data")}
        text = repr(sorted(settings.items()))
        return {
            "hash": hashlib.sha256(text.encode()).hexdigest(),
            "source": f"generated: {settings['kind']}",
            "splits": {},
        }

    def val_dataloader(self) -> DataLoader[Tensor]:
        """The validation examples of this process, of the largest size in training."""
        world = self._processes.world
        count = -(-VALIDATION_EXAMPLES // world) * world  # equally many for each, without padding
        draws = generator(0, self._task.size, "validation")
        return self.validation_loader(self._task.draw(draws, count, self._task.size, "validation"))


class Batches:
    """Training batches; that of a step depends only on (seed, step)."""

    def __init__(self, task: GeneratedTask, seed: int, rows: range) -> None:
        self._task, self._seed, self._rows = task, seed, rows

    def __getitem__(self, step: int) -> Tensor:
        """The rows (b, l, 2) of this process."""
        task, draws = self._task, generator(self._seed, step, "data")
        size = int(draws.integers(task.smallest, task.size + 1))
        batch = task.draw(draws, task.batch_size, size, "train")
        return torch.from_numpy(batch[self._rows.start : self._rows.stop])


class GeneratedModule(TaskModule[Decoder]):
    """A decoder that predicts targets at some positions of sequences."""

    def positions(self, tokens: Tensor) -> Tensor:
        """Positions (1 or b, l, p) of tokens (b, l)."""
        return positions_of(tokens, self.decoder.num_axes)

    def losses(self, batch: Tensor, state: DecoderState) -> Iterator[Tensor]:
        """The negative log-likelihood of the targets, in nats."""
        tokens, targets = batch.unbind(-1)
        logits, _ = self.decoder(tokens, self.positions(tokens), state)
        logits = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
        yield cross_entropy(logits, targets.flatten(), ignore_index=NO_TARGET, reduction="sum")

    def num_losses(self, batch: Tensor) -> int:
        """One sum."""
        return 1

    def num_targets(self, batch: Tensor) -> Tensor:
        """Number of positions that have a target."""
        return (batch[..., 1] != NO_TARGET).sum()
