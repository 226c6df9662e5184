"""Inputs of classifiers as vectors on a grid: tokens, values, or images through convolutions.

The resolution of such a grid can be reduced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import Checked, at_least


@dataclass(frozen=True, kw_only=True)
class TokenInputConfig(Checked):
    """Token ids, on a sequence or grid; each has a learned vector."""

    kind: Literal["tokens"] = "tokens"
    vocabulary_size: int
    """Number of token ids."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, vocabulary_size=self.vocabulary_size)

    def build(self, width: int) -> nn.Module:
        """Return the module from (b, *grid) int64 to (b, *grid, m)."""
        return nn.Embedding(self.vocabulary_size, width)


@dataclass(frozen=True, kw_only=True)
class ValueInputConfig(Checked):
    """Real numbers, on a sequence or grid, one or several for each position."""

    kind: Literal["values"] = "values"
    channels: int = 1
    """Numbers for each position (c)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, channels=self.channels)

    def build(self, width: int) -> nn.Module:
        """Return the module from (b, *grid, c) to (b, *grid, m)."""
        return nn.Linear(self.channels, width)


@dataclass(frozen=True, kw_only=True)
class ConvolutionInputConfig(Checked):
    """An image through convolutions and pooling, which leave a smaller grid (Hassani et al., 2021).

    This is the tokenizer of the compact convolutional Transformer. By default, it makes a grid of
    10 x 10 positions of an image of 32 x 32.
    """

    kind: Literal["convolution"] = "convolution"
    channels: int = 3
    """Numbers for each pixel (c)."""
    layers: int = 1
    """Number of convolutions, each with a ReLU and a pooling after it."""
    kernel: int = 3
    """Height and width of a convolution, without padding and with a stride of 1."""
    pool: int = 3
    """Height and width of the regions of which the maximum is taken; 1: no pooling."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = {"channels": self.channels, "layers": self.layers}
        at_least(1, **sizes, kernel=self.kernel, pool=self.pool)

    def build(self, width: int) -> nn.Module:
        """Return the module from (b, y, x, c) to (b, y', x', m)."""
        return Convolutions(self, width)


class OnGrid(NamedTuple):
    """Vectors on a grid in order, the last axis varying fastest, or in sequences."""

    x: Tensor  # (b, l, m)
    grid: tuple[int, ...]  # extents, whose product is l
    positions: Tensor  # (1 or b, l, p)
    exists: Tensor | None = None  # (b, l) bool: False at the padding at the end of a sequence
    step: int = 1
    """Places of the input on each axis for each place of the grid."""

    def reduced(self, side: int) -> OnGrid:
        """Maxima over regions of `side` places on each axis, at the position of their first place.

        What remains at the end of an axis, or of the existing part of a row, is dropped.
        """
        if side == 1:
            return self

        def regions(x: Tensor) -> Tensor:
            """Regions (b, l', side^n, f) of x (b, l, f)."""
            x = x.unflatten(1, self.grid)
            for axis, size in enumerate(grid, start=1):
                x = x.narrow(axis, 0, size * side).unflatten(axis, (size, side))
                x = x.movedim(axis + 1, -2)
            return x.flatten(1, len(grid)).flatten(2, -2)

        grid = tuple(extent // side for extent in self.grid)
        exists = None if self.exists is None else regions(self.exists[..., None])[..., 0].all(2)
        x = regions(self.x).amax(2)
        return OnGrid(x, grid, regions(self.positions)[:, :, 0], exists, self.step * side)

    def last(self) -> Tensor:
        """Return the last vector of each row (b, m); zeros without one."""
        if self.exists is None:
            return self.x[:, -1]
        place = self.exists.sum(1)[:, None, None] - 1
        vectors = self.x.take_along_dim(place.clamp(min=0), 1)
        return vectors.where(place >= 0, 0.0)[:, 0]

    def maximum(self) -> Tensor:
        """Maximum of each feature (b, m); zeros without a vector."""
        if self.exists is None:
            return self.x.amax(1)
        top = self.x.masked_fill(~self.exists[..., None], -math.inf).amax(1)
        return top.where(self.exists.any(1, keepdim=True), 0.0)

    def mean(self, scores: Tensor | None = None) -> Tensor:
        """Mean (b, m), with weights that are the softmax of `scores` (b, l); None: equal ones."""
        exists = self.exists
        if exists is None:
            exists = torch.ones(1, self.x.shape[1], dtype=torch.bool, device=self.x.device)
        raw = exists.to(self.x.dtype)
        if scores is not None:
            scores = scores.masked_fill(~exists, -math.inf)
            top = scores.detach().amax(1, keepdim=True)
            raw = torch.exp(scores - top.where(top.isfinite(), 0.0))
        total = raw.sum(1, keepdim=True)
        weights = (raw / total.where(total > 0, 1.0)).expand(self.x.shape[0], -1)
        return torch.einsum("bl,blm->bm", weights, self.x.where(exists[..., None], 0.0))


InputConfig = TokenInputConfig | ValueInputConfig | ConvolutionInputConfig


class Convolutions(nn.Module):
    """See `ConvolutionInputConfig`."""

    def __init__(self, config: ConvolutionInputConfig, width: int) -> None:
        super().__init__()
        self.pool = config.pool
        channels = [config.channels, *[width] * config.layers]
        self.layers = nn.ModuleList(
            nn.Conv2d(before, width, config.kernel, bias=False) for before in channels[:-1]
        )

    def forward(self, x: Tensor) -> Tensor:
        """(b, y, x, c) to (b, y', x', m).

        Raises:
            ValueError: the image is too small.
        """
        shape = tuple(x.shape)
        x = x.movedim(-1, 1)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv2d)
            if min(x.shape[2:]) < layer.kernel_size[0] + self.pool - 1:
                raise ValueError(f"the images {shape} are too small for {len(self.layers)} layers")
            x = functional.max_pool2d(torch.relu(layer(x)), self.pool)
        return x.movedim(1, -1)
