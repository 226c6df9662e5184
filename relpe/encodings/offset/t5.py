"""Learned biases of the distance, in buckets (Raffel et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe.checks import Checked, at_least
from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.base import OffsetEncoding


@dataclass(frozen=True, kw_only=True)
class T5Config(Checked):
    """A learned bias for each bucket of distances, shared by all layers (Raffel et al., 2020)."""

    kind: Literal["t5"] = "t5"
    num_buckets: int = 32
    """Number of buckets, even. The first half has one distance each, from 0; the others are spaced
    on a logarithmic scale."""
    max_distance: int = 128
    """Distance from which the last bucket is used; more than half the number of buckets."""
    span: int | None = None
    """Number of keys that a query attends to, itself included; None: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(2, num_buckets=self.num_buckets)
        if self.num_buckets % 2:
            raise ValueError(f"num_buckets is {self.num_buckets}, expected an even number")
        at_least(self.num_buckets // 2 + 1, max_distance=self.max_distance)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> T5:
        """Return the module for a model of this shape; layers share the biases."""
        return T5(self, num_layers, num_heads, head_dim)


class T5(OffsetEncoding):
    """See `T5Config`; `biases` (buckets, h) are added to the logits, initially zero.

    The original does not divide logits by sqrt(d); here they are divided, and biases are not.
    """

    heads_alike = True

    def __init__(self, config: T5Config, num_layers: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.config = config
        self.biases = nn.Parameter(torch.zeros(config.num_buckets, num_heads))

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return the biases as logarithmic weights (o, h), the same in all layers."""
        return OffsetTable(log_weight=self.biases[self.buckets(points[0][:, 0].abs())])

    def buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance (o,), int64."""
        exact, last = self.config.num_buckets // 2, self.config.num_buckets - 1
        ratio = (distances.double().clamp(min=exact) / exact).log()
        beyond = exact + ratio / math.log(self.config.max_distance / exact) * exact
        return distances.double().where(distances < exact, beyond).long().clamp(max=last)
