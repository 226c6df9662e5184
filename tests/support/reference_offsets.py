"""Naive relative attention, computed for every pair of a query and a key.

Offsets are key minus query; grids have any number of axes and are flattened with the last axis
running fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def grid_positions(grid: Sequence[int]) -> Tensor:
    """Positions (l, n) of all places of a grid, int64."""
    return torch.cartesian_prod(*(torch.arange(places) for places in grid)).view(-1, len(grid))


def pair_offsets(queries: Tensor, keys: Tensor) -> Tensor:
    """Offsets (l, s, n) of positions (l, n) and (s, n)."""
    return keys - queries[:, None]


def causal_mask(offsets: Tensor, order: Literal["raster", "product"]) -> Tensor:
    """Pairs (l, s) whose key is not later: in the flattened order, or along every axis."""
    if order == "product":
        return (offsets <= 0).all(-1)
    later, tied = (
        torch.zeros(offsets.shape[:2], dtype=torch.bool),
        torch.ones(offsets.shape[:2], dtype=torch.bool),
    )
    for axis in offsets.unbind(-1):
        later |= tied & (axis > 0)
        tied &= axis == 0
    return ~later


def span_mask(offsets: Tensor, half_widths: Sequence[int]) -> Tensor:
    """Pairs (l, s) whose key lies in the box around its query."""
    return (offsets.abs() <= torch.tensor(half_widths)).all(-1)


def offset_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    allowed: Tensor,
    features: Tensor | None = None,
    content_bias: Tensor | None = None,
    position_bias: Tensor | None = None,
    factor: Tensor | None = None,
    factor_on_position: bool = False,
    log_weight: Tensor | None = None,
    multiplies: bool = False,
) -> tuple[Tensor, Tensor]:
    """Values (b, l, h, e) and weights (b, h, l, s) of q, k (b, l or s, h, d) and v (b, s, h, e).

    For each pair: features (l, s, h, d), factor and log_weight (l, s, h), allowed (l, s); the
    biases are (h, d). The steps are those of the relative attention of Alfons (2022), in order.
    """
    # 1. logits of content and of position
    u = 0.0 if content_bias is None else content_bias
    logits = torch.einsum("blhd,bshd->bhls", q + u, k)
    position = None
    if features is not None:
        w = 0.0 if position_bias is None else position_bias
        position = torch.einsum("blhd,lshd->bhls", q + w, features)
    window = None if factor is None else factor.permute(2, 0, 1)
    # 2. window on the positional logits
    if position is not None and window is not None and factor_on_position:
        position = position * window
    # 3. sum or product of both
    if position is not None:
        logits = logits * position if multiplies else logits + position
    # 4. window on all logits
    if window is not None and not factor_on_position:
        logits = logits * window
    # 5. scale
    logits = logits / math.sqrt(q.shape[-1])
    if log_weight is not None:
        logits = logits + log_weight.permute(2, 0, 1)
    # 6. masks, then weights
    weights = logits.masked_fill(~allowed, -math.inf).softmax(-1)
    return torch.einsum("bhls,bshe->blhe", weights, v), weights
