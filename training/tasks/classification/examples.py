"""Labelled examples, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.models.classifier import Classifier, ClassifierState
from training.learning.seeding import generator


class Example(NamedTuple):
    """What a model reads, and the class of it."""

    inputs: tuple[NDArray[Any], ...]
    """One array for each tower: ids (l,) or (y, x), or values (l, c) or (y, x, c)."""
    label: int
    positions: NDArray[np.float64] | None = None
    """(l,): position of each value of a sequence; None: its place."""


@dataclass(frozen=True)
class Examples:
    """A split, whose examples are read or drawn when they are needed.

    `read` returns the same example for an index each time, and can be pickled.
    """

    count: int
    read: Callable[[int], Example]

    def __len__(self) -> int:
        """Number of examples."""
        return self.count

    def __getitem__(self, index: int) -> Example:
        """An example."""
        return self.read(index)

    def part(self, indices: NDArray[np.int64]) -> Examples:
        """Some of the examples."""
        return Examples(len(indices), partial(_of_part, self.read, indices))

    def some(self, most: int | None) -> Examples:
        """At most `most` examples, chosen at random, always the same; None: all."""
        if most is None or len(self) <= most:
            return self
        chosen = generator(0, 0, "validation").permutation(len(self))[:most]
        return self.part(np.sort(chosen))


def _of_part(read: Callable[[int], Example], indices: NDArray[np.int64], index: int) -> Example:
    return read(int(indices[index]))


def in_memory(examples: Sequence[Example]) -> Examples:
    """Examples that are in memory."""
    return Examples(len(examples), examples.__getitem__)


@dataclass(frozen=True)
class Batch:
    """Examples as tensors."""

    inputs: Tensor
    """(b, *grid) ids, or (b, *grid, c) values; with two towers (b, 2, ...)."""
    mask: Tensor | None
    """(b, l) or (b, 2, l): False at padding; None without padding."""
    labels: Tensor
    """(b,) int64."""
    positions: Tensor | None = None
    """(b, l, 1) float64 of sequences; None: their places."""

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.labels.device

    def logits(self, model: Classifier, state: ClassifierState | None = None) -> Tensor:
        """Logits (b, c) of the classes; `state` is that of `Classifier`."""
        return model(self.inputs, state, positions=self.positions, mask=self.mask)

    def to(self, device: Any, **options: Any) -> Batch:  # noqa: ANN401 - as of Tensor.to
        """A copy on a device."""
        return self._map(lambda x: x.to(device, **options))

    def pin_memory(self) -> Batch:
        """A copy in pinned memory, from which copies to a GPU do not wait."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        inputs, mask, labels, positions = (
            None if x is None else change(x)
            for x in (self.inputs, self.mask, self.labels, self.positions)
        )
        assert inputs is not None
        assert labels is not None
        return Batch(inputs, mask, labels, positions)

    def chunk(self, parts: int) -> list[Batch]:
        """The batch split into at most `parts` parts of equal size; the last may be smaller."""
        size = -(-len(self) // parts)
        return [
            self._map(lambda x, start=start: x[start : start + size])
            for start in range(0, len(self), size)
        ]


def batch_of(examples: Sequence[Example], length: int | None = None) -> Batch:
    """A batch; sequences are padded with 0 to the longest, or to `length` without a mask."""
    labels = torch.tensor([example.label for example in examples])
    arrays = [array for example in examples for array in example.inputs]
    towers = len(examples[0].inputs)
    mask = None
    lengths = np.array([len(array) for array in arrays])
    if arrays[0].ndim == 1 or lengths.min() < lengths.max():
        inputs = _padded(arrays, length)
        if length is None:
            mask = torch.arange(inputs.shape[1]) < torch.from_numpy(lengths)[:, None]
    else:
        inputs = torch.from_numpy(np.stack(arrays))
    if towers > 1:
        inputs = inputs.unflatten(0, (-1, towers))
        mask = None if mask is None else mask.unflatten(0, (-1, towers))
    return Batch(inputs, mask, labels, _positions(examples))


def _padded(arrays: Sequence[NDArray[Any]], length: int | None = None) -> Tensor:
    """Ids (n, l) int64, or values (n, l, c), with zeros to the longest or to `length`."""
    longest = max(map(len, arrays)) if length is None else length
    kind = np.int64 if arrays[0].ndim == 1 else arrays[0].dtype
    rows = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), kind)
    for row, array in zip(rows, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(rows)


def _positions(examples: Sequence[Example]) -> Tensor | None:
    """Positions (b, l, 1) of sequences, if any of them has others than places."""
    if all(example.positions is None for example in examples):
        return None
    rows = [
        np.arange(len(example.inputs[0])) if example.positions is None else example.positions
        for example in examples
    ]
    return _padded([row.astype(np.float64)[:, None] for row in rows])
