"""Tasks that classify: a dataclass with a `kind` and a method that returns a split."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from relpe.models.classifier.model import Classifier, ClassifierConfig, ClassifierState
from training.errors import TrainingError
from training.tasks.batches import parts_of
from training.tasks.classification.examples import LabelledBatch, LabelledExamples, batch_of
from training.tasks.module import SeededModule
from training.tasks.task import Measured, Results, Split, Task, mean_of


class ClassificationModule(SeededModule[Classifier]):
    """A classifier with its loss, in nats per example."""

    target = "example"
    _right = 0

    def losses(self, batch: Any, state: ClassifierState) -> Iterator[Tensor]:  # noqa: ANN401
        """Return the negative log-likelihood of the classes, in nats."""
        logits = batch.logits(self.decoder, state)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if not self.decoder.training:
            self._right += int((logits.argmax(-1) == batch.labels).sum())
        smoothing = self._task.label_smoothing if self.decoder.training else 0.0
        yield cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)

    def num_targets(self, batch: Any) -> Tensor:  # noqa: ANN401
        """Return the number of examples."""
        return torch.tensor(len(batch), device=batch.device)

    def measure(self, batch: Any) -> tuple[float, ...]:  # noqa: ANN401
        """Return the negative log-likelihood in nats, number of examples, and of right classes."""
        self._right = 0
        return *super().measure(batch), self._right

    def results(self, nats: float, count: float, right: float = 0.0) -> dict[str, float]:
        """Return the loss and accuracy, from sums of what was measured."""
        return super().results(nats, count) | {"validation/accuracy": right / count}


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(Task):
    """Prediction of the class of sequences, images, or pairs."""

    module = ClassificationModule
    noun = "a classifier"
    num_classes: ClassVar[int | None] = 10
    """Number of classes; None: that of the data, which is checked when they are read."""
    towers: ClassVar[int] = 1
    """Number of inputs of an example."""
    input_kinds: ClassVar[tuple[str, ...]] = ("tokens",)
    """Kinds of input that can read the examples."""

    model: ClassifierConfig
    batch_size: int = 32
    label_smoothing: float = 0.0
    """Share of the probability that training divides among all classes."""
    validation_examples: int = 1000
    """Largest number of examples of a validation."""
    test_examples: int | None = None
    """Largest number of examples that `relpe-train evaluate` measures; None: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
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

    @abstractmethod
    def split(self, name: Split) -> LabelledExamples:
        """Return the examples of a split.

        Raises:
            TrainingError: the data are missing or damaged.
        """

    @property
    def padded_length(self) -> int | None:
        """Length to which sequences are padded without a mask; None: padding is masked."""
        return None

    @property
    def tokens_per_step(self) -> int:
        """Positions of a step, padding included."""
        return self.batch_size * self.length * self.towers

    def test_set(self) -> LabelledExamples:
        """Return the examples that `relpe-train evaluate` measures."""
        return self.split("test").some(self.test_examples)

    def training_examples(self) -> LabelledExamples:
        """Return the training split."""
        return self.split("train")

    def held_out(self, world: int) -> LabelledExamples:
        """Return some of the validation split."""
        return self.split("validation").some(self.validation_examples)

    def batch(self, examples: LabelledExamples, numbers: Sequence[int]) -> LabelledBatch:
        """Return a batch of some examples."""
        return batch_of([examples[number] for number in numbers], self.padded_length)

    def content(self, examples: LabelledExamples) -> Iterator[bytes]:
        """Return the first examples."""
        for number in range(min(100, len(examples))):
            example = examples[number]
            arrays = (*example.inputs, *(() if example.positions is None else (example.positions,)))
            label = example.label.to_bytes(max(1, -(-example.label.bit_length() // 8)), "little")
            yield b"".join(x.tobytes() for x in arrays) + label

    def evaluate(self, model: Classifier, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the accuracy on a split."""
        examples = self.test_set() if split == "test" else self.split(split)
        device, count = next(model.parameters()).device, len(examples)
        right, nats = 0, 0.0
        with torch.inference_mode():
            for part in parts_of(range(count), batch_size):
                batch = self.batch(examples, part).to(device)
                logits = batch.logits(model)
                right += int((logits.argmax(-1) == batch.labels).sum())
                nats += float(cross_entropy(logits, batch.labels, reduction="sum"))
        first = self.batch(examples, range(min(batch_size, count))).to(device)
        results = {
            "task": self.kind,
            "data": self.origin,
            "split": split,
            "examples": count,
            "accuracy": right / count,
            "nats_per_example": nats / count,
        }
        return Measured(results, lambda: first.logits(model), len(first))

    def summary(self, results: Results) -> list[str]:
        """Return the accuracy with its standard error and the number of examples, in one line."""
        share, count = results["accuracy"], results["examples"]
        error = math.sqrt(share * (1 - share) / count)
        return [
            f"{self.kind} ({results['data']}), {results['split']}: {share:.2%} of {count:,} "
            f"examples right (± {error:.2%}), {results['nats_per_example']:.4f} nats per example"
        ]

    @staticmethod
    def columns(runs: Sequence[Results]) -> list[dict[str, str]]:
        """Return the accuracy."""
        first = runs[0]
        accuracy = mean_of([100 * results["accuracy"] for results in runs], 2)
        return [
            {
                "task": f"{first['task']} ({first['data']}), {first['split']}",
                "accuracy": f"{accuracy} %",
                "examples": f"{first['examples']:,}",
            }
        ]
