"""Feature maps of linear attention: FAVOR+, relu and elu + 1.

A map returns features (..., f). If these are exponentials, a factor is taken out of each vector to
avoid overflow, and its logarithm is returned too. The factor of a query cancels when attention is
normalised, so it is dropped. The factor of a key does not cancel: attention keeps the running
maximum over past keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from relpe.checks import Checked, at_least
from relpe.transforms import check_draws

LONGEST_HELD = 2**20
"""Maximum training steps between two redraws, with a redraw probability."""
SEARCHED = 1024
"""Number of steps that are searched together for the last redraw."""


class Features(NamedTuple):
    """Non-negative features (..., f), times exp(log_scale) (...); None: the factor is 1."""

    values: Tensor
    log_scale: Tensor | None


class FeatureMap(ABC):
    """Maps queries or keys to features; by default f = in_features, without projection."""

    def num_features(self, in_features: int) -> int:
        """Return the features per head (f)."""
        return in_features

    def draw(self, in_features: int, generator: torch.Generator) -> Tensor | None:
        """Return a random projection (in_features, n) of one layer; None if the map has none."""
        return None

    @abstractmethod
    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Return the features of x (..., in_features)."""


@dataclass(frozen=True, kw_only=True)
class FavorConfig(Checked):
    """Positive random features of the softmax kernel, FAVOR+ (Choromanski et al., 2021)."""

    kind: Literal["favor"] = "favor"
    num_features: int = 64
    """Number of features per head (f), even: f/2 projections and their negatives."""
    redraw_interval: int = 1
    """Number of training steps between redraws of the projections; 1: redraw in every step."""
    redraw_probability: float | None = None
    """Probability that a training step redraws the projections, instead of a fixed interval."""

    def __post_init__(self) -> None:
        super().__post_init__()
        interval, probability = self.redraw_interval, self.redraw_probability
        if interval < 1:
            raise ValueError(f"redraw_interval is {interval}, expected at least 1")
        if probability is not None and not 1e-5 <= probability <= 1:
            raise ValueError(f"redraw_probability is {probability}, expected 1e-5 to 1")
        if probability is not None and interval > 1:
            raise ValueError(
                f"redraw_interval is {interval} and redraw_probability is {probability}, expected "
                "only one of them"
            )

    def build(self) -> Favor:
        """Return the map."""
        return Favor(self)

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """Return the last training step, up to `step`, at which the projections were redrawn.

        It depends only on the arguments, so that a resumed run has the same projections. `seed` is
        the seed of the run; runs with different seeds redraw at different steps.
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
    """Return uniform numbers in [0, 1), one per step, by SplitMix64 (Steele et al., 2014)."""
    run = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    x = run + (steps.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> 31)) >> 11).astype(np.float64) * 2.0**-53


class Favor(FeatureMap):
    """exp(u - |x|^2/2) and exp(-u - |x|^2/2) of x scaled by d^-1/4; u are random projections of x.

    The expected product of the features of q and k is exp(q.k / sqrt(d)). The factor that is taken
    out of each vector is the largest exponential.
    """

    def __init__(self, config: FavorConfig) -> None:
        if config.num_features < 2 or config.num_features % 2:
            raise ValueError(
                f"num_features of FAVOR+ is {config.num_features}, expected an even number"
            )
        self.config = config

    def num_features(self, in_features: int) -> int:
        """Return the features per head."""
        return self.config.num_features

    def draw(self, in_features: int, generator: torch.Generator) -> Tensor:
        """Return a projection (in_features, f/2): blocks of orthogonal columns, with chi norms.

        The original code uses the norms of the matrix before orthogonalisation, which biases the
        kernel.
        """
        check_draws()
        count = self.config.num_features // 2
        blocks = math.ceil(count / in_features)
        gaussian = torch.randn((blocks, in_features, in_features), generator=generator)
        directions, triangle = torch.linalg.qr(gaussian)
        # correct signs by the diagonal, so that the rotation is uniform (Haar)
        directions = directions * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None]
        norms = torch.randn((blocks, in_features, in_features), generator=generator).norm(dim=-1)
        columns = (directions * norms[:, None]).permute(1, 0, 2).reshape(in_features, -1)
        return columns[:, :count].contiguous()

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Return the features of x (..., d) with the projection (d, f/2) of its layer."""
        assert projection is not None
        x = x * x.shape[-1] ** -0.25
        u = x @ projection
        exponents = torch.cat([u, -u], -1) - x.square().sum(-1, keepdim=True) / 2
        largest = exponents.detach().amax(-1, keepdim=True)
        scale = self.config.num_features**-0.5
        return Features(torch.exp(exponents - largest) * scale, largest[..., 0])


@dataclass(frozen=True, kw_only=True)
class ReluConfig(Checked):
    """relu(x) plus a constant, so that weights are positive (Choromanski et al., 2021, 4.2)."""

    kind: Literal["relu"] = "relu"
    offset: float = 1e-3
    """Constant added to every feature; with 0, the weights of a query may all be zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, offset=self.offset)

    def build(self) -> Relu:
        """Return the map."""
        return Relu(self)


class Relu(FeatureMap):
    """See `ReluConfig`."""

    def __init__(self, config: ReluConfig) -> None:
        self.config = config

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Return the features of x (..., d)."""
        return Features(functional.relu(x) + self.config.offset, None)


@dataclass(frozen=True, kw_only=True)
class EluConfig(Checked):
    """elu(x) + 1 (Katharopoulos et al., 2020, equation 7)."""

    kind: Literal["elu"] = "elu"

    def build(self) -> Elu:
        """Return the map."""
        return Elu()


class Elu(FeatureMap):
    """See `EluConfig`."""

    def __call__(self, x: Tensor, projection: Tensor | None) -> Features:
        """Return the features of x (..., d)."""
        return Features(functional.elu(x) + 1, None)


FeatureMapConfig = FavorConfig | ReluConfig | EluConfig
