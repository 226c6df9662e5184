"""Softmax attention with logits that depend on the offset between query and key.

`softmax_with_table` computes all scores. `box_attention` computes only those in a box of offsets
around each query, by tiles of queries, on grids with any number of axes; for a causal sequence the
box contains only earlier keys. Its memory beyond inputs and outputs is that of a few tiles, in
training too, since the backward pass recomputes the scores.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.encodings.base import OffsetTable
from relpe.transforms import apply, first_derivatives, outside_graphs, without_autocast

TILE = 64
"""Queries per tile."""
SCORES_AT_ONCE = 2**22
"""Scores computed at once, which determines the number of tiles in a group."""


def softmax_with_table(
    q: Tensor, k: Tensor, v: Tensor, table: OffsetTable, first: Tensor | None = None
) -> Tensor:
    """Return causal attention (b, l, h, e) of q (b, l, h, d) to k, v (b, s, h, ·) by `table`.

    The last l keys are those of the queries. `first` (b,) is the first key of each row, if those
    before it are padding; None: 0. Computes all scores (b, h, l, s), in float32 or wider.
    """
    dtype = torch.promote_types(torch.float32, q.dtype)
    with without_autocast(q.device):
        out = _dense(q.to(dtype), k.to(dtype), v.to(dtype), table.to(dtype), first)
    return out.to(v.dtype)


def _dense(q: Tensor, k: Tensor, v: Tensor, table: OffsetTable, first: Tensor | None) -> Tensor:
    length, size = q.shape[1], k.shape[1]
    steps = torch.arange(size, device=q.device)
    ages = steps[size - length :, None] - steps
    spans = table.head_spans or (table.span or size,)
    allowed = torch.stack([(ages >= 0) & (ages < span) for span in spans])  # (h or 1, l, s)
    if first is not None:
        allowed = allowed & (steps >= first[:, None])[:, None, None]
    return _scored(q, k, v, table, ages.clamp(0, min(size, table.span or size) - 1), allowed)


def _scored(
    q: Tensor, k: Tensor, v: Tensor, table: OffsetTable, places: Tensor, allowed: Tensor | None
) -> Tensor:
    """Return attention with rows `places` (l, s) of the table, to the pairs that are `allowed`."""

    def by_pair(values: Tensor) -> Tensor:
        return values[places].permute(2, 0, 1)  # (h, l, s) of (o, h)

    bias = 0.0 if table.content_bias is None else table.content_bias
    logits = torch.einsum("blhd,bshd->bhls", q + bias, k)
    factor = None if table.factor is None else by_pair(table.factor)
    position = _row_logits(q.transpose(1, 2), table.features, table.bias, table.rows)
    if position is not None:
        position = position.gather(-1, places.expand(*position.shape[:-1], -1))
    logits = _combined(logits, position, factor, table) / math.sqrt(q.shape[-1])
    if table.log_weight is not None:
        logits = logits + by_pair(table.log_weight)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    return torch.einsum("bhls,bshe->blhe", logits.softmax(-1), v)


def for_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat keys or values (b, s, g, d) of groups of heads for all heads: (b, s, h, d)."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2)


class PairScores(NamedTuple):
    """Scores of offsets, and the row of the table for each pair of a query and a key."""

    table: OffsetTable
    places: Tensor  # (l, s) int64


def softmax_of_pairs(
    q: Tensor, k: Tensor, v: Tensor, pairs: PairScores, exists: Tensor | None = None
) -> Tensor:
    """Return attention (b, l, h, e) of q (b, l, h, d) to all k, v (b, s, h, ·), without causality.

    `exists` (b, s) is False for keys that are padding; a query without keys gets zeros. Computes
    all scores (b, h, l, s), in float32 or wider.
    """
    dtype = torch.promote_types(torch.float32, q.dtype)
    table = pairs.table.to(dtype)
    with without_autocast(q.device):
        q, k, wide_v = q.to(dtype), k.to(dtype), v.to(dtype)
        if exists is None:
            return _scored(q, k, wide_v, table, pairs.places, None).to(v.dtype)
        has_keys = exists.any(1)[:, None, None, None]
        out = _scored(q, k, wide_v, table, pairs.places, exists[:, None, None] | ~has_keys)
    return out.to(v.dtype).where(has_keys, 0.0)


class Box(NamedTuple):
    """Offsets that a query attends to: numbers of places before and after it on each axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of offsets on each axis."""
        return tuple(b + a + 1 for b, a in zip(self.before, self.after, strict=True))


@outside_graphs  # its backward pass calls autograd, which compilers cannot trace
def box_attention(
    q: Tensor, k: Tensor, v: Tensor, table: OffsetTable, box: Box, valid: Tensor | None = None
) -> Tensor:
    """Return attention (b, *grid, h, e) of q (b, *grid, h, d) to keys in the box around each query.

    k and v (b, *padded, h, ·) are padded on each axis by `box.before` and `box.after`. `valid`
    (1 or b, *padded) is True for keys that exist; None: all. The rows of the table are the offsets
    of the box in order, the last axis varying fastest. Its `rows`, only with one axis, are
    (1 or b, l, o, n).
    """
    axes = len(box.before)
    grid, heads = q.shape[1 : 1 + axes], q.shape[-2]
    # edges of equal length, where the grid is large enough
    edge = max(1, round(TILE ** (1 / axes)))
    tile = tuple(min(places, edge) for places in grid)
    beyond = tuple(-places % size for places, size in zip(grid, tile, strict=True))
    if any(beyond) and valid is None:
        valid = torch.ones(1, *k.shape[1 : 1 + axes], dtype=torch.bool, device=k.device)
    q, k, v = (_pad_grid(x, beyond, 2) for x in (q, k, v))
    valid = None if valid is None else _pad_grid(valid, beyond, 0)
    rows = None if table.rows is None else _pad_grid(table.rows, beyond, 2)

    options = _Options(tile, box.sizes, table.multiplies, table.factor_on_position)
    weight = table.log_weight
    if weight is None:
        weight = q.new_zeros(math.prod(box.sizes), heads)
    out = apply(
        _BoxAttention,
        options,
        q,
        k,
        v,
        table.content_bias,
        table.features,
        table.bias,
        None if table.factor is None else _by_key(table.factor, tile, box.sizes, 0.0),
        _by_key(weight, tile, box.sizes, -math.inf),
        valid,
        rows,
    )
    return out[(slice(None), *(slice(places) for places in grid))]


class _Options(NamedTuple):
    tile: tuple[int, ...]
    offsets: tuple[int, ...]
    multiplies: bool
    factor_on_position: bool

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of keys of a tile on each axis."""
        return tuple(c + o - 1 for c, o in zip(self.tile, self.offsets, strict=True))


