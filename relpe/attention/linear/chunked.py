"""Chunked causal linear attention as one autograd operation, with its gradient.

Within a chunk, scores are computed as in ordinary attention; all earlier positions are summarised
by sums of constant size. Several chunks can share a matrix product; only the sums are sequential.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpe.transforms import differentiate, first_derivatives, needs_all_derivatives, operation


class Tiling(NamedTuple):
    """How the work is divided; except for `dtype`, it affects results only by rounding."""

    chunk: int
    """Positions per chunk."""
    chunks: int
    """Chunks per batched product."""
    rows: int
    """Batch rows times heads per product; their data should fit the cache."""
    dtype: torch.dtype
    """Dtype of the factors of products; sums have that of the state."""


def tiling(device: torch.device, preferred: torch.dtype, sums: torch.dtype) -> Tiling:
    """Return the fastest tiling for a device, with factors of the dtype `preferred` or `sums`.

    On CPUs the data of 64 positions and eight heads fits the cache. `preferred` is used if it is
    bfloat16 and its products are fast. float16 is never used, since sums of a thousand keys would
    overflow.
    """
    if preferred == torch.bfloat16 and _has_fast_bfloat16(device.type):
        return Tiling(128, 16, 8 if device.type == "cpu" else 2**30, preferred)
    if device.type == "cpu":
        return Tiling(64, 1, 8, sums)
    return Tiling(64, 64, 2**30, sums)


@lru_cache(maxsize=8)
def _has_fast_bfloat16(device: str) -> bool:
    """Return whether the hardware has matrix products in bfloat16."""
    if device != "cpu":
        return True
    has_amx = bool(torch.cpu._is_amx_tile_supported())
    return has_amx and "AVX512" in torch.backends.cpu.get_cpu_capability()


class _WeightedChunks(NamedTuple):
    """Some chunks of some rows, and the causal weights of their keys and of the sums.

    Weights are exp(scale of the key - running maximum at the query), or 1 without scales. There are
    n rows times heads, s of them with different scales, and g chunks of c positions.
    """

    span: slice
    chunks: int
    within: Tensor  # (s, g, c, c): weight of key j for query i; 0 for j > i
    before: Tensor | None  # (n, g, c): weight of the sums for query i
    after: Tensor | None  # (n, g, c): weight of key j in the next sums
    decay: Tensor | None  # (n, g): weight of the old sums in the next sums

    def of(self, rows: slice) -> _WeightedChunks:
        """Return the part for a slice of rows, which contains all s scales if rows share them."""
        within, before, after, decay = self.within, self.before, self.after, self.decay
        if before is None or after is None or decay is None:
            return self
        if len(within) == len(before):
            within = within[rows]
        return _WeightedChunks(
            self.span, self.chunks, within, before[rows], after[rows], decay[rows]
        )

    def tile(self, x: Tensor) -> Tensor:
        """Tile (n, l, f) to (n * g, c, f)."""
        size = (self.span.stop - self.span.start) // self.chunks
        return x[:, self.span].reshape(x.shape[0] * self.chunks, size, x.shape[2])

    def untile(self, values: Tensor, into: Tensor) -> None:
        """Write values in tiles to the positions of these chunks in `into` (n, l) or (n, l, f)."""
        into[:, self.span] = values.view_as(into[:, self.span])

    def weigh(self, scores: Tensor) -> Tensor:
        """Return the scores (n * g, c, c) times the weights, in place."""
        size = scores.shape[-1]
        scores.view(-1, *self.within.shape[:2], size, size).mul_(self.within)
        return scores

    def scaled(self, x: Tensor, weights: Tensor | None) -> Tensor:
        """Multiply x (n * g, c, f) by weights (n, g, c)."""
        return x if weights is None else x * weights.reshape(*x.shape[:2], 1)


def _row_groups(rows: int, scale: Tensor | None, most: int) -> list[slice]:
    """Return slices of at most `most` rows; where rows share scales, multiples of their number."""
    alike = 1 if scale is None or len(scale) == rows else len(scale)
    size = alike * max(1, min(most, rows) // alike)
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def _parts(
    length: int, how: Tiling, scale: Tensor | None, start: Tensor
) -> tuple[list[_WeightedChunks], Tensor]:
    """Return all chunks in order, grouped as in `how`, and the running maximum after them.

    `scale` is (n, l), or (s, l) if rows share it; `start` is (n,). The maximum never depends on
    later keys. Rows that share scales also share the maximum, since any common factor would do.
    """
    mask = torch.ones(how.chunk, how.chunk, dtype=how.dtype, device=start.device).tril()
    whole = length // how.chunk
    sizes = [(min(how.chunks, whole - done), how.chunk) for done in range(0, whole, how.chunks)]
    rest = [(1, length % how.chunk)] if length % how.chunk else []
    parts, first = [], 0
    for count, chunk in sizes + rest:
        span = slice(first, first + count * chunk)
        first = span.stop
        triangle = mask[:chunk, :chunk]
        if scale is None:
            parts.append(_WeightedChunks(span, count, triangle[None, None], None, None, None))
            continue
        copies = len(start) // len(scale)
        greatest = start.view(copies, -1).amax(0)
        running = torch.maximum(scale[:, span].cummax(1).values, greatest[:, None])
        keys, tops = (x.unflatten(1, (count, chunk)) for x in (scale[:, span], running))
        ends = tops[..., -1]
        begins = torch.cat([start[:, None], ends[:, :-1].repeat(copies, 1)], 1)
        within = torch.exp((keys[..., None, :] - tops[..., None]).clamp(max=0))
        before = torch.exp(begins[..., None] - tops.repeat(copies, 1, 1))
        after = torch.exp(keys - ends[..., None]).repeat(copies, 1, 1)
        decay = torch.exp(begins - ends.repeat(copies, 1))
        start = ends[:, -1].repeat(copies)
        parts.append(
            _WeightedChunks(
                span,
                count,
                within.to(how.dtype) * triangle,
                before.to(how.dtype),
                after.to(how.dtype),
                decay.to(torch.promote_types(how.dtype, torch.float32)),
            )
        )
    return parts, torch.zeros_like(start) if scale is None else start


def _sums_met(
    part: _WeightedChunks, added: Tensor, sums: Tensor, like: Tensor, *, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the sums (n * g, ., .) before each chunk, in the dtype of `like`, and the final sums.

    Each chunk adds its `added` (n * g, ., .) to `sums` (n, ., .). `backwards` reverses the order,
    for the gradient.
    """
    if part.chunks == 1:
        if part.decay is not None:
            return sums.to(like), torch.addcmul(added, sums, part.decay[..., None])
        return sums.to(like), sums + added
    added = added.unflatten(0, (added.shape[0] // part.chunks, part.chunks))
    all_met = torch.empty_like(added, dtype=like.dtype)
    for index in range(part.chunks):
        chunk = part.chunks - 1 - index if backwards else index
        all_met[:, chunk] = sums
        if part.decay is None:
            sums = sums + added[:, chunk]
        else:
            sums = torch.addcmul(added[:, chunk], sums, part.decay[:, chunk, None, None])
    return all_met.flatten(0, 1), sums


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    scale: Tensor | None,
    start: Tensor,
    chunk: int,
    chunks: int,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    how = Tiling(chunk, chunks, rows, q.dtype)
    wide = kv.dtype
    numerator, denominator, new_kv, new_k_sum = (
        q.new_empty(shape, dtype=wide) for shape in (v.shape, q.shape[:2], kv.shape, k_sum.shape)
    )
    parts, last = _parts(q.shape[1], how, scale, start)
    for group in _row_groups(len(q), scale, rows):
        own_kv, own_k_sum = kv[group], k_sum[group][:, None]
        for part in (part.of(group) for part in parts):
            queries, keys, values = (part.tile(x[group]) for x in (q, k, v))
            scores = part.weigh(queries @ keys.mT)
            past, keys = part.scaled(queries, part.before), part.scaled(keys, part.after)
            met, own_kv = _sums_met(part, (keys.mT @ values).to(wide), own_kv, q)
            added = keys.sum(1, keepdim=True, dtype=wide)
            met_sum, own_k_sum = _sums_met(part, added, own_k_sum, q)
            part.untile(torch.baddbmm(past @ met, scores, values), numerator[group])
            weight = scores.sum(-1, dtype=wide) + (past @ met_sum.mT)[..., 0]
            part.untile(weight, denominator[group])
        new_kv[group], new_k_sum[group] = own_kv, own_k_sum[:, 0]
    return numerator, denominator, new_kv, new_k_sum, last


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    scale: Tensor | None,
    start: Tensor,
    chunk: int,
    chunks: int,
    rows: int,
    grad_num: Tensor,
    grad_den: Tensor,
    grad_kv: Tensor,
    grad_k_sum: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    how = Tiling(chunk, chunks, rows, q.dtype)
    wide = kv.dtype
    grad_num, grad_den = grad_num.to(q.dtype), grad_den.to(q.dtype)[..., None]
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    grad_kv, grad_k_sum = grad_kv.clone(), grad_k_sum.clone()
    all_parts, _ = _parts(q.shape[1], how, scale, start)
    for group in _row_groups(len(q), scale, rows):
        all_q, all_k, all_v, all_num, all_den = (x[group] for x in (q, k, v, grad_num, grad_den))
        sums, k_sums = kv[group], k_sum[group][:, None]
        parts = [part.of(group) for part in all_parts]
        for part in parts:  # recompute the sums from the first position
            queries, keys, values = part.tile(all_q), part.tile(all_k), part.tile(all_v)
            num, den = part.tile(all_num), part.tile(all_den)
            grad_scores = part.weigh((num @ values.mT).add_(den))
            scores = part.weigh(queries @ keys.mT)
            # gradients of keys and values from their own chunk; later chunks follow below
            part.untile(grad_scores.mT @ queries, grad_k[group])
            part.untile(scores.mT @ num, grad_v[group])
            seen = part.scaled(keys, part.after)
            met, sums = _sums_met(part, (seen.mT @ values).to(wide), sums, q)
            added = seen.sum(1, keepdim=True, dtype=wide)
            met_sum, k_sums = _sums_met(part, added, k_sums, q)
            past = part.scaled(torch.baddbmm(den * met_sum, num, met.mT), part.before)
            part.untile(torch.baddbmm(past, grad_scores, keys), grad_q[group])
        sums, k_sums = grad_kv[group], grad_k_sum[group][:, None]
        for part in reversed(parts):  # accumulate gradients of the sums from the last position
            keys, values = part.tile(all_k), part.tile(all_v)
            num, den = part.tile(all_num), part.tile(all_den)
            past = part.scaled(part.tile(all_q), part.before)
            met, sums = _sums_met(part, (past.mT @ num).to(wide), sums, q, backwards=True)
            added = (past.mT @ den).mT.to(wide)
            met_sum, k_sums = _sums_met(part, added, k_sums, q, backwards=True)
            later_k = part.scaled(torch.baddbmm(met_sum, values, met.mT), part.after)
            later_v = part.scaled(keys, part.after) @ met
            grad_k[group][:, part.span] += later_k.view_as(grad_k[group][:, part.span])
            grad_v[group][:, part.span] += later_v.view_as(grad_v[group][:, part.span])
        grad_kv[group], grad_k_sum[group] = sums, k_sums[:, 0]
    return grad_q, grad_k, grad_v, grad_kv, grad_k_sum


def _forward_shapes(q: Tensor, k: Tensor, v: Tensor, kv: Tensor, *rest: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    k_sum, scale, start = rest[:3]
    dtype = start.dtype if scale is None else torch.promote_types(start.dtype, scale.dtype)
    outs = kv.new_empty(v.shape), kv.new_empty(q.shape[:2])
    return *outs, torch.empty_like(kv), torch.empty_like(k_sum), start.to(dtype, copy=True)


def _backward_shapes(*inputs: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    return tuple(map(torch.empty_like, inputs[:5]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
    *tensors, ctx.chunk, ctx.chunks, ctx.rows = inputs
    ctx.save_for_backward(*tensors)


@first_derivatives
def _gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    how = ctx.chunk, ctx.chunks, ctx.rows
    saved = ctx.saved_tensors  # once, since activation checkpointing computes them anew
    input_grads = torch.ops.relpe.causal_sums_backward(*saved, *how, *grads[:4])
    _, k, _, kv, k_sum, scale, start = saved
    _, grad_k, _, grad_kv, grad_k_sum = input_grads
    of_scale = of_start = None
    if ctx.needs_input_grad[5]:  # a factor of a key multiplies all that the key does
        of_scale = (k * grad_k).sum(-1, dtype=kv.dtype).view(-1, *scale.shape).sum(0).to(scale)
    if ctx.needs_input_grad[6]:
        of_start = ((kv * grad_kv).sum((1, 2)) + (k_sum * grad_k_sum).sum(1)).to(start)
    return *input_grads, of_scale, of_start, None, None, None


_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor kv, Tensor k_sum, Tensor? scale, Tensor start, "
    "int chunk, int chunks, int rows"
)
_GRADS = "Tensor grad_num, Tensor grad_den, Tensor grad_kv, Tensor grad_k_sum"
_FIVE = "(Tensor, Tensor, Tensor, Tensor, Tensor)"
operation("causal_sums", f"({_INPUTS}) -> {_FIVE}", _forward, _forward_shapes)
operation("causal_sums_backward", f"({_INPUTS}, {_GRADS}) -> {_FIVE}", _backward, _backward_shapes)
differentiate("causal_sums", _gradient, _keep)


def causal_sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    scale: Tensor | None,
    start: Tensor,
    how: Tiling,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return numerator (n, l, e) and denominator (n, l) of causal linear attention, and new sums.

    n is rows times heads. Takes features q, k (n, l, f), values v (n, l, e), and the sums before:
    kv (n, f, e), k_sum (n, f) and the logarithm `start` (n,) of their factor. `scale` (n, l) are
    the logarithms of the keys' factors; it may be (s, l), and then row i uses entry i modulo s.
    Also returns the new kv, k_sum and logarithm. The returned logarithm is a constant for the
    gradient: it is the same factor that was taken out of the sums.
    """
    q, k, v = (x.to(how.dtype) for x in (q, k, v))
    tiles = how.chunk, how.chunks, how.rows
    sums = _forward if needs_all_derivatives() else torch.ops.relpe.causal_sums
    return sums(q, k, v, kv, k_sum, scale, start, *tiles)
