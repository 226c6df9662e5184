"""Other encodings of offsets, and absolute ones: what SIREN is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe.encodings.base import Encoding, OffsetTable
from relpe.encodings.offset.offsets import OffsetEncoding
from relpe.encodings.offset.sinusoids import SinusoidNetwork, sinusoids
from relpe.encodings.offset.siren import RelativeEncoding
from relpe.encodings.offset.windows import WindowConfig


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig:
    """Sinusoids of the offset through a linear layer, as in Transformer-XL (Dai et al., 2019)."""

    kind: Literal["transformer_xl"] = "transformer_xl"
    num_sinusoids: int = 64
    """Features before the linear layer, an even number: sines and cosines."""
    base: float = 10_000.0
    """Ratio of the longest to the shortest wave length."""
    origin: float = 0.0
    """Added to every offset: the length less one gives the features of Alfons (2022)."""
    window: WindowConfig | None = None
    """Bounds what a query sees. None: no window."""
    shared: bool = False
    """One linear layer for all layers instead of one for each."""
    span: int | None = None
    """Keys that a query sees without a window, itself included; None: all."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Module for a model of this shape."""
        return RelativeEncoding(
            lambda layer, axis: SinusoidNetwork(
                self.num_sinusoids, num_heads * head_dim, base=self.base, origin=self.origin
            ),
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
            shared=self.shared,
            window=self.window,
            span=self.span,
        )


@dataclass(frozen=True, kw_only=True)
class ShawConfig:
    """A vector for each offset, clamped to a window (Shaw et al., 2018); for keys only."""

    kind: Literal["shaw"] = "shaw"
    window: int = 64
    """Largest offset with a vector of its own."""
    span: int | None = None
    """Keys that a query sees, itself included; None: all."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Shaw:
        """Module; heads and layers share the vectors.

        Raises:
            ValueError: a window without offsets.
        """
        if self.window < 1:
            raise ValueError(f"window {self.window}: expected one offset or more")
        return Shaw(self, num_layers, num_heads, head_dim)


class Shaw(OffsetEncoding):
    """See `ShawConfig`: row w + clip(query - key, -w, w) of `vectors` (2w + 1, d).

    Logits are q.k / sqrt(d) + q.vector: the positional term is not scaled.
    """

    def __init__(self, config: ShawConfig, num_layers: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.window, self.num_heads = config.window, num_heads
        self.vectors = nn.Parameter(torch.randn(2 * config.window + 1, head_dim) * head_dim**-0.5)

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """The vectors of the offsets, the same for all heads and layers."""
        rows = (-points[0][:, 0]).clamp(-self.window, self.window).long() + self.window
        scaled = self.vectors[rows] * self.vectors.shape[1] ** 0.5
        return OffsetTable(features=scaled[:, None].expand(-1, self.num_heads, -1))


@dataclass(frozen=True, kw_only=True)
class AlibiConfig:
    """Logits fall linearly with distance, at a rate of each head (Press et al., 2022)."""

    kind: Literal["alibi"] = "alibi"
    span: int | None = None
    """Keys that a query sees, itself included; None: all."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Alibi:
        """Module without parameters."""
        return Alibi(self, num_layers, num_heads, head_dim)


class Alibi(OffsetEncoding):
    """See `AlibiConfig`: head i of h, counted from 1, loses 2^(-8i/h) with each step."""

    def __init__(self, config: AlibiConfig, num_layers: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=num_layers, head_dim=head_dim, span=config.span)
        self.num_heads = num_heads

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Logarithmic weights, the same in all layers."""
        heads = torch.arange(1, self.num_heads + 1, device=places.device, dtype=places.dtype)
        return OffsetTable(log_weight=-places.abs() * 2 ** (-8 * heads / self.num_heads))


@dataclass(frozen=True, kw_only=True)
class SinusoidConfig:
    """Sines and cosines of the position, added to the embeddings (Vaswani et al., 2017)."""

    kind: Literal["sinusoid"] = "sinusoid"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wave length."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Sinusoid:
        """Module for a model as wide as all heads together, an even number."""
        return Sinusoid(self, num_heads * head_dim, head_dim)


class Sinusoid(Encoding):
    """See `SinusoidConfig`; embeddings are multiplied by the square root of their width first."""

    def __init__(self, config: SinusoidConfig, width: int, head_dim: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"embeddings of {width} features; sinusoids need an even number")
        self.out_features = head_dim
        self.width, self.base = width, config.base

    def prepare(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        """The table at `positions` (1 or b, l, 1): (1 or b, l, m) float64."""
        return sinusoids(positions[..., 0].double(), self.width, self.base), state

    def embed(self, x: Tensor, codes: Tensor) -> Tensor:
        """Scaled embeddings (b, l, m) and the table."""
        return x * math.sqrt(self.width) + codes.to(x)


@dataclass(frozen=True, kw_only=True)
class LearnedPositionConfig:
    """A learned vector for each position, added to the embeddings (Gehring et al., 2017)."""

    kind: Literal["learned"] = "learned"
    num_positions: int = 2048
    """Vectors; later positions get the last one."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> LearnedPosition:
        """Module for a model as wide as all heads together.

        Raises:
            ValueError: no vectors.
        """
        if self.num_positions < 1:
            raise ValueError(f"num_positions {self.num_positions}: expected 1 or more")
        return LearnedPosition(self, num_heads * head_dim, head_dim)


class LearnedPosition(Encoding):
    """See `LearnedPositionConfig`; `vectors` are (positions, m)."""

    def __init__(self, config: LearnedPositionConfig, width: int, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
        self.vectors = nn.Parameter(torch.randn(config.num_positions, width) * 0.02)

    def prepare(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        """The vectors at `positions` (1 or b, l, 1), rounded down: (1 or b, l, m)."""
        rows = positions[..., 0].floor().long().clamp(0, len(self.vectors) - 1)
        return self.vectors[rows], state

    def embed(self, x: Tensor, codes: Tensor) -> Tensor:
        """Embeddings (b, l, m) and the vectors."""
        return x + codes.to(x)
