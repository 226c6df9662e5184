"""Feature maps of linear attention: FAVOR+, relu and elu + 1.

A map returns features (..., f) and, where they are exponentials, the logarithm of the factor that
was taken out of each vector to avoid overflow. The factor of a query cancels in the ratio of
attention and is dropped. That of a key does not: attention keeps the running maximum of past keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

LONGEST_HELD = 2**20
"""With a redraw probability: most training steps for which features are held."""
SEARCHED = 1024
"""Steps that are searched together for the last redraw."""


class Features(NamedTuple):
    """Non-negative features (..., f) times exp(log_scale (...)); None if that is 1."""

    values: Tensor
    log_scale: Tensor | None


class FeatureMap:
    """Maps queries or keys to features of linear attention; as many by default, no projection."""

    def num_features(self, in_features: int) -> int:
        """Features per head (f)."""
        return in_features

    def draw(self, in_features: int, generator: torch.Generator) -> Tensor | None:
        """Random projection (in_features, n) of one layer, None if the map has none."""
        return None

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Features of x (..., in_features)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FavorConfig:
    """Positive random features of the softmax kernel, FAVOR+ (Choromanski et al., 2021)."""

    kind: Literal["favor"] = "favor"
    num_features: int = 64
    """Features per head (f): half of them projections, and their negatives."""
    redraw_interval: int = 1
    """Training steps for which projections are held; 1: new ones in each."""
    redraw_probability: float | None = None
    """Probability that a training step draws new projections, in place of an interval."""

    def __post_init__(self) -> None:
        interval, probability = self.redraw_interval, self.redraw_probability
        if interval < 1:
            raise ValueError(f"redraw_interval is {interval}, expected at least 1")
        if probability is not None and not 1e-5 <= probability <= 1:
            raise ValueError(f"redraw_probability is {probability}, expected 1e-5 to 1")
        if probability is not None and interval > 1:
            raise ValueError(
                f"redraw_interval {interval} and redraw_probability {probability}: give one of them"
            )

    def build(self) -> Favor:
        """The map."""
        return Favor(self)

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """The training step, `step` or an earlier one, whose projections are in force at `step`.

        A function of its arguments alone, so that a resumed run holds the same projections.
        `seed` is that of the run: different runs redraw at different steps.
        """
        if self.redraw_probability is None:
            return step - step % self.redraw_interval
        first = step - step % LONGEST_HELD
        for stop in range(step + 1, first, -SEARCHED):
            steps = np.arange(max(first, stop - SEARCHED), stop)
            redraws = np.flatnonzero(_chances(steps, seed) < self.redraw_probability)
            if len(redraws):
                return int(steps[redraws[-1]])
        return first


def _chances(steps: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each step, by SplitMix64 (Steele et al., 2014)."""
    run = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    x = run + (steps.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> 31)) >> 11).astype(np.float64) * 2.0**-53


class Favor(FeatureMap):
    """exp(u - |x|^2/2) and exp(-u - |x|^2/2) of x scaled by d^-1/4; u are random projections of x.

    Expected products of features are exp(q.k / sqrt(d)). The largest exponent of each vector is
    taken out.
    """

    def __init__(self, config: FavorConfig) -> None:
        if config.num_features < 2 or config.num_features % 2:
            raise ValueError(
                f"{config.num_features} FAVOR+ features; features come in pairs: use an even number"
            )
        self.config = config

    def num_features(self, in_features: int) -> int:
        """Features per head."""
        return self.config.num_features

    def draw(self, in_features: int, generator: torch.Generator) -> Tensor:
        """Projection (in_features, f/2): blocks of orthogonal columns with independent chi norms.

        The original takes the norms of the matrix it orthogonalizes, which biases the kernel.
        """
        wanted = self.config.num_features // 2
        blocks = math.ceil(wanted / in_features)
        gaussian = torch.randn((blocks, in_features, in_features), generator=generator)
        directions, triangle = torch.linalg.qr(gaussian)
        # signs of the diagonal make the rotation uniform (Haar)
        directions = directions * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None]
        norms = torch.randn((blocks, in_features, in_features), generator=generator).norm(dim=-1)
        columns = (directions * norms[:, None]).permute(1, 0, 2).reshape(in_features, -1)
        return columns[:, :wanted].contiguous()

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Features of x (..., d) with the projection (d, f/2) of its layer."""
        assert projection is not None
        x = x * x.shape[-1] ** -0.25
        u = x @ projection
        exponents = torch.cat([u, -u], -1) - x.square().sum(-1, keepdim=True) / 2
        largest = exponents.detach().amax(-1, keepdim=True)
        scale = self.config.num_features**-0.5
        return Features(torch.exp(exponents - largest) * scale, largest[..., 0])


@dataclass(frozen=True, kw_only=True)
class ReluConfig:
    """relu(x) plus a little, so that no query is without keys (Choromanski et al., 2021, 4.2)."""

    kind: Literal["relu"] = "relu"
    offset: float = 1e-3
    """Constant that is added to every feature."""

    def build(self) -> Relu:
        """The map."""
        return Relu(self)


class Relu(FeatureMap):
    """See `ReluConfig`."""

    def __init__(self, config: ReluConfig) -> None:
        self.config = config

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Features of x (..., d)."""
        return Features(functional.relu(x) + self.config.offset, None)


@dataclass(frozen=True, kw_only=True)
class EluConfig:
    """elu(x) + 1 (Katharopoulos et al., 2020, equation 7)."""

    kind: Literal["elu"] = "elu"

    def build(self) -> Elu:
        """The map."""
        return Elu()


class Elu(FeatureMap):
    """See `EluConfig`."""

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Features of x (..., d)."""
        return Features(functional.elu(x) + 1, None)


FeatureMapConfig = FavorConfig | ReluConfig | EluConfig
