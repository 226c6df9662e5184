"""Tasks with a source and a target: what generated pairs and translations have in common."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from relpe.models.encoder_decoder.model import (
    EncoderDecoder,
    EncoderDecoderConfig,
    EncoderDecoderState,
)
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes
from training.tasks.batches import StepData
from training.tasks.generated import NO_TARGET
from training.tasks.module import SeededModule, new_model
from training.tasks.transduction.pairs import Pair, PairBatch, batch_of

START = 0
"""Id of the symbol before the first token of a target."""


@dataclass(frozen=True, kw_only=True)
class PairTask(ABC):
    """Prediction of targets from sources."""

    axes: ClassVar[int] = 1
    """Number of axes of positions."""

    kind: str
    """Selects the task."""
    model: EncoderDecoderConfig
    """Configuration of the model."""
    batch_size: int = 64
    """Examples per step, in all processes and micro-batches together."""
    label_smoothing: float = 0.0
    """Share of the probability that training divides among all tokens."""
    validation_examples: int = 128
    """Largest number of examples of a validation."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "validation_examples"):
            check_range(name, getattr(self, name), 1)
        check_range("label_smoothing", self.label_smoothing, 0, 1)

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the task for tables."""

    @property
    @abstractmethod
    def tokens_per_step(self) -> int:
        """Target tokens of a step; budgets count every step like this."""

    @abstractmethod
    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> PairData:
        """Build the data module of one process.

        Raises:
            TrainingError: the data cannot be used, or the batch cannot be divided among the
                processes.
        """

    def build_module(
        self, optimizer: OptimizerConfig, trainer: TrainerConfig
    ) -> TransductionModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        model = new_model(self.model, trainer.seed, self.axes)
        return TransductionModule(model, self, optimizer, trainer)

    def decoder_config(self, folder: object) -> EncoderDecoderConfig:
        """The configuration of the model; it needs nothing from a folder."""
        return self.model


class PairData(StepData, ABC):
    """Training batches, starting at the trainer's current step, and validation pairs."""

    validates = True
    """Whether there are validation pairs."""

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Identity of the data for run.json."""
        content, source = self.identity()
        digest = hashlib.sha256(content.encode()).hexdigest()
        return {"hash": digest, "source": source, "splits": {}}

    @abstractmethod
    def identity(self) -> tuple[str, str]:
        """What identifies the pairs, and where they come from."""

    @abstractmethod
    def held_out(self, processes: Processes) -> Sequence[Pair]:
        """The validation pairs of a process; all processes have the same number of them."""

    def val_dataloader(self) -> DataLoader[Any]:
        """The validation pairs of this process."""
        pairs, size = self.held_out(self._processes), self._rows
        if not len(pairs):
            raise TrainingError("there are fewer validation examples than processes")
        batches = [batch_of(pairs[start : start + size]) for start in range(0, len(pairs), size)]
        return DataLoader(batches, batch_size=None, pin_memory=self._on_gpu)  # type: ignore[arg-type]


class TransductionModule(SeededModule[EncoderDecoder]):
    """An encoder-decoder with its loss, in nats per token of the targets."""

    def __init__(
        self,
        model: EncoderDecoder,
        task: PairTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        super().__init__(model, optimizer, trainer, tokens_per_step=task.tokens_per_step)
        self._task = task

    def losses(self, batch: PairBatch, state: EncoderDecoderState) -> Iterator[Tensor]:
        """The negative log-likelihood of the targets, in nats."""
        smoothing = self._task.label_smoothing if self.training else 0.0
        yield nats_of(self.decoder, batch, state, smoothing)

    def num_losses(self, batch: PairBatch) -> int:
        """One sum."""
        return 1

    def num_targets(self, batch: PairBatch) -> Tensor:
        """Number of tokens of the targets."""
        return (batch.targets != NO_TARGET).sum()


def nats_of(
    model: EncoderDecoder, batch: PairBatch, state: EncoderDecoderState, smoothing: float = 0.0
) -> Tensor:
    """Sum of the negative log-likelihood of the targets of a batch, in nats."""
    state = model.read(batch.source, state, positions=batch.source_positions, mask=batch.mask)
    logits, _ = model(batch.inputs, state, positions=batch.positions)
    logits = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    return cross_entropy(
        logits,
        batch.targets.flatten(),
        ignore_index=NO_TARGET,
        reduction="sum",
        label_smoothing=smoothing,
    )
