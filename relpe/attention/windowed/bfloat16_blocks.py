"""Attention within a span in bfloat16 on CPUs, in blocks that fit into the processor's cache.

PyTorch's kernel for CPUs gains little from bfloat16, since it multiplies small tiles. Here the
scores of a block of queries are one matrix product per head. Rounding them to bfloat16 would lose
too much; therefore what is subtracted from the scores is multiplied by a further column of ones, so
that the subtraction happens in the product, which accumulates in float32. What is rounded is then
close to zero where weights are large. In the backward pass, the logarithm of the sum of weights is
subtracted; in the forward pass, the maximum of a sample of the scores, since finding that of all
scores would take another product. It need not be exact, as bfloat16 has the range of float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.transforms import first_derivatives, outside_graphs

FURTHER = 8
"""Further columns: the subtracted values, and in the forward pass eight partial sums of weights.
Fewer would be slower, since rows would not be aligned."""
BLOCK = 256
"""Queries per block, whose scores for one head fit into the cache."""
SAMPLED = 16
"""One key of this number is in the sample."""
ALIGNED = 64
"""The number of keys of a block is a multiple of this where possible, which is faster."""


@outside_graphs
def bfloat16_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None,
    span: int,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Compute `banded_attention` with matrix products in `dtype`, that of the result.

    Sums are float32 or wider.
    """
    rows, heads, history = q.shape[0], q.shape[2], k.shape[1] - q.shape[1]
    missing = [0] * rows if seen is None else (history - seen).tolist()
    scaled = q * q.shape[-1] ** -0.5  # before it is rounded
    by_head = [x.transpose(1, 2).flatten(0, 1).to(dtype).contiguous() for x in (scaled, k, v)]
    shape = _Shape([number for number in missing for _ in range(heads)], span)
    out: Tensor = _Blocks.apply(shape, *by_head)  # pyright: ignore[reportAssignmentType]
    return out.unflatten(0, (rows, heads)).transpose(1, 2)


class _Shape(NamedTuple):
    missing: list[int]
    """Number of keys at the beginning that do not exist, for each head."""
    span: int


class _Block(NamedTuple):
    queries: slice
    keys: slice
    edges: list[tuple[slice, Tensor]]
    """The keys that some of the queries do not attend to, and what is added to their scores."""
    sample: slice
    """Some of `keys`."""
    sample_mask: Tensor

    def hide(self, scores: Tensor) -> Tensor:
        """Add -inf, in place, to the scores of keys that a query does not attend to."""
        for side, mask in self.edges:
            scores[:, side].add_(mask)
        return scores


