"""Tasks with a source and a target: what generated pairs and translations have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from relpe.models.encoder_decoder.model import (
    EncoderDecoder,
    EncoderDecoderConfig,
    EncoderDecoderState,
)
from training.tasks.generated import NO_TARGET
from training.tasks.module import SeededModule
from training.tasks.task import Task
from training.tasks.transduction.pairs import Pair, PairBatch, batch_of

START = 0
"""Id of the symbol before the first token of a target."""


class TransductionModule(SeededModule[EncoderDecoder]):
    """An encoder-decoder with its loss, in nats per token of the targets."""

    def losses(self, batch: PairBatch, state: EncoderDecoderState) -> Iterator[Tensor]:
        """Return the negative log-likelihood of the targets, in nats."""
        smoothing = self._task.label_smoothing if self.decoder.training else 0.0
        yield nats_of(self.decoder, batch, state, smoothing)

    def num_targets(self, batch: PairBatch) -> Tensor:
        """Return the number of tokens of the targets."""
        return (batch.targets != NO_TARGET).sum()


@dataclass(frozen=True, kw_only=True)
class PairTask(Task):
    """Prediction of targets from sources."""

    module = TransductionModule

    model: EncoderDecoderConfig
    batch_size: int = 64
    label_smoothing: float = 0.0
    """Share of the probability that training divides among all tokens."""
    validation_examples: int = 128
    """Largest number of examples of a validation."""

    def batch(self, examples: Sequence[Pair], numbers: Sequence[int]) -> PairBatch:
        """Return a batch of some pairs."""
        return batch_of([examples[number] for number in numbers])


def nats_of(
    model: EncoderDecoder, batch: PairBatch, state: EncoderDecoderState, smoothing: float = 0.0
) -> Tensor:
    """Return the sum of the negative log-likelihood of the targets of a batch, in nats."""
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


def perplexity(nats: float, tokens: int) -> float:
    """Return the exponential of the mean of `nats` over tokens; infinite if it is too large."""
    return math.exp(min(nats / tokens, 700.0))
