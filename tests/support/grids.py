"""Windows and coordinates on grids, as in the thesis of Alfons (2022)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int


def gaussian(offsets: Tensor, width: Tensor) -> Tensor:
    """Gaussian window (o, ...) at offsets (o, n) for widths (..., n) in the same unit."""
    offsets = offsets.view(offsets.shape[0], *(1 for _ in width.shape[:-1]), -1)
    return torch.exp(-(offsets / width).square().sum(-1) / 2)


def half_width(width: float, threshold: float) -> int:
    """Offset, rounded up, at which a Gaussian of this width falls to `threshold`."""
    if not 0 < threshold < 1:
        raise ValueError(f"threshold {threshold}: expected a number between 0 and 1")
    return math.ceil(math.sqrt(-2 * math.log(threshold)) * abs(width))


def span_size(grid: Sequence[int], widths: Sequence[float], threshold: float) -> tuple[int, ...]:
    """Number of offsets per axis within a window, always odd (Alfons, 2022, algorithm 6).

    `widths` are in units of the grid's extent. An axis of s places has 2s - 1 offsets and extent
    s - 1. With a threshold of at most 0, all offsets are within the window.
    """
    if threshold <= 0:
        return tuple(2 * places - 1 for places in grid)
    return tuple(
        min(2 * half_width(width * (places - 1), threshold), 2 * places - 2) + 1
        for places, width in zip(grid, widths, strict=True)
    )


def relative_steps(sizes: Sequence[int]) -> Int[Tensor, "... p"]:
    """All offsets between two points of a grid of `sizes`: (2 sizes_1 - 1, ..., p), int64."""
    axes = [torch.arange(1 - size, size) for size in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def centred_crop(grid: Tensor, sizes: Sequence[int]) -> Tensor:
    """The middle of a grid (..., p) with odd `sizes`, of the requested width along each axis."""
    for axis, (full, size) in enumerate(zip(grid.shape, sizes, strict=False)):
        grid = grid.narrow(axis, (full - size) // 2, size)
    return grid


def normalized(steps: Tensor, sizes: Sequence[int]) -> Float[Tensor, "... p"]:
    """Offsets in units of a grid's extent, in [-1, 1], float64 (Alfons, 2022).

    On an axis of one point, they are 0.
    """
    extents = [max(1, size - 1) for size in sizes]
    return steps.double() / torch.tensor(extents, device=steps.device)
