"""Naive causal attention from all scores, as a reference for the fast operations."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def causal_linear_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b l h f"],
    v: Float[Tensor, "b l h e"],
    log_scale: Float[Tensor, "b l h"] | None = None,
    half_lives: Float[Tensor, " h"] | None = None,
) -> Float[Tensor, "b l h e"]:
    """Output (b, l, h, e) for features (b, l, h, f) and values (b, l, h, e)."""
    scores = torch.einsum("blhf,bshf->bhls", q, k)
    if log_scale is not None:
        scores = (
            scores
            * (log_scale - log_scale.amax(1, keepdim=True)).exp().permute(0, 2, 1)[:, :, None]
        )
    if half_lives is not None:
        places = torch.arange(q.shape[1], device=q.device)
        lags = (places[:, None] - places).clamp(min=0)
        scores = scores * 0.5 ** (lags / half_lives[:, None, None])
    scores = scores.tril()
    return torch.einsum("bhls,bshe->blhe", scores / scores.sum(-1, keepdim=True), v)


def numerator_only_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b l h f"],
    turned_q: Float[Tensor, "b l h f"],
    turned_k: Float[Tensor, "b l h f"],
    v: Float[Tensor, "b l h e"],
    log_scale: Float[Tensor, "b l h"] | None = None,
) -> Float[Tensor, "b l h e"]:
    """Causal linear attention, rotated in the numerator only (Su et al., 2021, section 3.3).

    The numerator is the sum over the past of (rotated query . rotated key) times value, and the
    denominator the sum of query . key. `log_scale` is the logarithm of a factor of each key.
    """
    numerators = torch.einsum("blhf,bshf->bhls", turned_q, turned_k).tril()
    weights = torch.einsum("blhf,bshf->bhls", q, k).tril()
    if log_scale is not None:
        scale = log_scale.exp().permute(0, 2, 1)[:, :, None]
        numerators, weights = numerators * scale, weights * scale
    return torch.einsum("bhls,bshe->blhe", numerators / weights.sum(-1, keepdim=True), v)
