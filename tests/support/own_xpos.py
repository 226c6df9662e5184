"""xPos (Sun et al., 2022), written as CONTRIBUTING.md says, outside of the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from relpe import NoState, QueryKeyEncoding


@dataclass(frozen=True, kw_only=True)
class XPosConfig:
    """Rotations whose length falls with the distance, at a rate for each pair of features."""

    kind: Literal["xpos"] = "xpos"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wavelength."""
    scale: float = 512.0
    """Number of positions after which pair i of n is multiplied by (i / n + 0.4) / 1.4."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> XPos:
        """Module for heads of this size; `head_dim` must be even."""
        return XPos(self, head_dim)


class XPosCodes(NamedTuple):
    """Rotations and lengths of each position."""

    cos: Tensor  # (1 or b, l, 1, d/2)
    sin: Tensor
    length: Tensor


class XPos(QueryKeyEncoding[XPosCodes, NoState]):
    """See `XPosConfig`. Lengths of keys grow with the position, up to some 10,000 positions."""

    fits = ("softmax", "windowed")

    def __init__(self, config: XPosConfig, head_dim: int) -> None:
        super().__init__()
        self.config, self.out_features = config, head_dim

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[XPosCodes, NoState]:
        """Rotations and lengths at `positions` (1 or b, l, 1)."""
        share = torch.arange(0, self.out_features, 2, device=positions.device) / self.out_features
        places = positions[..., :1].double()[:, :, None]
        angles = places * self.config.base ** -share.double()
        length = ((share.double() + 0.4) / 1.4) ** (places / self.config.scale)
        return XPosCodes(angles.cos(), angles.sin(), length), state

    def encode(self, q: Tensor, k: Tensor, codes: XPosCodes, layer: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (b, l, h, d), turned and made longer or shorter."""
        return turned(q, codes, codes.length), turned(k, codes, 1 / codes.length)


def turned(x: Tensor, codes: XPosCodes, length: Tensor) -> Tensor:
    """x (b, l, h, d) with each pair of features turned and multiplied by its length."""
    first, second = x.double().chunk(2, -1)
    cos, sin = codes.cos * length, codes.sin * length
    both = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
    return both.to(torch.promote_types(x.dtype, torch.float32))
