"""Causal softmax attention within a span, without a table, by the fastest way for each case."""

from __future__ import annotations

import torch
from torch import Tensor

from relpe.attention.windowed.bfloat16_blocks import bfloat16_blocks
from relpe.attention.windowed.masked_blocks import masked_blocks
from relpe.transforms import needs_all_derivatives


def banded_attention(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, span: int, dtype: torch.dtype
) -> Tensor:
    """Return attention (b, l, h, e) of q (b, l, h, d) to the last `span` of k, v (b, s + l, h, ·).

    Of the first s keys, the last `seen` (b,) exist; None: all. If `dtype` is bfloat16, matrix
    products and the result are bfloat16; otherwise they have the dtype of q, k and v.
    """
    if dtype != torch.bfloat16 or needs_all_derivatives():
        return masked_blocks(q, k, v, seen, span)
    if q.device.type == "cpu":
        return bfloat16_blocks(q, k, v, seen, span)
    return masked_blocks(q.to(dtype), k.to(dtype), v.to(dtype), seen, span)
