"""Attention with linear biases (Press et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from relpe.checks import Checked
from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.base import OffsetEncoding


@dataclass(frozen=True, kw_only=True)
class AlibiConfig(Checked):
    """Logits that fall linearly with distance, at different rates by head (Press et al., 2022)."""

    kind: Literal["alibi"] = "alibi"
    span: int | None = None
    """Number of keys that a query attends to, itself included; None: all."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Alibi:
        """Return the module without parameters."""
        return Alibi(self, num_layers, num_heads, head_dim)


class Alibi(OffsetEncoding):
    """See `AlibiConfig`; in head i of h, counted from 1, logits fall by 2^(-8i/h) per step."""

    heads_alike = True

    def __init__(self, config: AlibiConfig, num_layers: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.num_heads = num_heads

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return the logarithmic weights, the same in all layers."""
        distances = points[0].abs()
        heads = torch.arange(1, self.num_heads + 1, device=places.device, dtype=places.dtype)
        return OffsetTable(log_weight=-distances * 2 ** (-8 * heads / self.num_heads))
