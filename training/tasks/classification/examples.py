"""Labelled examples, and batches of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.learning.seeding import generator


class Example(NamedTuple):
    """What a model reads, and the class of it."""

    inputs: tuple[NDArray[Any], ...]
    """One array for each tower: ids (l,) or (y, x), or values (l, c) or (y, x, c)."""
    label: int


class Examples(ABC):
    """A split, whose examples are read or drawn when they are needed."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of examples."""

    @abstractmethod
    def __getitem__(self, index: int) -> Example:
        """An example, always the same for an index."""


@dataclass
class Arrays(Examples):
    """Examples with one input, which are in memory."""

    inputs: Sequence[NDArray[Any]]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        """An example."""
        return Example((self.inputs[index],), int(self.labels[index]))


@dataclass
class Part(Examples):
    """Some examples of others."""

    whole: Examples
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.indices)

    def __getitem__(self, index: int) -> Example:
        """An example."""
        return self.whole[int(self.indices[index])]


def some(examples: Examples, most: int | None) -> Examples:
    """At most `most` examples, chosen at random, always the same; None: all."""
    if most is None or len(examples) <= most:
        return examples
    chosen = generator(0, 0, "validation").permutation(len(examples))[:most]
    return Part(examples, np.sort(chosen))


@dataclass(frozen=True)
class Batch:
    """Examples as tensors."""

    inputs: Tensor
    """(b, *grid) ids, or (b, *grid, c) values; with two towers (b, 2, ...)."""
    mask: Tensor | None
    """(b, l) or (b, 2, l): False at padding; None without padding."""
    labels: Tensor
    """(b,) int64."""

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.labels.device

    def to(self, device: Any, **options: Any) -> Batch:  # noqa: ANN401 - as of Tensor.to
        """A copy on a device."""
        mask = None if self.mask is None else self.mask.to(device, **options)
        inputs, labels = (x.to(device, **options) for x in (self.inputs, self.labels))
        return Batch(inputs, mask, labels)

    def pin_memory(self) -> Batch:
        """A copy in pinned memory, from which copies to a GPU do not wait."""
        mask = None if self.mask is None else self.mask.pin_memory()
        return Batch(self.inputs.pin_memory(), mask, self.labels.pin_memory())

    def chunk(self, parts: int) -> list[Batch]:
        """The batch split into at most `parts` parts of equal size; the last may be smaller."""
        masks = [None] * parts if self.mask is None else self.mask.chunk(parts)
        pairs = zip(self.inputs.chunk(parts), masks, self.labels.chunk(parts), strict=False)
        return [Batch(*each) for each in pairs]


def batch_of(examples: Sequence[Example], length: int | None = None) -> Batch:
    """A batch; sequences of ids are padded with 0 to the longest, or to `length` without a mask."""
    labels = torch.tensor([example.label for example in examples])
    arrays = [array for example in examples for array in example.inputs]
    towers = len(examples[0].inputs)
    mask = None
    if arrays[0].ndim == 1:
        lengths = np.array([len(array) for array in arrays])
        rows = np.zeros((len(arrays), lengths.max() if length is None else length), np.int64)
        for row, array in zip(rows, arrays, strict=True):
            row[: len(array)] = array
        inputs = torch.from_numpy(rows)
        if length is None:
            mask = torch.arange(inputs.shape[1]) < torch.from_numpy(lengths)[:, None]
    else:
        inputs = torch.from_numpy(np.stack(arrays))
    if towers > 1:
        inputs = inputs.unflatten(0, (-1, towers))
        mask = None if mask is None else mask.unflatten(0, (-1, towers))
    return Batch(inputs, mask, labels)