class _Blocks(torch.autograd.Function):
    """Scores are computed again in the backward pass; only a number per query is stored."""

    @staticmethod
    def forward(ctx: Any, shape: _Shape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: ANN401
        sums, level = _weighted_sums(shape, q, k, v, SAMPLED)
        # the sample may be too far below the maximum
        overflows = ~sums[..., -FURTHER:].sum(-1).isfinite()
        if bool(overflows.any()):
            exact_sums, exact_level = _weighted_sums(shape, q, k, v, 1)
            sums = torch.where(overflows[..., None], exact_sums, sums)
            level = torch.where(overflows, exact_level, level)
        weight = sums[..., -FURTHER:].sum(-1, dtype=torch.promote_types(torch.float32, q.dtype))
        out = (sums[..., :-FURTHER] / weight[..., None]).to(v.dtype)
        ctx.shape = shape
        ctx.save_for_backward(q, k, v, out, weight.log() + level)
        return out

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_weight = ctx.saved_tensors
        grad = grad.contiguous()
        queries, keys = _with_offset(q, -log_weight), _with_ones(k)
        mean = (grad.to(log_weight.dtype) * out).sum(-1)
        grads, values = _with_offset(grad, -mean), _with_ones(v)
        grad_q = torch.empty_like(q)
        # sums over blocks
        grad_k, grad_v = (torch.zeros_like(x, dtype=log_weight.dtype) for x in (k, v))
        work = _Workspace(ctx.shape, q, k, SAMPLED)
        tensors = (q, k, grad, queries, keys, grads, values, grad_q, grad_k, grad_v)
        for missing, *parts in zip(ctx.shape.missing, *tensors, strict=True):
            one_q, one_k, one_grad, some_queries, some_keys, some_grads, some_values = parts[:7]
            for block in work.blocks(missing):
                rows, columns = block.queries, block.keys
                scores, others = work.matrix(block), work.matrix(block, 1)
                torch.mm(some_queries[rows], some_keys[columns].T, out=scores)
                weights = block.hide(scores).exp_()
                parts[9][columns].add_(weights.T @ one_grad[rows])
                # gradients of the scores
                weights.mul_(torch.mm(some_grads[rows], some_values[columns].T, out=others))
                torch.mm(weights, one_k[columns], out=parts[7][rows])
                parts[8][columns].add_(weights.T @ one_q[rows])
        return None, grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


def _weighted_sums(
    shape: _Shape, q: Tensor, k: Tensor, v: Tensor, stride: int
) -> tuple[Tensor, Tensor]:
    """Return sums (n, l, e + 8) of values times weights, and the level (n, l) of the scores.

    The last columns are sums of weights. The level is the maximum of every `stride`-th score, and
    is subtracted from the scores.
    """
    features = q.shape[-1]
    queries, keys = functional.pad(q, (0, FURTHER)), _with_ones(k)
    # column i has the weights of keys i, i + 8, …: their rounding errors average out
    cycle = torch.eye(FURTHER, dtype=v.dtype).repeat(-(-v.shape[1] // FURTHER), 1)
    values = torch.cat([v, cycle[: v.shape[1]].expand(len(v), -1, -1)], -1)
    sums = q.new_empty(*q.shape[:2], values.shape[-1])
    # every query attends to its own key
    wide = torch.promote_types(torch.float32, q.dtype)
    levels = (q.to(wide) * k[:, k.shape[1] - q.shape[1] :]).sum(-1).to(q.dtype)
    work = _Workspace(shape, q, k, stride)
    for missing, *parts in zip(shape.missing, queries, keys, values, sums, levels, strict=True):
        some_queries, some_keys, some_values, some_sums, some_levels = parts
        for block in work.blocks(missing):
            rows, others = some_queries[block.queries], some_keys[block.keys]
            level = some_levels[block.queries]
            sample = (rows @ others[block.sample].T).add_(block.sample_mask)
            torch.maximum(sample.amax(-1), level, out=level)
            torch.neg(level, out=rows[:, features])
            weights = block.hide(torch.mm(rows, others.T, out=work.matrix(block))).exp_()
            torch.mm(weights, some_values[block.keys], out=some_sums[block.queries])
    return sums, levels


class _Workspace:
    """The blocks of all heads, and memory for their scores, since new memory would take time."""

    def __init__(self, shape: _Shape, q: Tensor, k: Tensor, stride: int) -> None:
        self._queries, self._keys, self._span = q.shape[1], k.shape[1], shape.span
        most = min(BLOCK + shape.span + ALIGNED, self._keys)
        self._memory = q.new_empty(2, min(BLOCK, self._queries) * most)
        self._sample = slice(None, None, stride)
        self._edges: dict[tuple[int, int, int], list[tuple[slice, Tensor]]] = {}
        self._sample_masks: dict[tuple[int, int, int], Tensor] = {}
        self._blocks = {missing: list(self._cut(missing)) for missing in set(shape.missing)}

    def blocks(self, missing: int) -> list[_Block]:
        """Return the blocks of a head without its first `missing` keys."""
        return self._blocks[missing]

    def matrix(self, block: _Block, number: int = 0) -> Tensor:
        """Return a matrix with a row for each query and a column for each key."""
        rows = block.queries.stop - block.queries.start
        columns = block.keys.stop - block.keys.start
        return self._memory[number, : rows * columns].view(rows, columns)

    def _cut(self, missing: int) -> Iterator[_Block]:
        history = self._keys - self._queries
        for start in range(0, self._queries, BLOCK):
            stop = min(start + BLOCK, self._queries)
            last, place = stop + history, start + history
            first = max(missing, place - self._span + 1)
            first = max(missing, last - -(-(last - first) // ALIGNED) * ALIGNED)
            size = (stop - start, last - first, place - first)
            if size not in self._edges:  # most blocks have the same
                self._edges[size] = list(self._edges_of(*size))
                self._sample_masks[size] = self._mask(*size, self._sample)
            parts = self._edges[size], self._sample, self._sample_masks[size]
            yield _Block(slice(start, stop), slice(first, last), *parts)

    def _edges_of(self, queries: int, keys: int, place: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield masks of a block, in which `place` is the index of the first query's own key."""
        expired, later = max(0, place + queries - self._span), place + 1
        sides = [slice(0, expired), slice(later, keys)] if expired < later else [slice(0, keys)]
        for side in sides:
            if side.start < side.stop:
                yield side, self._mask(queries, keys, place, side)

    def _mask(self, queries: int, keys: int, place: int, side: slice) -> Tensor:
        """Return what is added to the scores of some keys of a block: 0, or -inf if hidden."""
        age = torch.arange(place, place + queries)[:, None] - torch.arange(keys)[side]
        hidden = (age < 0) | (age >= self._span)
        return self._memory.new_zeros(hidden.shape).masked_fill_(hidden, -math.inf)


def _with_ones(x: Tensor) -> Tensor:
    """Add columns to x (n, l, f): two of ones, then zeros."""
    x = functional.pad(x, (0, FURTHER))
    x[..., -FURTHER : 2 - FURTHER] = 1
    return x


def _with_offset(x: Tensor, offset: Tensor) -> Tensor:
    """Add columns to x (n, l, f): `offset` (n, l), rounded and what is left, then zeros."""
    rounded = offset.to(x.dtype)
    x = functional.pad(x, (0, FURTHER))
    x[..., -FURTHER] = rounded
    x[..., 1 - FURTHER] = offset - rounded
    return x
