"""Softmax attention within a span, with linear cost: causal with state, or on grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.windowed.bands import banded_attention
from relpe.attention.windowed.offset_scores import Box, box_attention, for_heads
from relpe.checks import (
    Checked,
    at_least,
    check_attention,
    check_causal,
    check_key_mask,
    check_state,
    check_type,
)
from relpe.encodings.base import NO_SCORING, AttentionName, OffsetTable, Scoring
from relpe.transforms import without_autocast


@dataclass(frozen=True, kw_only=True)
class WindowedAttentionConfig(Checked):
    """Exact softmax attention to the keys within a span, with linear cost."""

    kind: Literal["windowed"] = "windowed"
    span: int = 256
    """Number of keys that a query attends to, itself included; a span of the encoding overrides
    it."""

    @property
    def name(self) -> AttentionName:
        """The name of this attention: its kind."""
        return self.kind

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, span=self.span)

    def build(self) -> WindowedOperation:
        """Return the operation."""
        return WindowedOperation(self.span)


class WindowedAttentionState(NamedTuple):
    """State of one layer: the keys and values within the span, newest last."""

    keys: Tensor  # (b, s, h, d), encoded, float32 or wider
    values: Tensor  # (b, s, h, e)
    seen: Tensor  # (b,) int64: number of the keys that exist in each row

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> WindowedAttentionState:
        """Return the state with `change` applied to each of its tensors."""
        return WindowedAttentionState(*map(change, self))


class WindowedOperation:
    """Causal softmax attention within a span.

    Keys are kept in order of age and shifted, instead of a ring buffer: states are immutable, so
    that two continuations can share one, and a copy costs no more than reading the keys.
    """

    state_type = WindowedAttentionState

    def __init__(self, span: int) -> None:
        self.span = span

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> WindowedAttentionState:
        """Return the state without keys, for `shape` (b, h, e) and keys with `in_features`."""
        b, h, e = shape
        dtype = torch.promote_types(torch.float32, weight.dtype)
        keys, values = (
            torch.zeros(b, 0, h, features, device=weight.device, dtype=dtype)
            for features in (in_features, e)
        )
        return WindowedAttentionState(
            keys, values, torch.zeros(b, dtype=torch.int64, device=weight.device)
        )

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: WindowedAttentionState,
        scoring: Scoring = NO_SCORING,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, WindowedAttentionState]:
        """Return the attention (b, l, h, e) of encoded q and k (b, l, h, d), and the new state.

        `lengths` (b,) is the number of positions of each row; see `SelfAttention`.
        """
        check_state(state.keys.shape[2:], k.shape[2:])
        table = scoring.table
        if table is None and not state.keys.shape[1] and q.shape[1] <= self.span:
            return self._all_seen(q, k, v, state, lengths)
        if table is None and q.shape[1] == 1 and lengths is None and not torch.is_grad_enabled():
            return self._one_query(q, k, v, state)
        span = self.span if table is None or table.span is None else table.span
        dtype = torch.promote_types(state.keys.dtype, torch.promote_types(torch.float32, q.dtype))
        with without_autocast(q.device):
            q, k, out_dtype = q.to(dtype), k.to(dtype), v.dtype
            history = min(state.keys.shape[1], span - 1)
            seen = state.seen.clamp(max=history)
            keys, values = (
                torch.cat([past[:, past.shape[1] - history :].to(dtype), new.to(dtype)], 1)
                for past, new in ((state.keys, k), (state.values, v))
            )
            k, v = (for_heads(x, q.shape[2]) for x in (keys, values))
            if table is None:
                out = banded_attention(q, k, v, seen if history else None, span, out_dtype)
            else:
                out = _in_head_groups(q, k, v, seen if history else None, table, span)
        state = WindowedAttentionState(keys, values, seen + q.shape[1])
        return out.to(out_dtype), _shifted(_ended(state, lengths, q.shape[1]), span - 1)

    def _all_seen(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: WindowedAttentionState,
        lengths: Tensor | None,
    ) -> tuple[Tensor, WindowedAttentionState]:
        """Return a first call within the span: ordinary attention, by the fastest kernel."""
        heads_first = [for_heads(x, q.shape[2]).transpose(1, 2) for x in (q, k, v.to(q.dtype))]
        out = functional.scaled_dot_product_attention(
            heads_first[0], heads_first[1], heads_first[2], is_causal=True
        )
        kept = WindowedAttentionState(
            k.to(state.keys.dtype), v.to(state.values.dtype), state.seen + q.shape[1]
        )
        kept = _ended(kept, lengths, q.shape[1])
        return out.transpose(1, 2).to(v.dtype), _shifted(kept, self.span - 1)

    def _one_query(
        self, q: Tensor, k: Tensor, v: Tensor, state: WindowedAttentionState
    ) -> tuple[Tensor, WindowedAttentionState]:
        """Return a single position, which attends to all keys of the state."""
        dtype, history = state.keys.dtype, min(state.keys.shape[1], self.span - 1)
        keys, values = (
            torch.cat([past[:, past.shape[1] - history :], new.to(dtype)], 1)
            for past, new in ((state.keys, k), (state.values, v))
        )
        ages = torch.arange(history, -1, -1, device=q.device)
        with without_autocast(q.device):
            out = functional.scaled_dot_product_attention(
                q.to(dtype).transpose(1, 2),
                for_heads(keys, q.shape[2]).transpose(1, 2),
                for_heads(values, q.shape[2]).transpose(1, 2),
                attn_mask=(ages <= state.seen[:, None])[:, None, None],
            )
        seen = (state.seen.clamp(max=history) + 1).clamp(max=self.span - 1)
        if keys.shape[1] == self.span:  # a new tensor, so a view of it needs no copy
            kept = WindowedAttentionState(keys[:, 1:], values[:, 1:], seen)
        else:
            kept = _shifted(WindowedAttentionState(keys, values, seen), self.span - 1)
        return out.transpose(1, 2).to(v.dtype), kept


_BY_HEAD = ("features", "bias", "factor", "log_weight")
"""Tensors of a table with a row per offset and an axis of heads."""


def windowed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: OffsetTable,
    half_widths: Sequence[int],
    *,
    order: Literal["raster", "product"] | None = None,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return attention (b, *grid, h, e) of q, k (b, *grid, h, d), v in a box of a grid; no state.

    The rows of the table are the offsets of `box_of(half_widths, order)`. `key_mask` (1 or b,
    *grid) is True for visible keys; the result of a query without visible keys is undefined.
    """
    check_attention(q, k, v)
    check_causal(q, k)
    _check_box(q, table, half_widths, order)
    if key_mask is not None:
        check_key_mask(key_mask, q.shape[:-2])
    box = box_of(half_widths, order)
    axes = len(half_widths)
    pads = [x for pair in zip(box.before, box.after, strict=True) for x in pair[::-1]][::-1]
    if key_mask is None:
        key_mask = torch.ones(1, *q.shape[1 : 1 + axes], dtype=torch.bool, device=q.device)
    later = later_offsets(box, order, device=q.device)
    if later is not None:
        weight = table.log_weight
        if weight is None:
            weight = q.new_zeros(len(later), q.shape[-2])
        table = table._replace(log_weight=weight.masked_fill(later[:, None], -math.inf))
    k, v = (functional.pad(x, [0, 0, 0, 0, *pads]) for x in (k, v))
    return box_attention(q, k, v, table, box, functional.pad(key_mask, pads))


