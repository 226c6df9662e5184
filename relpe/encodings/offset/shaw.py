"""Learned vectors of clamped offsets (Shaw et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe.checks import Checked
from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.base import OffsetEncoding


@dataclass(frozen=True, kw_only=True)
class ShawConfig(Checked):
    """A learned vector for each offset, clamped to a window (Shaw et al., 2018), for keys only."""

    kind: Literal["shaw"] = "shaw"
    window: int = 64
    """Maximum offset with its own vector; larger offsets use that of the maximum."""
    span: int | None = None
    """Number of keys that a query attends to, itself included; None: all."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Shaw:
        """Return the module for a model of this shape; heads and layers share the vectors.

        Raises:
            ValueError: the window is less than 1.
        """
        if self.window < 1:
            raise ValueError(f"window is {self.window}, expected at least 1")
        return Shaw(self, num_layers, num_heads, head_dim)


class Shaw(OffsetEncoding):
    """See `ShawConfig`; the vector is row w + clip(query - key, -w, w) of `vectors` (2w + 1, d).

    Logits are q.k / sqrt(d) + q.vector; the positional term is not scaled.
    """

    def __init__(self, config: ShawConfig, num_layers: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.window, self.num_heads = config.window, num_heads
        self.vectors = nn.Parameter(torch.randn(2 * config.window + 1, head_dim) * head_dim**-0.5)

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return the vectors of the offsets, the same for all heads and layers."""
        rows = (-points[0][:, 0]).clamp(-self.window, self.window).long() + self.window
        scaled = self.vectors[rows] * self.vectors.shape[1] ** 0.5
        return OffsetTable(features=scaled[:, None].expand(-1, self.num_heads, -1))
