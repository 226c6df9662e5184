"""Slow, obvious versions of the operations: what the fast ones are tested against."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from relpe.encodings.stochastic.sine import SineNoise, SineSPE


def causal_linear_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b l h f"],
    v: Float[Tensor, "b l h e"],
    log_scale: Float[Tensor, "b l h"] | None = None,
    half_lives: Float[Tensor, " h"] | None = None,
) -> Float[Tensor, "b l h e"]:
    """All weights at once: (b, l, h, e) of features (b, l, h, f) and values (b, l, h, e)."""
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


def softmax_attention(
    logits: Float[Tensor, "b h l l"], v: Float[Tensor, "b l h e"]
) -> Float[Tensor, "b l h e"]:
    """Causal softmax attention of explicit logits (b, h, l, s) and values (b, s, h, e)."""
    future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
    return torch.einsum("bhls,bshe->blhe", logits.masked_fill(future, -torch.inf).softmax(-1), v)


def sine_codes(encoding: SineSPE, positions: Tensor, noise: SineNoise) -> tuple[Tensor, Tensor]:
    """Codes of queries and keys (l, h, d, r) at `positions` (l,), before the gate (ibid., 3.2)."""
    sines = encoding.config.num_sines
    features, draws = noise.sines.shape[1], noise.sines.shape[-1]
    frequencies = torch.sigmoid(encoding.frequencies) / 2
    gains = functional.softplus(encoding.gains) / math.sqrt(2 * sines) * (draws * features) ** -0.25

    def codes(offsets: Tensor | float) -> Tensor:
        angles = (
            2 * math.pi * frequencies * positions.to(frequencies)[:, None, None, None] + offsets
        )
        waves = torch.stack([angles.cos(), angles.sin()], -1) * gains[..., None]
        return torch.einsum("lhdkw,hdkwr->lhdr", waves, noise.sines.to(frequencies))

    return codes(encoding.offsets), codes(0.0)


def apply_sine_spe(
    encoding: SineSPE, q: Tensor, k: Tensor, positions: Tensor, noise: SineNoise, layer: int
) -> tuple[Tensor, Tensor]:
    """Encoded queries and keys (b, l, h, r) by the codes themselves, every product written out."""
    query_codes, key_codes = sine_codes(encoding, positions, noise)
    if encoding.gates is not None:
        gate = torch.sigmoid(encoding.gates[layer])[..., None]
        features, draws = noise.gates.shape[2:]
        constant = gate.sqrt() * noise.gates[layer].to(gate) * (draws * features) ** -0.25
        query_codes = (1 - gate).sqrt() * query_codes + constant
        key_codes = (1 - gate).sqrt() * key_codes + constant
    return (q[..., None] * query_codes).sum(3), (k[..., None] * key_codes).sum(3)
