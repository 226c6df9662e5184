"""Inputs of classifiers as vectors on a grid: tokens, values, or images through convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        """Map (b, y, x, c) to (b, y', x', m).

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
