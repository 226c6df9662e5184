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

from relpe.models.classifier.model import Classifier, ClassifierState
from training.learning.seeding import generator
from training.tasks.batches import TensorBatch, exists, padded


class Example(NamedTuple):
    """What a model reads, and the class of it."""

    inputs: tuple[NDArray[Any], ...]
    """One array for each tower: ids (l,) or (y, x), or values (l, c) or (y, x, c)."""
    label: int
    positions: NDArray[np.float64] | None = None
    """(l,): position of each value of a sequence; None: its place."""


@dataclass(frozen=True)
class LabelledExamples:
    """A split, whose examples are read or drawn when they are needed.

    `read` returns the same example for an index each time, and can be pickled.
    """

    count: int
    read: Callable[[int], Example]

    def __len__(self) -> int:
        """Return the number of examples."""
        return self.count

    def __getitem__(self, index: int) -> Example:
        """Return an example."""
        return self.read(index)

    def part(self, indices: NDArray[np.int64]) -> LabelledExamples:
        """Return some of the examples."""
        return LabelledExamples(len(indices), partial(_of_part, self.read, indices))

    def some(self, most: int | None) -> LabelledExamples:
        """Return at most `most` examples, chosen at random, always the same; None: all."""
        if most is None or len(self) <= most:
            return self
        indices = generator(0, 0, "validation").permutation(len(self))[:most]
        return self.part(np.sort(indices))


def _of_part(read: Callable[[int], Example], indices: NDArray[np.int64], index: int) -> Example:
    return read(int(indices[index]))


def in_memory(examples: Sequence[Example]) -> LabelledExamples:
    """Return the examples that are in memory."""
    return LabelledExamples(len(examples), examples.__getitem__)


@dataclass(frozen=True)
class LabelledBatch(TensorBatch):
    """Examples as tensors."""

    inputs: Tensor
    """(b, *grid) ids, or (b, *grid, c) values; with two towers (b, 2, ...)."""
    mask: Tensor | None
    """(b, l) or (b, 2, l): False at padding; None without padding."""
    labels: Tensor
    """(b,) int64."""
    positions: Tensor | None = None
    """(b, l, 1) float64 of sequences; None: their places."""

    def logits(self, model: Classifier, state: ClassifierState | None = None) -> Tensor:
        """Return the logits (b, c) of the classes; `state` is that of `Classifier`."""
        return model(self.inputs, state, positions=self.positions, mask=self.mask)


def batch_of(examples: Sequence[Example], length: int | None = None) -> LabelledBatch:
    """Return a batch; sequences are padded with 0 to the longest, or to `length` without a mask."""
    labels = torch.tensor([example.label for example in examples])
    arrays = [array for example in examples for array in example.inputs]
    towers = len(examples[0].inputs)
    mask = None
    if arrays[0].ndim == 1 or len({*map(len, arrays)}) > 1:
        inputs = padded(arrays, length)
        mask = exists(arrays) if length is None else None
    else:
        inputs = torch.from_numpy(np.stack(arrays))
    if towers > 1:
        inputs = inputs.unflatten(0, (-1, towers))
        mask = None if mask is None else mask.unflatten(0, (-1, towers))
    return LabelledBatch(inputs, mask, labels, _positions(examples))


def _positions(examples: Sequence[Example]) -> Tensor | None:
    """Return the positions (b, l, 1) of sequences, if any of them has others than places."""
    if all(example.positions is None for example in examples):
        return None
    rows = [
        np.arange(len(example.inputs[0])) if example.positions is None else example.positions
        for example in examples
    ]
    return padded([row.astype(np.float64)[:, None] for row in rows])
