"""Learned kernels of the distance (Chi et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import Checked
from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.base import OffsetEncoding


@dataclass(frozen=True, kw_only=True)
class KerpleConfig(Checked):
    """Logits that fall with a learned function of the distance in each head (Chi et al., 2022)."""

    kind: Literal["kerple"] = "kerple"
    kernel: Literal["logarithmic", "power"] = "logarithmic"
    """logarithmic: −a ln(1 + c·distance); power: −a·distance^c, with c between 0 and 2. a and c are
    learned and positive."""
    span: int | None = None
    """Number of keys that a query attends to, itself included; None: all."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Kerple:
        """Return the module for a model of this shape.

        Each head of each layer has its own function.
        """
        return Kerple(self, num_layers, num_heads, head_dim)


class Kerple(OffsetEncoding):
    """See `KerpleConfig`; `raw` (2, layers, h) has the scales a and the rates c before softplus.

    With the power kernel, c is twice the sigmoid of the raw one. Initially, scales are those of
    ALiBi, 2^(-8i/h) in head i of h, and rates are 1.
    """

    heads_alike = True

    def __init__(
        self, config: KerpleConfig, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.config = config
        scales = 2 ** (-8 * torch.arange(1.0, num_heads + 1) / num_heads)
        rate = math.log(math.e - 1) if config.kernel == "logarithmic" else 0.0
        rates = torch.full((num_heads,), rate)
        start = torch.stack([scales.expm1().log(), rates])[:, None]
        self.raw = nn.Parameter(start.expand(-1, num_layers, -1).clone())

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return the logarithmic weights (o, h)."""
        # at least float32, since the 8 bits of bfloat16 are too few for a distance
        raw = self.raw[:, layer].to(torch.promote_types(self.raw.dtype, torch.float32))
        distance, scale, rate = points[0].abs().to(raw), functional.softplus(raw[0]), raw[1]
        if self.config.kernel == "logarithmic":
            return OffsetTable(log_weight=-scale * (functional.softplus(rate) * distance).log1p())
        # at distance 0 the weight is 1; the gradient of 0^c would be infinite
        power = distance.clamp(min=1) ** (2 * rate.sigmoid())
        return OffsetTable(log_weight=-scale * power.where(distance > 0, 0.0))
