"""Convolutional stochastic positional encoding (Liutkus et al., 2021, section 3.2).

There are two learned filters per head and feature. Apart from the gate, the covariance is zero at
lags of at least the length of a filter.
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
    """Length of a filter along each axis of the positions (one, two or three axes). Offsets of at
    least this length have a score of zero."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> ConvSPE:
        """Module for a model of this shape, shared by its layers; gates are always per layer.

        Raises:
            ValueError: there are not one to three axes, or an axis has no taps.
        """
        return ConvSPE(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class ConvSPE(FilteredNoise):
    """See `ConvSPEConfig`; parameters: `query_filter`, `key_filter` (h, d, *taps) and raw gates.

    If layers have their own filters, these are (layers, h, d, *taps). With z the noise, the code of
    a query at m is sum_i query_filter[i] z(m + i), and that of a key at n is
    sum_j key_filter[j] z(n + j). Their covariance at lag m - n is
    sum_i query_filter[i] key_filter[i + m - n]. Initial filters are as in the original, spe.py
    (2021): positive, with variances near 2/3.
    """

    def __init__(
        self, config: ConvSPEConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        if min(config.taps, default=1) < 1:
            raise ValueError(f"taps are {config.taps}, expected at least 1 along each axis")
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
        """The filters, which read the noise from the position onwards."""
        return Filters(torch.stack([self.query_filter, self.key_filter]), (0,) * self.axes)