def _check_box(
    q: Tensor, table: OffsetTable, half_widths: Sequence[int], order: str | None
) -> None:
    """Raise TypeError or ValueError if the arguments of `windowed_attention` do not fit."""
    check_type("table", table, OffsetTable)
    check_type("half_widths", half_widths, Sequence)
    if len(half_widths) != q.ndim - 3 or not all(
        isinstance(x, int) and x >= 0 for x in half_widths
    ):
        raise ValueError(
            f"half_widths are {half_widths}, expected an integer of at least 0 for each of the "
            f"{q.ndim - 3} axes"
        )
    if order not in (None, "raster", "product"):
        raise ValueError(f"order is {order!r}, expected None, 'raster' or 'product'")
    heads, count = q.shape[-2], math.prod(box_of(half_widths, order).sizes)
    for name in _BY_HEAD:
        x = getattr(table, name)
        if x is not None and table.rows is None and (x.shape[0], x.shape[1]) != (count, heads):
            raise ValueError(
                f"{name} of the table has the shape {tuple(x.shape)}, expected {count} offsets of "
                f"the box and {heads} heads"
            )


def box_of(half_widths: Sequence[int], order: Literal["raster", "product"] | None = None) -> Box:
    """Return the smallest box with all visible keys.

    In raster order these are the rows up to the query; in product order, a quadrant.
    """
    before = tuple(half_widths)
    if order is None:
        return Box(before, before)
    if order == "product":
        return Box(before, (0,) * len(before))
    return Box(before, (0, *before[1:]))


def box_offsets(box: Box, device: torch.device | None = None) -> Tensor:
    """Return the offsets (o, n) of a box, int64, in the order of the table's rows."""
    axes = [
        torch.arange(-b, a + 1, device=device) for b, a in zip(box.before, box.after, strict=True)
    ]
    return torch.cartesian_prod(*axes).view(-1, len(axes))


