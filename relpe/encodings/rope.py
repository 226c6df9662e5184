"""Rotary position embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from relpe.checks import Checked, positive
from relpe.encodings.base import NoState, QueryKeyEncoding, check_codes


@dataclass(frozen=True, kw_only=True)
class RopeConfig(Checked):
    """Rotary position embedding (Su et al., 2021)."""

    kind: Literal["rope"] = "rope"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wavelength."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(base=self.base)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Rope:
        """Return the module for heads of this size; `head_dim` must be even."""
        return Rope(self, num_heads, head_dim)


class RopeCodes(NamedTuple):
    """Rotations of each position."""

    cos: Tensor  # (b or 1, l, h or 1, d/2)
    sin: Tensor


class Rope(QueryKeyEncoding[RopeCodes, NoState]):
    """See `RopeConfig`; features i and i + d/2 are rotated by position * base^(-2i/d)."""

    # relu of rotated vectors does not give relative scores
    fits = ("softmax", "windowed", "favor", "delta")
    heads_alike = True
    codes_by_position = True
    rows_by_position = True

    def __init__(self, config: RopeConfig, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.config = config
        check_even(head_dim)
        self.heads, self.out_features = (num_heads, head_dim), head_dim

    @property
    def partners(self) -> tuple[int, ...]:
        """See `QueryKeyEncoding.partners`."""
        size = self.out_features
        return tuple((feature + size // 2) % size for feature in range(size))

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[RopeCodes, NoState]:
        """Return the rotations at `positions` (b or 1, l, 1); phases in float64."""
        frequencies = frequencies_of(self.config.base, self.out_features, positions.device)
        angles = (positions[..., :1].double() * frequencies)[:, :, None] % (2 * math.pi)
        return RopeCodes(angles.cos(), angles.sin()), state

    def encode(self, q: Tensor, k: Tensor, codes: RopeCodes, layer: int) -> tuple[Tensor, Tensor]:
        """Return the rotated queries and keys, (b, l, h, d)."""
        for x in (q, k):
            check_codes(codes, RopeCodes, _length, x)
        return rotate(q, codes), rotate(k, codes)


def _length(codes: RopeCodes) -> int:
    return codes.cos.shape[1]


def check_even(head_dim: int) -> None:
    """Check that the features of a head can be paired.

    Raises:
        ValueError: they cannot.
    """
    if head_dim % 2:
        raise ValueError(
            f"heads have {head_dim} features, expected an even number for rotary embedding"
        )


def frequencies_of(base: float, head_dim: int, device: torch.device) -> Tensor:
    """Return the angles per position of the pairs of features, base^(-2i/d), (d/2) in float64."""
    return base ** -(torch.arange(0, head_dim, 2, device=device).double() / head_dim)


def rotate(x: Tensor, codes: RopeCodes) -> Tensor:
    """Return the features (b, l, h, d) with pairs (i, i + d/2) rotated; float32 or wider."""
    cos, sin = (turn.to(torch.promote_types(x.dtype, torch.float32)) for turn in codes)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
