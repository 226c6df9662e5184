"""Softmax attention with state: exact, with quadratic cost, as a baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.windowed.offset_scores import softmax_with_table
from relpe.encodings.base import AttentionName, OffsetTable


class SoftmaxAttentionState(NamedTuple):
    """State of one layer: all keys and values so far."""

    keys: Tensor  # (b, l, h, d), encoded
    values: Tensor  # (b, l, h, e)

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> SoftmaxAttentionState:
        """The state with `change` applied to each of its tensors."""
        return SoftmaxAttentionState(*map(change, self))


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttentionConfig:
    """Exact attention with quadratic cost (Vaswani et al., 2017), as a baseline."""

    kind: Literal["softmax"] = "softmax"

    @property
    def name(self) -> AttentionName:
        """The name of this attention: its kind."""
        return self.kind

    def build(self) -> SoftmaxOperation:
        """The operation."""
        return SoftmaxOperation()


class SoftmaxOperation:
    """Causal softmax attention that keeps all keys."""

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> SoftmaxAttentionState:
        """State without keys, for `shape` (b, h, e) and keys with `in_features`."""
        b, h, e = shape
        keys, values = (weight.new_zeros(b, 0, h, size) for size in (in_features, e))
        return SoftmaxAttentionState(keys, values)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: SoftmaxAttentionState,
        table: OffsetTable | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, SoftmaxAttentionState]:
        """Attention (b, l, h, e), with scores divided by sqrt(in_features), and the new state.

        Raises:
            ValueError: `lengths` are given, but all rows have the same number of keys.
        """
        if lengths is not None:
            raise ValueError("softmax attention without a window needs rows of one length")
        past = state.keys.shape[1]
        if table is None and v.dtype in {torch.bfloat16, torch.float16}:
            q, k = q.to(v.dtype), k.to(v.dtype)  # encoded q and k are wider than half precision
        keys = torch.cat([state.keys.to(k.dtype), k], 1)
        values = torch.cat([state.values.to(v.dtype), v], 1)
        if table is not None:
            out = softmax_with_table(q, keys, values, table)
            return out, SoftmaxAttentionState(keys, values)
        mask = None
        if past:
            mask = torch.ones(q.shape[1], keys.shape[1], dtype=torch.bool, device=q.device).tril(
                past
            )
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask,
            is_causal=not past,
        )
        return out.transpose(1, 2), SoftmaxAttentionState(keys, values)