class _BoxAttention(torch.autograd.Function):
    """Attention by groups of tiles; the backward pass recomputes it."""

    @staticmethod
    def forward(ctx: Any, options: _Options, *tensors: Any) -> Tensor:  # noqa: ANN401
        ctx.options = options
        ctx.save_for_backward(*tensors)
        q, _, v = tensors[:3]
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        for queries, keys in _groups(q, options):
            out[:, queries] = _attend(options, *_parts(tensors, queries, keys))
        return out

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor | None, ...]:
        options, tensors = ctx.options, ctx.saved_tensors
        indices = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        grads = {i: torch.zeros_like(tensors[i]) for i in indices}
        for queries, keys in _groups(tensors[0], options):
            spans = (queries, keys, keys)
            parts = [
                None if part is None else part.detach() for part in _parts(tensors, queries, keys)
            ]
            inputs: list[Tensor] = []
            for i in indices:
                leaf = parts[i]
                assert leaf is not None
                inputs.append(leaf.requires_grad_())
            with torch.enable_grad():
                out = _attend(options, *parts)
            part_grads = torch.autograd.grad(out, inputs, grad[:, queries])
            for i, more in zip(indices, part_grads, strict=True):
                (grads[i][:, spans[i]] if i < len(spans) else grads[i]).add_(more)
        return None, *(grads.get(i) for i in range(len(tensors)))


