"""Attention within a span in blocks with masks, on any device and in any dtype."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 256
"""Queries per block: larger blocks compute more masked scores, smaller ones need more calls."""


def masked_blocks(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, span: int) -> Tensor:
    """Compute `banded_attention` in the dtype of q, k and v.

    Computed in blocks of queries by PyTorch's fastest kernel, with a mask and the keys from the
    start of the first query's span to the last query.
    """
    history = k.shape[1] - q.shape[1]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    outs: list[Tensor] = []
    bands: dict[tuple[int, int, int], Tensor] = {}  # most blocks have the same mask
    for start in range(0, q.shape[2], BLOCK):
        block = q[:, :, start : start + BLOCK]
        place, last = start + history, start + history + block.shape[2]
        first = max(0, place - span + 1)
        size = (block.shape[2], last - first, place - first)
        if size not in bands:
            bands[size] = _span_mask(*size, span, q)
        mask = bands[size]
        if seen is not None and first < history:
            keys = torch.arange(first, last, device=q.device)
            missing = (keys < history - seen[:, None])[:, None, None]
            mask = mask.masked_fill(missing, -math.inf)
        keys, values = k[:, :, first:last], v[:, :, first:last]
        outs.append(functional.scaled_dot_product_attention(block, keys, values, attn_mask=mask))
    return torch.cat(outs, 2).transpose(1, 2)


def _span_mask(queries: int, keys: int, place: int, span: int, like: Tensor) -> Tensor:
    """Return the additive mask (1, 1, l, s) of a block; `place` is its first query's own key."""
    query = torch.arange(place, place + queries, device=like.device)
    age = query[:, None] - torch.arange(keys, device=like.device)
    hidden = (age < 0) | (age >= span)
    return torch.zeros_like(hidden, dtype=like.dtype).masked_fill(hidden, -math.inf)[None, None]
