"""Stochastic positional encoding with filters from a network of sines.

Like ConvSPE, but filters are smooth functions of the tap, in a Gaussian window of learned width.
The number of parameters does not depend on the length of filters, which follows from the width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig, absolute_steps
from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseConfig, Filters

WINDOW_END = 0.01
"""Value of the window at which a filter ends."""
BUCKET = 16
"""The number of taps is a multiple of this, so that it rarely changes during training."""
NARROWEST = 0.5
"""Minimum width in steps, which is added to every width."""
FIRST_WIDTH = 4.0
"""Initial width of the first head, in steps. That of the last head is a quarter of the reference
length."""


@dataclass(frozen=True, kw_only=True)
class SirenSPEConfig(FilteredNoiseConfig):
    """Convolutional stochastic positional encoding with filters from a network of sines."""

    kind: Literal["siren_spe"] = "siren_spe"
    max_taps: tuple[int, ...] = (256,)
    """Maximum length of a filter along each axis of the positions (one, two or three axes); filters
    are shorter if the learned widths allow it."""
    network: SirenNetworkConfig = field(default_factory=SirenNetworkConfig)
    """Configuration of the network that computes the filters."""
    reference_length: float = 256.0
    """Number of steps per unit of the network's coordinates; it does not depend on the length of a
    sequence."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> SirenSPE:
        """Return the module for a model of this shape, shared by its layers.

        Gates are always per layer.

        Raises:
            ValueError: there are not one to three axes, or an axis has no taps.
        """
        return SirenSPE(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class SirenSPE(FilteredNoise):
    """See `SirenSPEConfig`; parameters: networks, log_widths (h, p), raw gains (2, h, d) and gates.

    There is one network or, if layers have their own filters, one per layer; widths and gains then
    have a leading axis of layers.

    The code at m is sum_s phi(s) Z(m - s) over the steps s = 0, 1, ... back from m (with several
    axes, back along each), with phi_q for queries and phi_k for keys. The covariance at lag m - n
    is sum_s phi_q(s) phi_k(s - (m - n)). phi is the output of the network, ordered by filter
    (query, key), head and feature, times exp(-(s / width)^2 / 2). It is normalised to unit norm and
    multiplied by a gain, so that variances depend only on the gains. A width is
    exp(log_width) + 0.5 steps, so that a training step changes all widths by a similar ratio. A
    gain is softplus of the raw one.
    """

    def __init__(
        self, config: SirenSPEConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        axes = len(config.max_taps)
        if min(config.max_taps, default=1) < 1:
            raise ValueError(f"max_taps are {config.max_taps}, expected at least 1 along each axis")
        super().__init__(
            config,
            axes=axes,
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
        )
        self.config = config
        layers = () if config.shared_by_layers else (num_layers,)
        self.networks = nn.ModuleList(
            config.network.build(
                in_features=axes,
                out_features=2 * num_heads * head_dim,
                reference_length=(config.reference_length,),
            )
            for _ in range(math.prod(layers))
        )
        last_width = max(FIRST_WIDTH, config.reference_length / 4)
        ratios = torch.linspace(0, 1, num_heads)[:, None].expand(*layers, -1, axes)
        widths = FIRST_WIDTH * (last_width / FIRST_WIDTH) ** ratios
        self.log_widths = nn.Parameter((widths - NARROWEST).log())
        ones = torch.ones(*layers, 2, num_heads, head_dim)
        self.gains = nn.Parameter(ones + (-(-ones).expm1()).log())  # softplus of it is 1

    def window_widths(self) -> Tensor:
        """Return the widths (h, p), or (layers, h, p), in steps."""
        return self.log_widths.exp() + NARROWEST

    def steps_back(self) -> Tensor:
        """Return the filters phi (2, h, d, *steps).

        Entry s is the weight of the noise s steps back.

        If layers have their own filters, the second axis is that of layers.
        """
        widths = self.window_widths()
        steps = absolute_steps(self._num_taps(widths)).to(widths.device)  # (*steps, p)
        drawn = self._drawn(steps)
        in_widths = steps / widths.unflatten(-1, (*[1] * self.axes, self.axes))
        windows = torch.exp(-in_widths.square().sum(-1) / 2)  # (..., h, *steps)
        shaped = (drawn * windows.unsqueeze(-1 - self.axes)).flatten(-self.axes)
        norm = shaped.norm(dim=-1, keepdim=True)
        gains = functional.softplus(self.gains)[..., None].movedim(-4, 0)
        return (gains * shaped / norm).view_as(drawn)

    def _drawn(self, steps: Tensor) -> Tensor:
        """Return the networks' outputs at `steps` (*steps, p), in the order of `steps_back`."""
        sets = []
        for network in self.networks:
            assert isinstance(network, SirenNetwork)
            sets.append(network.at(steps).movedim(-1, 0).unflatten(0, (2, *self.shape[:2])))
        return sets[0] if self.shared_by_layers else torch.stack(sets, 1)

    def filters(self) -> Filters:
        """Return the reversed filters, which are correlated with the noise.

        They read from the offset 1 - taps up to the position itself.
        """
        back = self.steps_back()
        turned = back.flip([-1 - axis for axis in range(self.axes)])
        return Filters(turned, tuple(1 - taps for taps in turned.shape[-self.axes :]))

    def _num_taps(self, widths: Tensor) -> list[int]:
        """Return the number of taps along each axis, up to the end of the widest window.

        It is a multiple of the bucket, up to the limit, and the same in all layers, so that they
        read the noise in the same way.
        """
        widest = widths.detach().double().flatten(0, -2).amax(0)
        reach = widest * math.sqrt(-2 * math.log(WINDOW_END))
        taps = [1 + math.ceil(steps) for steps in reach.tolist()]
        return [
            min(most, -(-n // BUCKET) * BUCKET)
            for most, n in zip(self.config.max_taps, taps, strict=True)
        ]
