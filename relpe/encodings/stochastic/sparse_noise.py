"""Sparse noise: each wave of a feature is in one realisation, with a random sign.

Products of features with dense noise of r realisations cost r multiplications per wave; with sparse
noise they cost one. Their expectation is the same, and the variance of the inner product of two
projections is not larger than with normal noise: it is a count sketch with signs.

Sources: Charikar, Chen and Farach-Colton (2002), Finding frequent items in data streams; Weinberger
et al. (2009), Feature hashing for large scale multitask learning (variance).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relpe.transforms import apply, first_derivatives


def draw(
    heads: int, features: int, waves: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return places of all waves in the realisations, and the noise with variance 1 that they make.

    Returns places (h, w, d), of which each stands for realisation `place % draws`, and noise
    (h, d, w, r). Places of the same wave differ, so that features meet in as few realisations as
    possible.
    """
    count = _num_places(features, draws)
    order = torch.rand((heads, waves, count), generator=generator).argsort(-1)
    places = order[..., :features]
    signs = torch.randint(0, 2, places.shape, generator=generator) * 2.0 - 1.0
    noise = torch.zeros((heads, waves, features, draws))
    noise.scatter_(-1, (places % draws)[..., None], (signs * draws**0.5)[..., None])
    return places, noise.transpose(1, 2)


class FeaturePlaces:
    """Which feature each place reads, for all heads together.

    Its tables are (s, h * r): a row for each wave and each run of r places.
    """

    def __init__(self, places: Tensor, noise: Tensor) -> None:
        heads, waves, features = places.shape
        draws = noise.shape[-1]
        count = _num_places(features, draws)
        index = torch.arange(features, device=places.device).expand_as(places)
        feature = index.new_zeros(heads, waves, count).scatter(-1, places, index)
        sign = noise.transpose(1, 2).gather(-1, (places % draws)[..., None])[..., 0]
        weight = noise.new_zeros(heads, waves, count).scatter(-1, places, sign)
        head = torch.arange(heads, device=places.device)[:, None, None]
        wave = torch.arange(waves, device=places.device)[:, None]
        self.features = _in_rows(head * features + feature, draws)
        """Index of each place's feature in (h, d); any index where there is none."""
        self.waves = _in_rows((head * features + feature) * waves + wave, draws)
        """Index of each place's wave in (h, d, w)."""
        self.weights = _in_rows(weight, draws)
        """Noise of each place, 0 where there is no feature."""

    def weigh(self, waves: Tensor) -> Tensor:
        """Return the waves (l, h, d, w) times the noise of their places: (s, h * r, l)."""
        rows = waves.flatten(1).mT.contiguous().index_select(0, self.waves.flatten())
        return rows.view(*self.waves.shape, -1) * self.weights[..., None]


def _num_places(features: int, draws: int) -> int:
    """Return the number of places of a wave, a multiple of `draws` at least `features`."""
    return -(-features // draws) * draws


def _in_rows(table: Tensor, draws: int) -> Tensor:
    """Convert (h, w, m * r) to (w * m, h * r)."""
    return table.unflatten(-1, (-1, draws)).permute(1, 2, 0, 3).flatten(0, 1).flatten(1)


class _Projection(torch.autograd.Function):
    """See `project`; stores nothing but its arguments for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, feature: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x, weights, feature)
        columns = _columns(x)
        out = x.new_zeros(weights.shape[1], *columns.shape[1:])
        for source, weight in zip(feature, weights, strict=True):
            out = torch.addcmul(out, columns[source], weight[:, None])  # also with vmap
        return _heads(out, x.shape[2])

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, Tensor, None]:
        x, weights, feature = ctx.saved_tensors
        columns, grad_out = _columns(x), _columns(grad)
        grad_columns, grad_weights = torch.zeros_like(columns), torch.empty_like(weights)
        for source, weight, grad_weight in zip(feature, weights, grad_weights, strict=True):
            torch.sum(columns[source] * grad_out, 1, out=grad_weight)
            grad_columns.index_add_(0, source, grad_out * weight[:, None])
        return _heads(grad_columns, x.shape[2]), grad_weights, None


def _columns(x: Tensor) -> Tensor:
    """Convert (b, l, h, f) to (h * f, b, l), contiguous: rows are read and added as a whole."""
    return x.flatten(2).permute(2, 0, 1).contiguous()


def _heads(columns: Tensor, heads: int) -> Tensor:
    """Convert (h * f, b, l) to (b, l, h, f)."""
    return columns.permute(1, 2, 0).unflatten(-1, (heads, -1))


def project(x: Tensor, weights: Tensor, feature: Tensor) -> Tensor:
    """Sum over waves and features of x (b, l, h, d) times weights: (b, l, h, r).

    The weights (s, h * r, l) are those of `FeaturePlaces.weigh`, for the features (s, h * r).
    """
    return apply(_Projection, x.to(weights), weights, feature)
