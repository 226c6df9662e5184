"""Pairs of a source and a target, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.tasks.generated import NO_TARGET


class Pair(NamedTuple):
    """A source and its target: ids, and further axes of their positions after the index."""

    source: NDArray[np.int64]
    """(s, 1 + axes)."""
    target: NDArray[np.int64]
    """(l, 1 + axes), from the start symbol to the last token."""


@dataclass(frozen=True)
class PairBatch:
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

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.source)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.source.device

    def to(self, device: Any, **options: Any) -> PairBatch:  # noqa: ANN401 - as of Tensor.to
        """A copy on a device."""
        return PairBatch(*(x.to(device, **options) for x in self._tensors))

    def pin_memory(self) -> PairBatch:
        """A copy in pinned memory, from which copies to a GPU do not wait."""
        return PairBatch(*(x.pin_memory() for x in self._tensors))

    def chunk(self, parts: int) -> list[PairBatch]:
        """The batch split into at most `parts` parts of equal size; the last may be smaller."""
        chunks = [x.expand(len(self), *x.shape[1:]).chunk(parts) for x in self._tensors]
        return [PairBatch(*each) for each in zip(*chunks, strict=True)]

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return (
            *(self.source, self.source_positions, self.mask),
            *(self.inputs, self.positions, self.targets),
        )


def batch_of(pairs: Sequence[Pair]) -> PairBatch:
    """A batch of pairs."""
    source, mask = _padded([pair.source for pair in pairs])
    target, exists = _padded([pair.target for pair in pairs])
    return PairBatch(
        source[..., 0],
        _positions(source),
        mask,
        target[:, :-1, 0],
        _positions(target[:, :-1]),
        target[:, 1:, 0].where(exists[:, 1:], NO_TARGET),
    )


def _padded(rows: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Rows (b, l, c) with zeros after their ends, and where they exist (b, l)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    exists = np.arange(padded.shape[1]) < lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(exists)


def _positions(rows: Tensor) -> Tensor:
    """Positions (1 or b, l, p) of rows (b, l, 1 + axes)."""
    index = torch.arange(rows.shape[1])[None, :, None]
    if rows.shape[2] == 1:
        return index
    return torch.cat([index.expand(len(rows), -1, -1), rows[..., 1:]], -1)
