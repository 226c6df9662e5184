"""Attention within a span on GPUs by PyTorch's FlexAttention, which skips blocks of hidden keys.

The kernel is compiled by Triton, once per process and shape, so that it is used in training only.
Before, its results are checked, as those of `relpe/attention/fla.py`. Otherwise blocks with
masks compute the same attention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from relpe.attention.windowed.masked_blocks import masked_blocks

log = logging.getLogger(__name__)

SMALLEST = 16
"""Fewest features per head that the kernel supports; their number must be a power of two."""
TOLERANCE = 0.02
"""Tolerance of the check, relative to the norm; bfloat16 has 8 significant bits."""


def serves(q: Tensor, v: Tensor) -> bool:
    """Whether the kernel can be used for queries and values like `q` and `v` (b, l, h, ·)."""
    sizes = (q.shape[-1], v.shape[-1])
    return (
        q.device.type == "cuda"
        and q.dtype == torch.bfloat16
        and torch.is_grad_enabled()
        and all(size >= SMALLEST and not size & (size - 1) for size in sizes)
        and kernel(q.device) is not None
    )


@lru_cache(maxsize=8)
def kernel(device: torch.device) -> Callable[..., Any] | None:
    """The compiled kernel, if it can be compiled and agrees with the blocks on this device."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    try:
        difference = _difference(compiled, device)
    except Exception as error:  # noqa: BLE001 - compilers raise all kinds of errors
        log.warning("FlexAttention is not used, since its test failed: %s", error)
        return None
    if difference > TOLERANCE:
        log.warning(
            "FlexAttention is not used: its relative error is %.3g, expected below %.3g",
            *(difference, TOLERANCE),
        )
        return None
    return compiled


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None,
    span: int,
    operation: Callable[..., Any] | None = None,
) -> Tensor:
    """Attention as of `banded_attention`, by `operation`; None: the compiled kernel."""
    operation = kernel(q.device) if operation is None else operation
    assert operation is not None
    mask = block_mask(q.shape[1], k.shape[1], seen, span, q.device)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return operation(q, k, v, block_mask=mask).transpose(1, 2)


def block_mask(
    queries: int, keys: int, seen: Tensor | None, span: int, device: torch.device
) -> Any:  # noqa: ANN401 - a BlockMask
    """The blocks of keys that are visible to each block of queries."""
    if seen is None:
        return _shared_mask(queries, keys, span, device)
    return _mask_of(queries, keys, seen, span, device)


@lru_cache(maxsize=16)
def _shared_mask(queries: int, keys: int, span: int, device: torch.device) -> Any:  # noqa: ANN401
    return _mask_of(queries, keys, None, span, device)


def _mask_of(queries: int, keys: int, seen: Tensor | None, span: int, device: torch.device) -> Any:  # noqa: ANN401
    from torch.nn.attention.flex_attention import create_block_mask

    history = keys - queries

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        age = query + history - key
        within = (age >= 0) & (age < span)
        return within if seen is None else within & (key >= history - seen[row])

    rows = None if seen is None else len(seen)
    return create_block_mask(visible, rows, None, queries, keys, device=device)


@torch.inference_mode(False)
@torch.enable_grad()
def _difference(operation: Callable[..., Any], device: torch.device) -> float:
    """Relative difference in norm from blocks in float32, and of gradients, for an example."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 400, 2, 32, generator=generator).to(device, torch.bfloat16)
    leaves = [x.requires_grad_() for x in (q[:, 100:].clone(), k, v)]
    seen = torch.tensor([100, 30], device=device)
    results = []
    for exact in (True, False):
        if exact:
            wide = [x.float() for x in leaves]
            out = masked_blocks(wide[0], wide[1], wide[2], seen, 150)
        else:
            out = attention(leaves[0], leaves[1], leaves[2], seen, 150, operation)
        grads = torch.autograd.grad(out.float().square().mean(), leaves)
        results.append([out.detach(), *grads])
    return max(
        float((a.float() - b.float()).norm() / a.float().norm().clamp(min=1e-6))
        for a, b in zip(*results, strict=True)
    )
