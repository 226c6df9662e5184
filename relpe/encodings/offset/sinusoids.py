"""Sines and cosines of positions (Vaswani et al., 2017), and features of offsets made of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(positions: Tensor, features: int, base: float = 10_000.0) -> Tensor:
    """Sines (even features) and cosines (odd) of `positions` (...): (..., features), float64.

    Feature pair j turns by base^(-2j/features) radians a position (Vaswani et al., 2017, 3.5).
    """
    if features % 2:
        raise ValueError(f"{features} sinusoids: sines and cosines come in pairs")
    pairs = torch.arange(0, features, 2, dtype=torch.float64, device=positions.device)
    angles = (positions.double()[..., None] * base ** (-pairs / features)) % (2 * math.pi)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class SinusoidNetwork(nn.Module):
    """Sines and cosines of an offset, interleaved, through a linear layer."""

    def __init__(
        self, num_sinusoids: int, out_features: int, *, base: float, origin: float
    ) -> None:
        super().__init__()
        self.num_sinusoids, self.base, self.origin = num_sinusoids, base, origin
        self.project = nn.Linear(num_sinusoids, out_features)

    def at(self, offsets: Tensor) -> Tensor:
        """(o, out_features) of offsets (o, 1), in steps."""
        places = offsets[:, 0].double() + self.origin
        table = sinusoids(places, self.num_sinusoids, self.base)
        return self.project(table.to(self.project.weight.dtype))
