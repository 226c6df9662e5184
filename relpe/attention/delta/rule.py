"""The gated delta rule in chunks (Yang, Kautz & Hatamizadeh, 2025).

The state S (d, e) maps keys to values. A position with key k of unit norm, value v, decay a in
(0, 1] and write strength w in [0, 1] replaces a share of what S returns for k:

    S <- a S;  S <- S + w k (v - S^T k)^T;  the output is S^T q

In a chunk, all corrections v - S^T k follow from one triangular system, so that the loop is over
chunks instead of positions.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 32
"""Positions per chunk."""


def gated_delta_rule(
    q: Float[Tensor, "b l h d"],
    k: Float[Tensor, "b l h d"],
    v: Float[Tensor, "b l h e"],
    strength: Float[Tensor, "b l h"],
    log_decay: Float[Tensor, "b l h"],
    state: Float[Tensor, "b h d e"],
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, "b l h e"], Float[Tensor, "b h d e"]]:
    """Outputs (b, l, h, e) and the state after the last position, in the dtype of the state.

    Keys have unit norm, strengths are 0 to 1, and logarithms of decays at most 0. Cost and memory
    are linear in l.
    """
    dtype, length = state.dtype, q.shape[1]
    # (b, h, n, c, .), with positions added at the end that change nothing
    q, k, v = (_in_chunks(x.to(dtype), chunk) for x in (q, k, v))
    strength, log_decay = (
        _in_chunks(x.to(dtype)[..., None], chunk)[..., 0] for x in (strength, log_decay)
    )
    total = log_decay.cumsum(-1)  # logarithm of the decay since the start of the chunk
    earlier = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril(-1)
    since = (total[..., :, None] - total[..., None, :]).clamp(max=0).exp()
    lower = torch.where(earlier, (strength[..., None] * k) @ k.mT * since, 0.0)
    decay = total.exp()[..., None]
    right = strength[..., None] * torch.cat([v, decay * k], -1)
    solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    written, read = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = torch.where(earlier.T.logical_not(), q @ k.mT * since, 0.0)
    queries, to_end = q * decay, (total[..., -1:] - total).exp()[..., None] * k
    end = decay[..., -1:, :]
    outs = []
    # unbound, since the gradient of each slice would be as large as the whole
    chunks = (x.unbind(2) for x in (written, read, queries, scores, to_end, end))
    for write, past, query, score, key, fade in zip(*chunks, strict=True):
        corrections = write - past @ state
        outs.append(query @ state + score @ corrections)
        state = fade * state + key.mT @ corrections
    out = torch.stack(outs, 2).flatten(2, 3)[:, :, :length]
    return out.transpose(1, 2), state


def delta_step(
    q: Float[Tensor, "b h d"],
    k: Float[Tensor, "b h d"],
    v: Float[Tensor, "b h e"],
    strength: Float[Tensor, "b h"],
    log_decay: Float[Tensor, "b h"],
    state: Float[Tensor, "b h d e"],
) -> tuple[Float[Tensor, "b h e"], Float[Tensor, "b h d e"]]:
    """The rule at one position, in the dtype of the state."""
    q, k, v, strength, log_decay = (x.to(state.dtype) for x in (q, k, v, strength, log_decay))
    state = log_decay.exp()[..., None, None] * state
    correction = v - (k[..., None, :] @ state)[..., 0, :]
    state = state + (strength[..., None] * k)[..., None] * correction[..., None, :]
    return (q[..., None, :] @ state)[..., 0, :], state


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """(b, h, n, c, f) of x (b, l, h, f), padded with zeros to whole chunks."""
    chunk = min(chunk, x.shape[1])
    x = torch.nn.functional.pad(x, [0, 0, 0, 0, 0, -x.shape[1] % chunk])
    return x.transpose(1, 2).unflatten(2, (-1, chunk))
