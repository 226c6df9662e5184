"""Causal linear attention with the kernel of flash-linear-attention; see `relpe.attention.fla`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.fla import checked, is_candidate, relative_difference
from relpe.attention.linear import attention as linear_attention
from relpe.attention.linear.attention import LinearState, divisor
from relpe.attention.linear.chunked import Tiling

PAD = 16
"""Columns added to the values: the first one sums the keys, the others keep rows aligned."""


def serves(v: Tensor) -> bool:
    """Return whether the package's kernel can be used for values like `v`."""
    return is_candidate(v) and kernel(v.device) is not None


@lru_cache(maxsize=8)
def kernel(device: torch.device) -> Callable[..., Any] | None:
    """Return the package's chunked operation, if it is available and agrees with ours here."""
    return checked(
        "fla.ops.simple_gla",
        "chunk_simple_gla",
        lambda operation: _difference(operation, device),
    )


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: LinearState,
    log_scale: Tensor | None,
    operation: Callable[..., Any] | None = None,
) -> tuple[Tensor, LinearState]:
    """Compute `attention.causal_linear_attention` by `operation`; None: by that of the package.

    Factors of keys are passed as decay: with m the running maximum of their logarithms, the sums
    decay by exp(m[i - 1] - m[i]) at position i. A column of ones among the values gives the
    denominators in the same pass.
    """
    operation = kernel(v.device) if operation is None else operation
    assert operation is not None
    past, fading = state.log_scale, None
    if log_scale is not None:
        running = torch.maximum(log_scale.cummax(1).values, past[:, None])
        before = torch.cat([past[:, None].expand_as(running[:, :1]), running[:, :-1]], 1)
        # there is no decay before the first key
        fading = (before - running).where(before.isfinite(), 0.0).float()
        k = k * torch.exp(log_scale - running).to(k)[..., None]
        past = running[:, -1]
    else:
        past = torch.zeros_like(past)
    ones = torch.ones_like(v[..., :1])
    values = functional.pad(torch.cat([v, ones], -1), (0, PAD - 1))
    sums = torch.cat([state.kv, state.k_sum[..., None]], -1)
    out, sums = operation(
        q.to(v.dtype).contiguous(),
        k.to(v.dtype).contiguous(),
        values,
        g=fading,
        scale=1.0,
        initial_state=functional.pad(sums, (0, PAD - 1)).float(),
        output_final_state=True,
    )
    size = v.shape[-1]
    numerator, weight = out[..., :size].float(), out[..., size].float()
    sums = sums.to(state.kv.dtype)
    new_state = LinearState(sums[..., :size], sums[..., size], past)
    return (numerator / divisor(weight)[..., None]).to(v.dtype), new_state


@torch.inference_mode(False)
@torch.enable_grad()
def _difference(operation: Callable[..., Any], device: torch.device) -> float:
    """Return the relative difference in norm from our outputs and gradients, in a small example."""
    ours = linear_attention.causal_linear_attention
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.rand(2, 2, 150, 2, 64, generator=generator) / 8).to(device).unbind(0)
    v = torch.randn(2, 150, 2, 64, generator=generator).to(device)
    log_scale = torch.randn(2, 150, 2, generator=generator).to(device)
    results = []
    for exact in (True, False):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        values = leaves[2] if exact else leaves[2].bfloat16()
        state = LinearState.empty((2, 2, 64, 64), device=device, dtype=torch.float32)
        if exact:
            how = Tiling(64, 1, 8, torch.float32)
            out, state = ours(leaves[0], leaves[1], values, state, log_scale, how)
        else:
            out, state = causal_linear_attention(
                leaves[0], leaves[1], values, state, log_scale, operation
            )
        grads = torch.autograd.grad(out.float().square().mean(), leaves)
        results.append([out, *state, *grads])
    return relative_difference(*results)
