"""Convolutional stochastic positional encoding (Liutkus et al., 2021, section 3.2).

There are two learned filters per head and feature. Apart from the gate, the covariance is zero at
lags of at least the length of a filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe.checks import at_least
from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseConfig, Filters


@dataclass(frozen=True, kw_only=True)
class ConvSPEConfig(FilteredNoiseConfig):
    """Convolutional stochastic positional encoding (Liutkus et al., 2021)."""

    kind: Literal["conv_spe"] = "conv_spe"
    taps: tuple[int, ...] = (128,)
    """Length of a filter along each axis of the positions (one, two or three axes). Offsets of at
    least this length have a score of zero."""
    shortest_wave: float | None = None
    """Begin with filters that are cosine waves, at least this long along each axis, in positions.
    None: positive random values, as in the original, with which a small model may learn nothing of
    position."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shortest_wave is not None:
            at_least(2, shortest_wave=self.shortest_wave)  # shorter waves look like longer ones
            if math.isinf(self.shortest_wave):
                raise ValueError("shortest_wave is inf, expected a finite number")

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> ConvSPE:
        """Return the module for a model of this shape, shared by its layers.

        Gates are always per layer.

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
    (2021): positive, with variances near 2/3. With `shortest_wave`, those of a feature are waves of
    one random frequency, at most 1 / `shortest_wave` along each axis, with random phases and a
    variance of 1; the covariance then changes its sign with the lag.
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
        if config.shortest_wave is None:
            scale = math.sqrt(math.prod(config.taps) / 2)
            query_filter, key_filter = torch.rand(shape) / scale, torch.rand(shape) / scale
        else:
            features = shape[: -len(config.taps)]
            query_filter, key_filter = _waves(features, config.taps, config.shortest_wave)
        self.query_filter, self.key_filter = nn.Parameter(query_filter), nn.Parameter(key_filter)

    def filters(self) -> Filters:
        """Return the filters, which read the noise from the position onwards."""
        return Filters(torch.stack([self.query_filter, self.key_filter]), (0,) * self.axes)


def _waves(
    features: tuple[int, ...], taps: tuple[int, ...], shortest: float
) -> tuple[Tensor, Tensor]:
    """Return the cosine waves (*features, *taps) with a norm of 1, for queries and for keys."""
    frequencies = (2 * torch.rand(len(taps), *features) - 1) / shortest
    places = torch.cartesian_prod(*(torch.arange(length) for length in taps)).float()
    turns = torch.einsum("pa,a...->...p", places.view(-1, len(taps)), frequencies)
    phases = torch.rand(2, *features, 1)
    waves = torch.cos(2 * math.pi * (turns + phases))
    waves = waves / waves.norm(dim=-1, keepdim=True)
    query_filter, key_filter = waves.view(2, *features, *taps)
    return query_filter.clone(), key_filter.clone()
