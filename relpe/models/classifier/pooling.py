"""Vectors on a grid, and their pooling: to a coarser grid, or to one vector of each row."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class GridVectors(NamedTuple):
    """Vectors on a grid in order, the last axis varying fastest, or in sequences."""

    x: Tensor  # (b, l, m)
    grid: tuple[int, ...]  # extents, whose product is l
    positions: Tensor  # (1 or b, l, p)
    exists: Tensor | None = None  # (b, l) bool: False at the padding at the end of a sequence
    stride: int = 1
    """Places of the input on each axis for each place of the grid."""

    def pool(self, side: int) -> GridVectors:
        """Take maxima over regions of `side` places on each axis.

        A maximum has the position of the first place of its region. What remains at the end of an
        axis, or of the existing part of a row, is dropped.
        """
        if side == 1:
            return self

        def regions(x: Tensor) -> Tensor:
            """Return the regions (b, l', side^n, f) of x (b, l, f)."""
            x = x.unflatten(1, self.grid)
            for axis, size in enumerate(grid, start=1):
                x = x.narrow(axis, 0, size * side).unflatten(axis, (size, side))
                x = x.movedim(axis + 1, -2)
            return x.flatten(1, len(grid)).flatten(2, -2)

        grid = tuple(extent // side for extent in self.grid)
        exists = None if self.exists is None else regions(self.exists[..., None])[..., 0].all(2)
        x = regions(self.x).amax(2)
        return GridVectors(x, grid, regions(self.positions)[:, :, 0], exists, self.stride * side)

    def last(self) -> Tensor:
        """Return the last vector of each row (b, m); zeros without one."""
        if self.exists is None:
            return self.x[:, -1]
        place = self.exists.sum(1)[:, None, None] - 1
        vectors = self.x.take_along_dim(place.clamp(min=0), 1)
        return vectors.where(place >= 0, 0.0)[:, 0]

    def maximum(self) -> Tensor:
        """Return the maximum of each feature (b, m); zeros without a vector."""
        if self.exists is None:
            return self.x.amax(1)
        top = self.x.masked_fill(~self.exists[..., None], -math.inf).amax(1)
        return top.where(self.exists.any(1, keepdim=True), 0.0)

    def mean(self, scores: Tensor | None = None) -> Tensor:
        """Return the mean (b, m), weighted by the softmax of `scores` (b, l); None: equally."""
        exists = self.exists
        if exists is None:
            exists = torch.ones(1, self.x.shape[1], dtype=torch.bool, device=self.x.device)
        raw = exists.to(self.x.dtype)
        if scores is not None:
            scores = scores.masked_fill(~exists, -math.inf)
            top = scores.detach().amax(1, keepdim=True)
            raw = torch.exp(scores - top.where(top.isfinite(), 0.0))
        total = raw.sum(1, keepdim=True)
        weights = (raw / total.where(total > 0, 1.0)).expand(self.x.shape[0], -1)
        return torch.einsum("bl,blm->bm", weights, self.x.where(exists[..., None], 0.0))
