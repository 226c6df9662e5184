"""Tasks that classify: a dataclass with a `kind` and a method that returns a split.

This file has everything else: batches, validation, loss and training.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from relpe.models.classifier import Classifier, ClassifierConfig, ClassifierState
from relpe.models.config import to_plain
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, rows_of, total
from training.tasks.batches import Passes, StepData
from training.tasks.classification.examples import Batch, Examples, batch_of, some
from training.tasks.module import SeededModule, new_model

Split: TypeAlias = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(ABC):
    """Prediction of the class of sequences, images, or pairs."""

    tokenizer: ClassVar[None] = None
    """Classifiers have no tokenizer."""
    num_classes: ClassVar[int | None] = 10
    """Number of classes; None: that of the data, which is checked when they are read."""
    towers: ClassVar[int] = 1
    """Number of inputs of an example."""
    input_kinds: ClassVar[tuple[str, ...]] = ("tokens",)
    """Kinds of input that can read the examples."""

    kind: str
    """Selects the task."""
    data: Path | None
    """Folder of the data; None: data that are generated or come with a package."""
    model: ClassifierConfig
    """Configuration of the model."""
    batch_size: int = 32
    """Examples per step, in all processes and micro-batches together."""
    label_smoothing: float = 0.0
    """Share of the probability that training divides among all classes."""
    validation_examples: int = 1000
    """Largest number of examples of a validation."""
    test_examples: int | None = None
    """Largest number of examples that `relpe-train evaluate` measures; None: all."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "validation_examples", "test_examples"):
            check_range(name, getattr(self, name), 1)
        check_range("label_smoothing", self.label_smoothing, 0, 1)
        if self.num_classes is not None:
            self.check_classes(self.num_classes)
        if self.model.towers != self.towers:
            raise TrainingError(
                f"model.towers is {self.model.towers}, but examples have {self.towers} inputs; "
                f"set task.model.towers={self.towers}"
            )
        if self.model.input.kind not in self.input_kinds:
            raise TrainingError(
                f"model.input.kind is {self.model.input.kind}, expected "
                f"{' or '.join(self.input_kinds)}"
            )

    def check_classes(self, count: int) -> None:
        """Raise TrainingError unless the model has as many classes as the data."""
        if self.model.num_classes != count:
            raise TrainingError(
                f"model.num_classes is {self.model.num_classes}, but the task has {count} classes; "
                f"set task.model.num_classes={count}"
            )

    @property
    @abstractmethod
    def length(self) -> int:
        """Largest number of positions of an input."""

    @property
    def axes(self) -> int:
        """Largest number of axes as which inputs can be read; 1: sequences only."""
        return 1

    @abstractmethod
    def split(self, name: Split) -> Examples:
        """The examples of a split.

        Raises:
            TrainingError: the data are missing or damaged.
        """

    @property
    def padded_length(self) -> int | None:
        """Length to which sequences are padded without a mask; None: padding is masked."""
        return None

    @property
    def origin(self) -> str:
        """Where the data come from, for reports."""
        return "generated" if self.data is None else str(self.data)

    @property
    def tokens_per_step(self) -> int:
        """Positions of a step, padding included."""
        return self.batch_size * self.length * self.towers

    def test_set(self) -> Examples:
        """The examples that `relpe-train evaluate` measures."""
        return some(self.split("test"), self.test_examples)

    def batch(self, examples: Examples, indices: range | list[int]) -> Batch:
        """A batch of some examples."""
        return batch_of([examples[index] for index in indices], self.padded_length)

    def build_data(
        self, trainer: TrainerConfig, processes: Processes = ALONE
    ) -> ClassificationData:
        """Build the data module of one process.

        Raises:
            TrainingError: the data cannot be used, or the batch cannot be divided among the
                processes.
        """
        return ClassificationData(self, trainer, processes)

    def build_module(
        self, optimizer: OptimizerConfig, trainer: TrainerConfig
    ) -> ClassificationModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        model = new_model(self.model, trainer.seed, self.axes)
        return ClassificationModule(model, self, optimizer, trainer)

    def decoder_config(self, folder: object) -> ClassifierConfig:
        """The configuration of the model; it needs nothing from a folder."""
        return self.model


