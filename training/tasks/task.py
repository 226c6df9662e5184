"""What all tasks have in common.

A task is a dataclass with its settings. It says which examples there are, what a batch of them is,
what a model is measured by, and which module has the loss. Data, resumable order and validation
follow from these. How music is measured is in `training/evaluation/evaluate.py`.
"""

from __future__ import annotations

import hashlib
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from torch.utils.data import DataLoader

from relpe.models.config import to_plain
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, leave_signals, rows_of
from training.learning.seeding import Steps
from training.tasks.batches import NewNumbers, Passes
from training.tasks.module import TaskModule, new_model

Split: TypeAlias = Literal["train", "validation", "test"]
Results: TypeAlias = Mapping[str, Any]
"""Content of a results.json."""
_COUNTS = ("batch_size", "validation_examples", "train_examples", "test_examples")


class Measured(NamedTuple):
    """What was measured of a model."""

    results: dict[str, Any]
    """What results.json has besides the facts about the run."""
    call: Callable[[], object]
    """A forward pass of a batch, whose costs are then measured."""
    batch_size: int
    """Number of examples of this batch."""
    write: Callable[[Path], None] = lambda _: None
    """Writes further files to the folder of results.json."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Examples, and a model that learns from them."""

    tokenizer: ClassVar[Any] = None
    """The vocabulary, which is stored with a run; None: there is none."""
    has_splits: ClassVar[bool] = True
    """Whether users choose the data and the split that are measured."""
    evaluated_at_once: ClassVar[int] = 32
    """Default number of examples per batch of an evaluation."""
    module: ClassVar[type[TaskModule[Any]]]
    """The class of the module that has the loss."""
    noun: ClassVar[str | None] = None
    """What a model of the task is; None: `relpe-train report` has no table for its results."""

    kind: str
    """Selects the task."""
    data: Path | None
    """Folder of the data; None: data that are generated or come with a package."""
    model: Any
    """Configuration of the model."""
    batch_size: int
    """Examples per step, in all processes and micro-batches together."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            check_range(name, getattr(self, name, None), 1)
        check_range("label_smoothing", getattr(self, "label_smoothing", None), 0, 1)

    @property
    def axes(self) -> int:
        """Largest number of axes of the positions."""
        return 1

    @property
    def origin(self) -> str:
        """Where the data come from, for reports."""
        return "generated" if self.data is None else str(self.data)

    @property
    def source(self) -> str:
        """Task and origin, for run.json."""
        return f"{self.kind}: {self.origin}"

    @property
    @abstractmethod
    def tokens_per_step(self) -> int:
        """Positions of a step; budgets count every step like this."""

    @abstractmethod
    def training_examples(self) -> Any:  # noqa: ANN401 - of the task
        """Return the examples from which batches are made.

        Raise TrainingError if they are damaged.
        """

    @abstractmethod
    def held_out(self, world: int) -> Any:  # noqa: ANN401
        """Return the examples of a validation by `world` processes.

        Each process takes the same number. The last ones are left out if they are no multiple of
        `world`.
        """

    @abstractmethod
    def batch(self, examples: Any, numbers: Sequence[int]) -> Any:  # noqa: ANN401
        """Return a batch of the examples with these numbers."""

    def content(self, examples: Any) -> Iterable[bytes]:  # noqa: ANN401
        """Return what identifies the training examples besides the settings of the task."""
        return ()

    def facts(self, examples: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the identity of the data for run.json: the settings of the task, its examples."""
        settings = {k: v for k, v in to_plain(self).items() if k not in ("model", "data")}
        digest = hashlib.sha256(repr(sorted(settings.items())).encode())
        for part in self.content(examples):
            digest.update(part)
        return {"hash": digest.hexdigest(), "source": self.source, "splits": {}}

    def passes(self, examples: Any, seed: int) -> Passes | NewNumbers:  # noqa: ANN401
        """Return the numbers of the examples of each step."""
        return Passes(len(examples), self.batch_size, seed)

    def batches(self, examples: Any, seed: int, rows: range) -> Any:  # noqa: ANN401
        """Return the batches of a process by step; they depend on the seed and the step only."""
        return Batches(self, examples, seed, rows)

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> TaskData:
        """Build the data of one process.

        Raises:
            TrainingError: the data cannot be used, or the batch cannot be divided among the
                processes.
        """
        return TaskData(self, trainer, processes)

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> TaskModule[Any]:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        model = new_model(self.decoder_config(self.data), trainer.seed, self.axes)
        return self.module(model, self, optimizer, trainer)

    def decoder_config(self, folder: Any) -> Any:  # noqa: ANN401
        """Return the configuration of the model; only that of music depends on a folder."""
        return self.model

    def evaluate(self, model: Any, run: Path, split: Split, batch_size: int) -> Measured:  # noqa: ANN401
        """Measure the model of a run, which is in evaluation mode.

        Raises:
            TrainingError: the data or the files of the run cannot be used.
        """
        raise NotImplementedError

    def summary(self, results: Results) -> list[str]:
        """Return what is printed after an evaluation; empty: the table of the report."""
        return []

    @staticmethod
    def columns(runs: Sequence[Results]) -> list[dict[str, str]]:
        """Return the cells of rows of a report by column, for runs that differ in their seeds."""
        raise NotImplementedError

    @staticmethod
    def notes(entries: Sequence[Results]) -> list[str]:
        """Return the paragraphs below the table of a report."""
        return ["Means and standard deviations (n - 1) over the seeds of each configuration."]


