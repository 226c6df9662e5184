"""Tasks whose pairs are drawn: a dataclass with a `kind` and a method that draws pairs.

This file has everything else about the pairs: splits, batches and validation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relpe.decoding.transduce import Target
from relpe.models.config import to_plain
from training.config import TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, rows_of
from training.learning.seeding import Stream, generator
from training.tasks.batches import Passes
from training.tasks.generated import Split, split_of
from training.tasks.transduction.pair_task import PairData, PairTask
from training.tasks.transduction.pairs import Pair, PairBatch, batch_of

_STREAMS: dict[Split, Stream] = {"train": "data", "validation": "validation", "test": "test"}
_ATTEMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class TransductionTask(PairTask):
    """Prediction of the targets of generated sources."""

    tokenizer: ClassVar[None] = None
    """Generated pairs have no tokenizer."""

    data: None = None
    """Generated pairs are read from no data."""
    size: int
    """Mean size of examples; what it counts depends on the task."""
    deviation: float
    """Standard deviation of sizes, which are normally distributed and rounded down."""
    train_examples: int | None = None
    """Number of different training examples; None: new ones in each step."""
    test_sizes: tuple[int, ...]
    """Mean sizes of the examples that `relpe-train evaluate` measures."""
    test_examples: int = 256
    """Number of test examples of each size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("size", "train_examples", "test_examples"):
            check_range(name, getattr(self, name), 1)
        check_range("deviation", self.deviation, 0)
        if not self.test_sizes or min(self.test_sizes) < 1:
            raise TrainingError(
                f"test_sizes are {list(self.test_sizes)}, expected at least one positive size"
            )
        if self.model.vocabulary_size < self.num_tokens:
            raise TrainingError(
                f"model.vocabulary_size is {self.model.vocabulary_size}, but the task has "
                f"{self.num_tokens} tokens; set task.model.vocabulary_size={self.num_tokens}"
            )

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Number of different tokens of sources and targets."""

    @property
    @abstractmethod
    def target_tokens(self) -> int:
        """Number of tokens of a target of the mean size, about."""

    @abstractmethod
    def draw(self, draws: np.random.Generator, size: int) -> Pair | None:
        """Draw a pair of a size; None if this draw has none."""

    @abstractmethod
    def target_of(self, pair: Pair) -> Target:
        """The empty target of a pair, for generation; it knows the source only."""

    @property
    def tokens_per_step(self) -> int:
        """Target tokens of a step of the mean size; budgets count every step like this."""
        return self.batch_size * self.target_tokens

    def example(self, split: Split, index: int, size: int | None = None) -> Pair:
        """An example of a split, always the same for an index; `size` is the mean, None: `size`.

        No source belongs to two splits.

        Raises:
            TrainingError: there are too few sources of this size.
        """
        mean = self.size if size is None else size
        draws = generator(mean, index, _STREAMS[split])
        for _ in range(_ATTEMPTS):
            drawn = self.draw(draws, max(1, int(draws.normal(mean, self.deviation))))
            if drawn is not None and split_of(drawn.source) == split:
                return drawn
        raise TrainingError(
            f"there are too few sources of size {mean} for the split {split}; choose another size, "
            "or a larger deviation"
        )

    def test_set(self, size: int) -> list[Pair]:
        """The test examples of a mean size, which are the same for all runs."""
        return [self.example("test", index, size) for index in range(self.test_examples)]

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> TransductionData:
        """Build the data module of one process.

        Raises:
            TrainingError: the batch cannot be divided among the processes.
        """
        return TransductionData(self, trainer, processes)


class TransductionData(PairData):
    """Training examples, starting at the trainer's current step, and validation examples."""

    def __init__(
        self, task: TransductionTask, trainer: TrainerConfig, processes: Processes
    ) -> None:
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        super().__init__(Batches(task, trainer.seed, rows), rows, trainer, processes)
        self._task = task

    def identity(self) -> tuple[str, str]:
        """The settings of the task, which determine all examples."""
        settings = {k: v for k, v in to_plain(self._task).items() if k not in ("model", "data")}
        return repr(sorted(settings.items())), f"generated: {self._task.name}"

    def held_out(self, processes: Processes) -> Sequence[Pair]:
        """The validation examples of a process."""
        world = processes.world
        count = -(-self._task.validation_examples // world) * world  # equally many for each
        mine = range(processes.rank, count, world)
        return [self._task.example("validation", index) for index in mine]


class Batches:
    """Training batches; that of a step depends only on (seed, step)."""

    def __init__(self, task: TransductionTask, seed: int, rows: range) -> None:
        self._task, self._seed, self._rows = task, seed, rows
        count = task.train_examples
        self._passes = None if count is None else Passes(count, task.batch_size, seed)

    def __getitem__(self, step: int) -> PairBatch:
        """The rows of this process."""
        if self._passes is None:
            first = (self._seed << 40) + step * self._task.batch_size
            indices = [first + row for row in self._rows]
        else:
            indices = self._passes[step][self._rows.start : self._rows.stop].tolist()
        return batch_of([self._task.example("train", index) for index in indices])
