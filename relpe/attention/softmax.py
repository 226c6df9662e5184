"""Softmax attention with state: exact, with quadratic cost, as a baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.windowed.offset_scores import (
    PairScores,
    for_heads,
    softmax_of_pairs,
    softmax_with_table,
)
from relpe.checks import Checked, check_state
from relpe.encodings.base import NO_SCORING, AttentionName, Rotation, Scoring


class SoftmaxAttentionState(NamedTuple):
    """State of one layer: all keys and values so far."""

    keys: Tensor  # (b, l, h, d), encoded; h are heads of keys, if the encoding treats all alike
    values: Tensor  # (b, l, h, e)
    seen: Tensor | None = None  # (b,) int64: number of the last keys that exist; None: all

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> SoftmaxAttentionState:
        """Return the state with `change` applied to each of its tensors."""
        seen = None if self.seen is None else change(self.seen)
        return SoftmaxAttentionState(change(self.keys), change(self.values), seen)


class SoftmaxMemory(NamedTuple):
    """Keys and values of a sequence to which another one attends."""

    keys: Tensor  # (b, s, h, d), encoded
    values: Tensor  # (b, s, h, e)
    exists: Tensor | None = None  # (b, s) bool: False at padding; None: all exist

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> SoftmaxMemory:
        """Return the memory with `change` applied to each of its tensors."""
        exists = None if self.exists is None else change(self.exists)
        return SoftmaxMemory(change(self.keys), change(self.values), exists)


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttentionConfig(Checked):
    """Exact attention with quadratic cost (Vaswani et al., 2017), as a baseline."""

    kind: Literal["softmax"] = "softmax"

    @property
    def name(self) -> AttentionName:
        """The name of this attention: its kind."""
        return self.kind

    def build(self) -> SoftmaxOperation:
        """Return the operation."""
        return SoftmaxOperation()


class SoftmaxOperation:
    """Causal softmax attention that keeps all keys."""

    state_type = SoftmaxAttentionState

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> SoftmaxAttentionState:
        """Return the state without keys, for `shape` (b, h, e) and keys with `in_features`."""
        b, h, e = shape
        keys, values = (weight.new_zeros(b, 0, h, size) for size in (in_features, e))
        return SoftmaxAttentionState(keys, values)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: SoftmaxAttentionState,
        scoring: Scoring = NO_SCORING,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, SoftmaxAttentionState]:
        """Return attention (b, l, h, e), its scores divided by sqrt(in_features), and the state.

        `lengths` (b,) is the number of positions of each row; see `SelfAttention`.
        """
        past, table = state.keys.shape[1], scoring.table
        if table is None and v.dtype in {torch.bfloat16, torch.float16}:
            q, k = q.to(v.dtype), k.to(v.dtype)  # encoded q and k are wider than half precision
        check_state(state.keys.shape[2:], k.shape[2:])
        keys = torch.cat([state.keys.to(k.dtype), k], 1)
        values = torch.cat([state.values.to(v.dtype), v], 1)
        first = None if state.seen is None else past - state.seen
        after = _ended(keys, values, first, lengths, q.shape[1])
        keys, values = (for_heads(x, q.shape[2]) for x in (keys, values))
        if table is not None:
            return softmax_with_table(q, keys, values, table, first), after
        mask = None
        if past:
            mask = torch.ones(q.shape[1], keys.shape[1], dtype=torch.bool, device=q.device).tril(
                past
            )
            if first is not None:
                exists = torch.arange(keys.shape[1], device=q.device) >= first[:, None]
                mask = mask & exists[:, None, None]
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask,
            is_causal=not past,
        )
        return out.transpose(1, 2), after

    def between(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: SoftmaxAttentionState,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        """Return attention (b, l, h, e) of q (b, l, h, d) to all k, v (b, s, h, ·); no causality.

        `key_mask` (b, s) is True for keys that exist; a query without keys gets zeros.
        """
        return self.recall(q, self.remember(k, v, state, key_mask))

    def remember(
        self,
        k: Tensor,
        v: Tensor,
        state: SoftmaxAttentionState,
        key_mask: Tensor | None = None,
        turn: Rotation | None = None,
    ) -> SoftmaxMemory:
        """Return the keys and values (b, s, h, ·) to which `recall` attends; see `between`."""
        return SoftmaxMemory(k, v, key_mask)

    def recall(self, q: Tensor, memory: SoftmaxMemory, pairs: PairScores | None = None) -> Tensor:
        """Return the attention (b, l, h, e) of encoded q (b, l, h, d) to what was remembered.

        `pairs` are scores that depend on the offset of each pair of query and key.
        """
        k, v, exists = memory
        if pairs is not None:
            return softmax_of_pairs(q, k, v, pairs, exists)
        if v.dtype in {torch.bfloat16, torch.float16}:
            q, k = q.to(v.dtype), k.to(v.dtype)
        mask = None if exists is None else exists[:, None, None]
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
        ).transpose(1, 2)
        if exists is None:
            return out
        return out.where(exists.any(1)[:, None, None, None], 0.0)


def _ended(
    keys: Tensor, values: Tensor, first: Tensor | None, lengths: Tensor | None, length: int
) -> SoftmaxAttentionState:
    """Return the state after `length` new keys, with padding moved before the first key."""
    if lengths is None and first is None:
        return SoftmaxAttentionState(keys, values)
    size = keys.shape[1]
    seen = torch.full((len(keys),), size, device=keys.device)
    seen = seen if first is None else seen - first
    if lengths is None:
        return SoftmaxAttentionState(keys, values, seen)
    padding = length - lengths
    places = (torch.arange(size, device=keys.device) - padding[:, None]).clamp(min=0)
    rows = torch.arange(len(keys), device=keys.device)[:, None]
    return SoftmaxAttentionState(keys[rows, places], values[rows, places], seen - padding)
