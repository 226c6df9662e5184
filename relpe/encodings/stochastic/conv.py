"""Convolutional stochastic positional encoding (Liutkus et al., 2021, section 3.2).

Two learned filters per head and feature; lags of the length of a filter or more have a covariance
of zero, except for the gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseConfig, Filters


@dataclass(frozen=True, kw_only=True)
class ConvSPEConfig(FilteredNoiseConfig):
    """Convolutional stochastic positional encoding (Liutkus et al., 2021)."""

    kind: Literal["conv_spe"] = "conv_spe"
    taps: tuple[int, ...] = (128,)
    """Taps of a filter along each axis of positions (one, two or three): offsets of at
    least this many positions score nothing."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> ConvSPE:
        """Module for a model of this shape, shared by its layers; gates are always per layer.

        Raises:
            ValueError: not one, two or three axes, or an axis without taps.
        """
        return ConvSPE(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class ConvSPE(FilteredNoise):
    """`ConvSPEConfig` as a module; `query_filter` and `key_filter` (h, d, *taps), and raw gates.

    Where layers have their own, filters are (layers, h, d, *taps). With z the noise, a query's code
    at m is sum_i query_filter[i] z(m + i), a key's at n sum_j key_filter[j] z(n + j): the
    covariance at lag m - n is sum_i query_filter[i] key_filter[i + m - n]. Initialization as in the
    original, spe.py (2021): positive, with variances near 2/3.
    """

    def __init__(
        self, config: ConvSPEConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        if min(config.taps, default=1) < 1:
            raise ValueError(f"taps {config.taps}: expected at least one along each axis")
        super().__init__(
            config,
            axes=len(config.taps),
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
        )
        self.config = config
        layers = () if config.shared_by_layers else (num_layers,)
        shape = (*layers, num_heads, head_dim, *config.taps)
        scale = math.sqrt(math.prod(config.taps) / 2)
        self.query_filter = nn.Parameter(torch.rand(shape) / scale)
        self.key_filter = nn.Parameter(torch.rand(shape) / scale)

    def filters(self) -> Filters:
        """The filters, which read from the position onwards."""
        return Filters(torch.stack([self.query_filter, self.key_filter]), (0,) * self.axes)
