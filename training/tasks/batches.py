"""Batches of examples: as tensors, and which examples the batch of a step has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from training.errors import TrainingError
from training.learning.seeding import generator


def parts_of(numbers: Sequence[int], size: int, label: str = "evaluate") -> tqdm[Sequence[int]]:
    """Return the parts of at most `size` numbers, with a progress bar."""
    parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return tqdm(parts, desc=label, disable=None, delay=2)


@dataclass(frozen=True)
class TensorBatch:
    """Examples as tensors, whose first axis is the examples, or 1 if they are equal for all.

    The first field of a subclass has the first axis of all examples; others may be None.
    """

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._first)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self._first.device

    @property
    def _first(self) -> Tensor:
        return getattr(self, fields(self)[0].name)

    def to(self, device: Any, **options: Any) -> Self:  # noqa: ANN401 - as of Tensor.to
        """Return a copy on a device."""
        return self._map(lambda x: x.to(device, **options))

    def pin_memory(self) -> Self:
        """Return a copy in pinned memory, from which copies to a GPU do not wait."""
        return self._map(Tensor.pin_memory)

    def chunk(self, parts: int) -> list[Self]:
        """Return the batch split into at most `parts` parts of equal size.

        The last part may be smaller.
        """
        count = len(self)
        size = -(-count // parts)
        whole = self._map(lambda x: x.expand(count, *x.shape[1:]))
        return [
            whole._map(lambda x, start=start: x[start : start + size])
            for start in range(0, count, size)
        ]

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return replace(self, **{name: change(x) for name, x in values if x is not None})


def padded(arrays: Sequence[NDArray[Any]], length: int | None = None) -> Tensor:
    """Return ids (n, l) int64, or values (n, l, c), with zeros to the longest or to `length`."""
    longest = max(map(len, arrays)) if length is None else length
    kind = np.int64 if arrays[0].ndim == 1 else arrays[0].dtype
    rows = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), kind)
    for row, array in zip(rows, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(rows)


def exists(arrays: Sequence[NDArray[Any]]) -> Tensor:
    """Return which places of `padded` arrays are not padding: (n, l)."""
    lengths = torch.tensor([*map(len, arrays)])
    return torch.arange(int(lengths.max())) < lengths[:, None]


class NewNumbers:
    """Numbers of examples that no other step has; a function of (seed, step)."""

    def __init__(self, batch_size: int, seed: int) -> None:
        self._size, self._seed = batch_size, seed

    def __getitem__(self, step: int) -> range:
        """Return the numbers of the examples."""
        first = (self._seed << 40) + step * self._size
        return range(first, first + self._size)


class Passes:
    """Which examples the batch of a step has; a function of (seed, step).

    Each pass over the examples has another order; those that do not fill a batch are left out.
    With `lengths` (count,), examples of a batch have similar lengths.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        seed: int,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        if count < batch_size:
            raise TrainingError(
                f"batch_size is {batch_size}, but there are {count} training examples"
            )
        self._count, self._size, self._seed = count, batch_size, seed
        self._lengths = lengths
        self._order = (-1, np.empty(0, np.int64))

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        """Return the numbers (batch_size,) of the examples."""
        number, place = divmod(step, self._count // self._size)
        if self._order[0] != number:
            draws = generator(self._seed, number, "data")
            order = draws.permutation(self._count)
            if self._lengths is not None:
                order = order[: self._count // self._size * self._size]
                order = order[np.argsort(self._lengths[order], kind="stable")]
                order = draws.permutation(order.reshape(-1, self._size)).ravel()
            self._order = (number, order)
        return self._order[1][place * self._size :][: self._size]
