"""The gated delta rule position by position, in any dtype."""

from __future__ import annotations

import torch
from torch import Tensor


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """S <- a (I - w k k^T) S + w k v^T, position by position (Yang et al., 2025, equation 10).

    Shapes and results are those of `relpe.attention.delta.rule.gated_delta_rule`.
    """
    outs, eye = [], torch.eye(k.shape[-1], dtype=k.dtype)
    for t in range(q.shape[1]):
        w, a = strength[:, t, :, None, None], log_decay[:, t, :, None, None].exp()
        key, value = k[:, t, :, :, None], v[:, t, :, None]
        state = a * (eye - w * key * key.mT) @ state + w * key * value
        outs.append((q[:, t, :, None] @ state)[:, :, 0])
    return torch.stack(outs, 1), state