class ClassificationData(StepData):
    """Training examples, starting at the trainer's current step, and validation examples."""

    def __init__(
        self, task: ClassificationTask, trainer: TrainerConfig, processes: Processes
    ) -> None:
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        self._task, self._train = task, task.split("train")
        super().__init__(Batches(task, self._train, trainer.seed, rows), rows, trainer, processes)
        self._held_out = some(task.split("validation"), task.validation_examples)

    @property
    def validates(self) -> bool:
        """Whether there are validation examples."""
        return len(self._held_out) > 0

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Identity of the data for run.json: the settings of the task and the first examples."""
        task = self._task
        settings = {k: v for k, v in to_plain(task).items() if k not in ("model", "data")}
        digest = hashlib.sha256(repr(sorted(settings.items())).encode())
        for index in range(min(100, len(self._train))):
            example = self._train[index]
            arrays = (*example.inputs, *(() if example.positions is None else (example.positions,)))
            label = example.label.to_bytes(max(1, -(-example.label.bit_length() // 8)), "little")
            digest.update(b"".join(x.tobytes() for x in arrays) + label)
        return {
            "hash": digest.hexdigest(),
            "source": f"{task.kind}: {task.origin}",
            "splits": {},
        }

    def val_dataloader(self) -> DataLoader[Any]:
        """The validation examples of this process; the last ones of others may be missing."""
        world, size = self._processes.world, self._rows
        mine = list(range(self._processes.rank, len(self._held_out) // world * world, world))
        if not mine:
            raise TrainingError("there are fewer validation examples than processes")
        parts = [mine[start : start + size] for start in range(0, len(mine), size)]
        batches = _Parts(self._task, self._held_out, parts)
        return DataLoader(batches, batch_size=None, pin_memory=self._on_gpu)  # type: ignore[arg-type]


@dataclass
class _Parts:
    """Batches of given examples."""

    task: ClassificationTask
    examples: Examples
    parts: list[list[int]]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Batch:
        return self.task.batch(self.examples, self.parts[index])


class Batches:
    """Training batches; that of a step depends only on (seed, step)."""

    def __init__(
        self, task: ClassificationTask, examples: Examples, seed: int, rows: range
    ) -> None:
        self._task, self._examples, self._rows = task, examples, rows
        self._passes = Passes(len(examples), task.batch_size, seed)

    def __getitem__(self, step: int) -> Batch:
        """The rows of this process."""
        chosen = self._passes[step][self._rows.start : self._rows.stop]
        return self._task.batch(self._examples, chosen.tolist())


class ClassificationModule(SeededModule[Classifier]):
    """A classifier with its loss, in nats per example."""

    target = "example"

    def __init__(
        self,
        model: Classifier,
        task: ClassificationTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        super().__init__(model, optimizer, trainer, tokens_per_step=task.tokens_per_step)
        self._task = task
        self._right = 0

    def losses(self, batch: Any, state: ClassifierState) -> Iterator[Tensor]:  # noqa: ANN401
        """The negative log-likelihood of the classes, in nats."""
        logits = batch.logits(self.decoder, state)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if not self.training:
            self._right += int((logits.argmax(-1) == batch.labels).sum())
        smoothing = self._task.label_smoothing if self.training else 0.0
        yield cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)

    def num_losses(self, batch: Any) -> int:  # noqa: ANN401
        """One sum."""
        return 1

    def num_targets(self, batch: Any) -> Tensor:  # noqa: ANN401
        """Number of examples."""
        return torch.tensor(len(batch), device=batch.device)

    def on_validation_epoch_end(self) -> None:
        """Store loss and accuracy for the callbacks."""
        right, count = total(self.trainer, self._right, sum(n for _, n in self._sums))
        self._right = 0
        super().on_validation_epoch_end()
        self.validation["validation/accuracy"] = right / count