class TaskData:
    """Training batches of one process from any step on, and those of a validation."""

    pinned = False
    """Whether batches are in pinned memory, from which copies to a GPU do not wait."""

    def __init__(self, task: Task, trainer: TrainerConfig, processes: Processes) -> None:
        self._task, self._train = task, task.training_examples()
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        self._rows, self._workers = len(rows) // trainer.accumulate, trainer.workers
        self.examples = task.batches(self._train, trainer.seed, rows)
        """By step, the rows of its batch that belong to this process."""
        self._processes, self._held_out = processes, task.held_out(processes.world)

    @property
    def validates(self) -> bool:
        """Whether there are examples for validation."""
        return len(self._held_out) > 0

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Identity of the data for run.json."""
        return self._task.facts(self._train)

    def train_dataloader(self, step: int) -> DataLoader[Any]:
        """Return the rows of this process: one batch per step, from `step` on."""
        return DataLoader(
            self.examples,
            batch_size=None,
            sampler=Steps(step),
            num_workers=self._workers,
            worker_init_fn=leave_signals if self._workers else None,
            pin_memory=self.pinned,
        )

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the batches for validation of this process."""
        world, size = self._processes.world, self._rows
        numbers = range(self._processes.rank, len(self._held_out) // world * world, world)
        if not numbers:
            raise TrainingError("there are fewer validation examples than processes")
        parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        batch = partial(self._task.batch, self._held_out)
        pinned = self.pinned
        return DataLoader(parts, batch_size=None, collate_fn=batch, pin_memory=pinned)  # type: ignore[arg-type]


class Batches:
    """Training batches of one process; that of a step depends only on (seed, step)."""

    def __init__(self, task: Task, examples: Any, seed: int, rows: range) -> None:  # noqa: ANN401
        self._task, self._examples, self._rows = task, examples, rows
        self._passes = task.passes(examples, seed)

    def __getitem__(self, step: int) -> Any:  # noqa: ANN401
        """Return the rows of this process."""
        numbers = self._passes[step][self._rows.start : self._rows.stop]
        return self._task.batch(self._examples, [*map(int, numbers)])


def check_vocabulary(size: int, used: int, *, exact: bool = False) -> None:
    """Raise TrainingError unless a model knows all tokens of a task, and if `exact`, no others."""
    if size < used or (exact and size > used):
        raise TrainingError(
            f"model.vocabulary_size is {size}, but the task has {used} tokens; set "
            f"task.model.vocabulary_size={used}"
        )


def mean_of(values: Sequence[float], digits: int) -> str:
    """Return the mean, and standard deviation with n - 1 if there is more than one value."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"
