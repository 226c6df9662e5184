"""Encodings to compare with: none, and rotations of queries and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from relpe.encodings.base import Encoding


@dataclass(frozen=True, kw_only=True)
class NoEncodingConfig:
    """Queries and keys as they are: the order is known from causality alone."""

    kind: Literal["none"] = "none"

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> NoEncoding:
        """Module for heads of this size."""
        return NoEncoding(head_dim)


class NoEncoding(Encoding):
    """See `NoEncodingConfig`."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding (Su et al., 2021)."""

    kind: Literal["rope"] = "rope"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wave length."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Rope:
        """Module for heads of this size, which must be even."""
        return Rope(self, head_dim)


class RopeCodes(NamedTuple):
    """Rotations of each position."""

    cos: Tensor  # (b or 1, l, 1, d/2)
    sin: Tensor


class Rope(Encoding):
    """See `RopeConfig`: pairs of features (i, i + d/2) are turned by position * base^(-2i/d)."""

    frequencies: Tensor

    def __init__(self, config: RopeConfig, head_dim: int) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(
                f"heads of {head_dim} features; rotary embedding turns pairs: use an even number"
            )
        self.out_features = head_dim
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        self.register_buffer("frequencies", config.base**-exponents, persistent=False)

    def prepare(self, positions: Tensor, state: tuple[()]) -> tuple[RopeCodes, tuple[()]]:
        """Rotations at `positions` (b or 1, l, 1); phases in float64."""
        angles = (positions[..., :1].double() * self.frequencies.double())[:, :, None] % (
            2 * math.pi
        )
        return RopeCodes(angles.cos().float(), angles.sin().float()), state

    def encode(self, q: Tensor, k: Tensor, codes: RopeCodes, layer: int) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys, (b, l, h, d)."""
        return _rotate(q, codes), _rotate(k, codes)


def _rotate(x: Tensor, codes: RopeCodes) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat(
        [first * codes.cos - second * codes.sin, first * codes.sin + second * codes.cos], -1
    )
