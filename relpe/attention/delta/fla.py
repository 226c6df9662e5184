"""The gated delta rule with the kernel of flash-linear-attention; see `relpe.attention.fla`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.delta import rule
from relpe.attention.fla import checked, is_candidate, relative_difference


def serves(v: Tensor) -> bool:
    """Return whether the package's kernel can be used for values like `v`."""
    return is_candidate(v) and kernel(v.device) is not None


@lru_cache(maxsize=8)
def kernel(device: torch.device) -> Callable[..., Any] | None:
    """Return the package's chunked operation, if it is available and agrees with ours here."""
    return checked(
        "fla.ops.gated_delta_rule",
        "chunk_gated_delta_rule",
        lambda operation: _difference(operation, device),
    )


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    strength: Tensor,
    log_decay: Tensor,
    state: Tensor,
    operation: Callable[..., Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `rule.gated_delta_rule` by `operation`; None: by that of the package."""
    operation = kernel(v.device) if operation is None else operation
    assert operation is not None
    out, state_after = operation(
        q.to(v.dtype).contiguous(),
        k.to(v.dtype).contiguous(),
        v.contiguous(),
        g=log_decay.float(),
        beta=strength.to(v.dtype),
        scale=1.0,
        initial_state=state.float(),
        output_final_state=True,
    )
    return out.to(state.dtype), state_after.to(state.dtype)


@torch.inference_mode(False)
@torch.enable_grad()
def _difference(operation: Callable[..., Any], device: torch.device) -> float:
    """Return the relative difference in norm from our outputs and gradients, in a small example."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 150, 2, 64, generator=generator).unbind(0)
    strength, decay = torch.rand(2, 2, 150, 2, generator=generator).unbind(0)
    given = [*(functional.normalize(x, dim=-1) for x in (q, k)), v, strength, -decay / 8]
    results: list[list[Tensor]] = []
    for exact in (True, False):
        leaves = [x.to(device).requires_grad_() for x in given]
        q, k, v, strength, decay = leaves
        state = torch.zeros(2, 2, 64, 64, device=device)
        if exact:
            out, end = rule.gated_delta_rule(q, k, v, strength, decay, state)
        else:
            out, end = gated_delta_rule(q, k, v.bfloat16(), strength, decay, state, operation)
        grads = torch.autograd.grad(out.float().square().mean(), leaves)
        results.append([out, end, *grads])
    return relative_difference(*results)
