"""Copies of weights, which tell whether a cached result still belongs to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Weights(NamedTuple):
    """The weights from which a cached result was computed.

    They are compared by value. Versions of tensors would be cheaper, but writing to `p.data` does
    not change them, and tensors made in inference mode have none.
    """

    values: tuple[Tensor, ...] | None = None
    """Copies; None: there is no cached result."""

    @classmethod
    def of(cls, weights: Iterable[Tensor]) -> Weights:
        """Return the copies of weights."""
        return cls(tuple(weight.detach().clone() for weight in weights))

    def are_those_of(self, weights: Iterable[Tensor]) -> bool:
        """Return whether `weights` have these values, dtypes and devices; waits for the device."""
        if self.values is None:
            return False
        now = tuple(weights)
        return len(now) == len(self.values) and all(map(_same, self.values, now))


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
