"""Causal linear attention with rotated features in the numerator only.

Rotations do not commute with relu or elu + 1. Applied before the feature map, they do not give
relative scores. Applied after it, scores are relative but signed, so their sum cannot be the
denominator. Hence the numerator has rotated features and the denominator plain ones (Su et al.,
2021, section 3.3). The result is not a mean of values: its weights are signed and do not sum to 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from relpe.attention.linear.attention import LinearState, divisor, step
from relpe.attention.linear.chunked import causal_sums, tiling


def numerator_only_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b l h f"],
    turned_q: Float[Tensor, "b l h f"],
    turned_k: Float[Tensor, "b l h f"],
    v: Float[Tensor, "b l h e"],
    state: LinearState,
    log_scale: Float[Tensor, "b_or_1 l h"] | None = None,
) -> tuple[Float[Tensor, "b l h e"], LinearState]:
    """Return the sums of values weighted by rotated features, divided by sums of plain features.

    Otherwise like `causal_linear_attention`. In the state, `kv` has rotated keys and `k_sum` plain
    ones.
    """
    dtype = state.kv.dtype
    if q.shape[1] == 1 and not torch.is_grad_enabled():
        now = [x[:, 0].to(dtype) for x in (q, k, turned_q, turned_k, v)]
        out, state = _one_position(now, state, None if log_scale is None else log_scale[:, 0])
        return out[:, None].to(v.dtype), state
    if 0 in q.shape[:2]:
        return v, state
    how = tiling(v.device, v.dtype, dtype)
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, turned_q, turned_k, v)]
    plain_q, plain_k, round_q, round_k, values = flat
    scale = None if log_scale is None else log_scale.transpose(1, 2).flatten(0, 1)
    kv, k_sum, start = (part.flatten(0, 1) for part in state)
    numerator, _, kv, _, last = causal_sums(
        round_q, round_k, values, kv, torch.zeros_like(k_sum), scale, start, how
    )
    nothing = values[..., :0]  # denominators need no values
    _, denominator, _, k_sum, _ = causal_sums(
        plain_q, plain_k, nothing, kv[..., :0], k_sum, scale, start, how
    )
    out = numerator / divisor(denominator)[..., None]
    rows = (q.shape[0], q.shape[2])
    new_state = LinearState(*(part.unflatten(0, rows) for part in (kv, k_sum, last)))
    return out.unflatten(0, rows).transpose(1, 2).to(v.dtype), new_state


def _one_position(
    now: list[Tensor], state: LinearState, log_scale: Tensor | None
) -> tuple[Tensor, LinearState]:
    """Return the same for one position: (b, h, e) from features (b, h, f) and values (b, h, e)."""
    q, k, turned_q, turned_k, v = now
    _, turned = step(turned_q, turned_k, v, state, log_scale)
    _, plain = step(q, k, v[..., :0], state._replace(kv=state.kv[..., :0]), log_scale)
    numerator = (turned_q[..., None, :] @ turned.kv)[..., 0, :]
    denominator = (q * plain.k_sum).sum(-1, keepdim=True)
    out = numerator / divisor(denominator)
    return out, turned._replace(k_sum=plain.k_sum)