def _groups(q: Tensor, options: _Options) -> list[tuple[slice, slice]]:
    """Return the slices of the first axis for each group of tiles: its queries, and their keys."""
    axes = len(options.tile)
    others = math.prod(q.shape[2 : 1 + axes]) // math.prod(options.tile[1:])
    scores = q.shape[0] * q.shape[-2] * others * math.prod(options.tile) * math.prod(options.reach)
    size = options.tile[0] * max(1, SCORES_AT_ONCE // scores)
    stops = [min(start + size, q.shape[1]) for start in range(0, q.shape[1], size)]
    return [
        (slice(i * size, stop), slice(i * size, stop + options.offsets[0] - 1))
        for i, stop in enumerate(stops)
    ]


def _parts(tensors: tuple[Any, ...], queries: slice, keys: slice) -> list[Tensor | None]:
    """Return the tensors of one group: slices of queries, keys, values and masks, others whole."""
    q, k, v, *shared, valid, rows = tensors
    return [
        q[:, queries],
        k[:, keys],
        v[:, keys],
        *shared,
        None if valid is None else valid[:, keys],
        None if rows is None else rows[:, queries],
    ]


def _attend(options: _Options, *parts: Tensor | None) -> Tensor:
    """Return the attention of one group of tiles, whose scores are (b, t, h, c, w)."""
    q, k, v, content_bias, features, bias, factor, log_weight, valid, rows = parts
    assert q is not None
    assert k is not None
    assert v is not None
    axes, grid = len(options.tile), q.shape[1 : 1 + len(options.tile)]
    queries = _tiles(q, options.tile, options.tile).mT  # (b, t, h, c, d)
    keys = _tiles(k, options.reach, options.tile)  # (b, t, h, d, w)
    values = _tiles(v, options.reach, options.tile).mT  # (b, t, h, w, e)
    scores = (queries if content_bias is None else queries + content_bias[:, None]) @ keys
    tiled = None if rows is None else rows.unflatten(1, (-1, options.tile[0]))
    position = _row_logits(queries, features, bias, tiled)
    if position is not None:
        position = position.unflatten(-1, options.offsets).unflatten(-1 - axes, options.tile)
        position = _skew(position, axes)
    scores = _combined(scores, position, factor, options) * q.shape[-1] ** -0.5
    if valid is not None:
        there = _tiles(valid[..., None, None], options.reach, options.tile)  # (b, t, 1, 1, w)
        # finite, so that rows of padding stay finite
        scores = scores.masked_fill(~there, torch.finfo(scores.dtype).min / 2)
    out = (scores + log_weight).softmax(-1) @ values  # (b, t, h, c, e)
    counts = [places // size for places, size in zip(grid, options.tile, strict=True)]
    out = out.unflatten(3, options.tile).unflatten(1, counts)
    # (b, *t, h, *c, e) to (b, t1, c1, ..., h, e)
    places = [at for axis in range(axes) for at in (1 + axis, 2 + axes + axis)]
    out = out.permute(0, *places, 1 + axes, 2 + 2 * axes)
    return out.reshape(q.shape[0], *grid, q.shape[-2], v.shape[-1])


def _combined(
    content: Tensor, position: Tensor | None, factor: Tensor | None, how: OffsetTable | _Options
) -> Tensor:
    """Return the content and positional logits times a window's factor, before scaling."""
    if position is not None:
        if factor is not None and how.factor_on_position:
            position = position * factor
        content = content * position if how.multiplies else content + position
    return content if factor is None or how.factor_on_position else content * factor


def _row_logits(
    q: Tensor, features: Tensor | None, bias: Tensor | None, rows: Tensor | None
) -> Tensor | None:
    """Return positional logits (b, *, h, l, a) of q (b, *, h, l, d) by offset; None without any.

    `rows` (1 or b, *, l, a, n) are the indices of each offset's features and bias; None: all in
    order.
    """
    logits = None
    if features is not None:
        logits = torch.einsum("b...hld,ohd->b...hlo", q, features)
    if bias is not None:
        by_head = bias.T[:, None]
        logits = by_head.expand(*q.shape[:-1], -1) if logits is None else logits + by_head
    if logits is None or rows is None:
        return logits
    index = rows.flatten(-2).unsqueeze(-3).expand(*logits.shape[:-1], -1)
    return logits.gather(-1, index).unflatten(-1, rows.shape[-2:]).sum(-1)


def _tiles(x: Tensor, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Tensor:
    """Return windows (b, t, h, f, prod(sizes)) of x (b, *grid, h, f); for one axis, a view."""
    axes = len(sizes)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        x = x.unfold(1 + axis, size, step)
    return x.flatten(-axes).flatten(1, axes)


def _skew(x: Tensor, axes: int) -> Tensor:
    """Return values by offset (..., *c, *o) by key of the tile (..., c, w), zero elsewhere."""
    return _skewed(x, axes, 0.0).flatten(-2 * axes, -axes - 1).flatten(-axes)


def _skewed(x: Tensor, axes: int, fill: float) -> Tensor:
    """Move offset o of query c to key c + o on each axis, by reading rows as one longer."""
    for axis in range(axes):
        pair = (axis - 2 * axes, axis - axes)
        x = x.movedim(pair, (-2, -1))
        queries, offsets = x.shape[-2:]
        keys = queries + offsets - 1
        x = functional.pad(x, (0, queries), value=fill).flatten(-2)[..., : queries * keys]
        x = x.unflatten(-1, (queries, keys)).movedim((-2, -1), pair)
    return x


def _by_key(values: Tensor, tile: tuple[int, ...], offsets: tuple[int, ...], fill: float) -> Tensor:
    """Return values (o, h) of a table as (h, c, w) of a tile; `fill` for keys outside the box."""
    axes = len(tile)
    by_offset = values.T.unflatten(-1, offsets)
    spread = by_offset[(slice(None), *(None,) * axes)].expand(-1, *tile, *offsets)
    return _skewed(spread, axes, fill).flatten(-2 * axes, -axes - 1).flatten(-axes)


def _pad_grid(x: Tensor, beyond: tuple[int, ...], inner: int) -> Tensor:
    """Pad x (b, *grid, ...) with `beyond` zeros at the end of each axis of the grid."""
    if not any(beyond):
        return x
    pads = [0] * (2 * inner)
    for size in reversed(beyond):
        pads += [0, size]
    return functional.pad(x, pads)
