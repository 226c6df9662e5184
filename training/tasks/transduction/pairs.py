"""Pairs of a source and a target, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderState
from training.tasks.batches import TensorBatch, exists, padded
from training.tasks.generated import NO_TARGET


class Pair(NamedTuple):
    """A source and its target: ids, and further axes of their positions after the index."""

    source: NDArray[np.int64]
    """(s, 1 + axes)."""
    target: NDArray[np.int64]
    """(l, 1 + axes), from the start symbol to the last token."""


@dataclass(frozen=True)
class PairBatch(TensorBatch):
    """Pairs as tensors, padded at their ends; positions are the index and the further axes."""

    source: Tensor
    """(b, s) ids."""
    source_positions: Tensor
    """(1 or b, s, p)."""
    mask: Tensor
    """(b, s): False at padding."""
    inputs: Tensor
    """(b, l) ids: the targets without their last token."""
    positions: Tensor
    """(1 or b, l, p) of the inputs."""
    targets: Tensor
    """(b, l) ids after each input; NO_TARGET at padding."""

    def read_by(self, model: EncoderDecoder) -> EncoderDecoderState:
        """Return the state of a model that has read the sources."""
        state = model.init_state(len(self))
        return model.read(self.source, state, positions=self.source_positions, mask=self.mask)


def batch_of(pairs: Sequence[Pair]) -> PairBatch:
    """Return a batch of pairs."""
    sources, targets = ([*side] for side in zip(*pairs, strict=True))
    source, target = padded(sources), padded(targets)
    return PairBatch(
        source[..., 0],
        _positions(source),
        exists(sources),
        target[:, :-1, 0],
        _positions(target[:, :-1]),
        target[:, 1:, 0].where(exists(targets)[:, 1:], NO_TARGET),
    )


def _positions(rows: Tensor) -> Tensor:
    """Return the positions (1 or b, l, p) of rows (b, l, 1 + axes)."""
    index = torch.arange(rows.shape[1])[None, :, None]
    if rows.shape[2] == 1:
        return index
    return torch.cat([index.expand(len(rows), -1, -1), rows[..., 1:]], -1)
