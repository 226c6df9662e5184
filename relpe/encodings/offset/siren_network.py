"""Small networks of sines (SIREN) as functions of coordinates (Sitzmann et al., 2020).

For positional features they were proposed with coordinates in [-1, 1] over the whole extent, and
without phases (Alfons, 2022). Such a network depends on the extent. Initially it is an odd function
that is zero at the origin, and over a long extent it changes little from one step to the next.
Hence the defaults here: coordinates in multiples of a fixed length, random phases, and first
frequencies with periods from a few steps to twice that length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import Checked
from relpe.transforms import without_autocast

SHORTEST_PERIOD = 4.0
"""Shortest initial period of the first layer, in steps; the sampling limit is two."""


@dataclass(frozen=True, kw_only=True)
class SirenNetworkConfig(Checked):
    """A network of sines."""

    depth: int = 3
    """Number of linear layers; a sine follows each except the last."""
    width: int = 64
    """Number of features between layers."""
    w0: float = 10.0
    """Factor of the angles in inner layers."""
    w0_init: float | None = None
    """Factor of the angles in the first layer. None: with log_frequency, its highest frequency, so
    that weights are at most 1; with original, w0."""
    learnable_w0: bool = False
    """Learn the logarithms of these factors, one per layer."""
    initialization: Literal["log_frequency", "original"] = "log_frequency"
    """Initial weights of the first layer. log_frequency: frequencies spaced evenly on a logarithmic
    scale, with periods from 4 steps to twice the reference length, and random phases; original:
    uniform weights, no phases."""

    def build(
        self, *, in_features: int, out_features: int, reference_length: Sequence[float]
    ) -> SirenNetwork:
        """Return a network of coordinates (..., in_features) to features (..., out_features).

        `reference_length` is the number of steps per unit of each coordinate, or one value for all
        of them. It does not depend on the length of a sequence.

        Raises:
            ValueError: there are fewer than two layers, or a factor or length is not positive.
        """
        return SirenNetwork(
            self,
            in_features=in_features,
            out_features=out_features,
            reference_length=reference_length,
        )


class SirenNetwork(nn.Module):
    """See `SirenNetworkConfig`: h_1 = sin(w0_init (W_1 x + b_1)), h_i = sin(w0 (W_i h + b_i)).

    The last layer is linear. The first angles are reduced to one turn in float64, so that large
    coordinates are as exact as small ones.
    """

    def __init__(
        self,
        config: SirenNetworkConfig,
        *,
        in_features: int,
        out_features: int,
        reference_length: Sequence[float],
    ) -> None:
        super().__init__()
        lengths = tuple(map(float, reference_length))
        if len(lengths) not in {1, in_features} or min(lengths) <= 0:
            raise ValueError(
                f"reference_length is {lengths}, expected one positive number, or one for each of "
                f"{in_features} coordinates"
            )
        first = config.w0_init
        if first is None:
            highest = 2 * math.pi / SHORTEST_PERIOD * max(lengths)
            first = config.w0 if config.initialization == "original" else highest
        factors_fit = all(0 < factor < math.inf for factor in (first, config.w0))
        if config.depth < 2 or config.width < 1 or not factors_fit:
            raise ValueError(f"{config}: expected at least two layers, and positive numbers")
        self.config, self.reference_length = config, lengths
        self.factors = (first,) + (config.w0,) * (config.depth - 2)
        self.log_w0 = (
            nn.Parameter(torch.tensor(self.factors).log()) if config.learnable_w0 else None
        )
        sizes = [in_features] + [config.width] * (config.depth - 1) + [out_features]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(sizes))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Draw new weights."""
        phases = self.config.initialization == "log_frequency"
        linears = self.linears()
        for linear in linears:
            nn.init.zeros_(linear.bias)
        for linear in linears[1:-1]:
            fan_in = linear.in_features
            bound = math.sqrt(6 / fan_in) / self.config.w0
            nn.init.uniform_(linear.weight, -bound, bound)
            if phases:
                bound = fan_in**-0.5 / self.config.w0
                nn.init.uniform_(linear.bias, -bound, bound)
        last = linears[-1]
        bound = math.sqrt(3 / last.in_features)
        nn.init.uniform_(last.weight, -bound, bound)

        first = linears[0]
        if not phases:
            nn.init.uniform_(first.weight, -1 / first.in_features, 1 / first.in_features)
            return
        # radians per step; with several axes, the length of a vector with random direction
        lengths = torch.tensor(self.reference_length).to(first.weight)
        lowest = math.pi / max(self.reference_length)
        highest = max(lowest, 2 * math.pi / SHORTEST_PERIOD)
        frequencies = lowest * (highest / lowest) ** torch.rand(first.out_features, 1)
        directions = functional.normalize(torch.randn_like(first.weight), dim=-1)
        first.weight.copy_(directions * frequencies * lengths / self.factors[0])
        nn.init.uniform_(first.bias, -math.pi / self.factors[0], math.pi / self.factors[0])

    def at(self, steps: Tensor) -> Float[Tensor, "... o"]:
        """Return the features at `steps` (..., p), divided by the reference length."""
        lengths = torch.tensor(self.reference_length, dtype=torch.float64, device=steps.device)
        return self(steps.double() / lengths)

    def forward(self, coordinates: Tensor) -> Float[Tensor, "... o"]:
        """Return the features at `coordinates` (..., p)."""
        first, *inner, last = self.linears()
        dtype = first.weight.dtype
        factors: Sequence[Tensor | float]
        factors = self.factors if self.log_w0 is None else self.log_w0.exp().unbind()
        with without_autocast(coordinates.device):
            x = coordinates.double()
            bias = first.bias.double()
            angles = factors[0] * functional.linear(x, first.weight.double(), bias)
            turns = (angles.detach() / (2 * math.pi)).floor()
            x = (angles - 2 * math.pi * turns).sin().to(dtype)
            for factor, linear in zip(factors[1:], inner, strict=True):
                x = torch.sin(factor * linear(x))
            return last(x)

    def linears(self) -> list[nn.Linear]:
        """Return the linear layers in order."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


def absolute_steps(sizes: Sequence[int]) -> Int[Tensor, "... p"]:
    """Return all points of a grid of `sizes`, from the origin: (sizes_1, ..., p), int64."""
    return torch.stack(torch.meshgrid(*map(torch.arange, sizes), indexing="ij"), -1)