def later_offsets(
    box: Box, order: Literal["raster", "product"] | None, device: torch.device | None = None
) -> Tensor | None:
    """Return the mask (o,) of offsets whose keys come after the query; None if there are none."""
    if order != "raster" or len(box.before) == 1:
        return None
    offsets = box_offsets(box, device)
    # the sign of the first axis that is not zero
    later = torch.zeros(len(offsets), dtype=torch.bool, device=device)
    for axis in reversed(offsets.unbind(-1)):
        later = (axis > 0) | ((axis == 0) & later)
    return later


def _in_head_groups(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None,
    table: OffsetTable,
    span: int,
) -> Tensor:
    """Make one call for each distinct span of the heads."""
    spans = table.head_spans
    if spans is None or len(set(spans)) == 1:
        return _causal(q, k, v, seen, table, span if spans is None else min(span, spans[0]))
    outs: dict[int, Tensor] = {}
    for size in sorted(set(spans)):
        heads = [head for head, head_span in enumerate(spans) if head_span == size]
        some_q, some_k, some_v = (_heads_of(x, heads, 2) for x in (q, k, v))
        some = table.map(lambda x, heads=heads: _heads_of(x, heads, 1), *_BY_HEAD)
        some = some.map(lambda x, heads=heads: _heads_of(x, heads, 0), "content_bias")
        out = _causal(some_q, some_k, some_v, seen, some, min(span, size))
        outs.update(zip(heads, out.unbind(2), strict=True))
    return torch.stack([outs[head] for head in range(len(spans))], 2)


def _heads_of(x: Tensor, heads: list[int], dim: int) -> Tensor:
    """Select heads without an index tensor, which would have to be copied to the device."""
    every = x.unbind(dim)
    return torch.stack([every[head] for head in heads], dim)


def _causal(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, table: OffsetTable, span: int
) -> Tensor:
    """Return attention of q (b, l, h, d) to k, v (b, s + l, h, ·); see `banded_attention`."""
    length = q.shape[1]
    history = k.shape[1] - length
    reach = min(span, k.shape[1], _places(table, span))
    # the first query needs reach - 1 keys before it; missing ones are padding
    before = reach - 1
    if before <= history:
        k, v = (x[:, history - before :] for x in (k, v))
    else:
        k, v = (functional.pad(x, [0, 0, 0, 0, before - history, 0]) for x in (k, v))
    valid = None
    if before:
        steps = torch.arange(k.shape[1], device=q.device)
        first = before if seen is None else before - seen[:, None]
        valid = (steps >= first).view(-1, k.shape[1])

    by_age = ("factor", "log_weight") if table.rows is not None else _BY_HEAD
    table = table.map(lambda x: x.narrow(0, 0, reach).flip(0), *by_age)
    table = table.map(lambda x: x.narrow(2, 0, reach).flip(2), "rows")
    return box_attention(q, k, v, table.to(q.dtype), Box((before,), (0,)), valid)


def _places(table: OffsetTable, default: int) -> int:
    """Return the number of positions up to a query, itself included, that the table scores."""
    if table.rows is not None:
        return table.rows.shape[2]
    by_place = (getattr(table, name) for name in _BY_HEAD)
    return min([default] + [x.shape[0] for x in by_place if x is not None])


def _ended(
    state: WindowedAttentionState, lengths: Tensor | None, length: int
) -> WindowedAttentionState:
    """Return the state without the keys after the end of each row.

    The last of `length` keys are new.
    """
    if lengths is None:
        return state
    padding = length - lengths
    keys, values, seen = state
    places = torch.arange(keys.shape[1], device=keys.device) - padding[:, None]
    rows, places = torch.arange(len(keys), device=keys.device)[:, None], places.clamp(min=0)
    return WindowedAttentionState(keys[rows, places], values[rows, places], seen - padding)


def _shifted(state: WindowedAttentionState, slots: int) -> WindowedAttentionState:
    """Return the state with the last `slots` keys, padded to that size without gradients."""
    kept = min(state.keys.shape[1], slots)
    parts = [x[:, x.shape[1] - kept :] for x in (state.keys, state.values)]
    if not torch.is_grad_enabled():
        parts = [functional.pad(x, [0, 0, 0, 0, slots - kept, 0]).contiguous() for x in parts]
        if kept == slots:
            # copies, since views would keep a whole prompt in memory
            parts = [x.clone() for x in parts]
    return WindowedAttentionState(parts[0], parts[1], state.seen.clamp(max=slots))
