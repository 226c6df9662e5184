"""Attention within a span in bfloat16 on CPUs, in blocks that fit into the processor's cache.

PyTorch's kernel for CPUs gains little from bfloat16, since it multiplies small tiles. Here the
scores of a block of queries are one matrix product per head. Rounding them to bfloat16 would lose
too much; therefore what is subtracted from the scores (a row's maximum, or in the backward pass the
logarithm of its sum) is multiplied by a further column of ones, so that the subtraction happens
in the product, which accumulates in float32. What is rounded is then close to zero wherever the
weight is large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.torch_compile import outside_graphs

FURTHER = 8
"""Further columns: the subtracted values, and in the forward pass eight partial sums of weights.
Fewer would be slower, since rows would not be aligned."""
BLOCK = 256
"""Queries per block, whose scores for one head fit into the cache."""
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
    """Attention as of `banded_attention`, with matrix products in `dtype`, that of the result.

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
    place: int
    """Index within `keys` of the key of the first query."""

    @property
    def size(self) -> tuple[int, int]:
        """Number of queries, and of keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start


class _Blocks(torch.autograd.Function):
    """Scores are computed again in the backward pass; only a number per query is stored."""

    @staticmethod
    def forward(ctx: Any, shape: _Shape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: ANN401
        length, features = q.shape[1:]
        queries, keys = functional.pad(q, (0, FURTHER)), _with_ones(k)
        # column i has the weights of keys i, i + 8, …: their rounding errors average out
        cycle = torch.eye(FURTHER, dtype=v.dtype).repeat(-(-v.shape[1] // FURTHER), 1)
        values = torch.cat([v, cycle[: v.shape[1]].expand(len(v), -1, -1)], -1)
        sums = q.new_empty(*q.shape[:2], values.shape[-1])
        highest = q.new_empty(q.shape[:2])
        work = _Workspace(shape, q, k)
        for head, missing in enumerate(shape.missing):
            for block in _blocks_of(length, k.shape[1], shape, missing):
                scores, edges = work.matrix(block), work.edges(block)
                some, others = queries[head, block.queries], keys[head, block.keys].T
                _hide(torch.mm(some, others, out=scores), edges)
                top = torch.amax(scores, -1, out=highest[head, block.queries])
                some[:, features] = -top
                weights = _hide(torch.mm(some, others, out=scores), edges).exp_()
                torch.mm(weights, values[head, block.keys], out=sums[head, block.queries])
        wide = torch.promote_types(torch.float32, q.dtype)
        weight = sums[..., -FURTHER:].sum(-1, dtype=wide)
        out = (sums[..., :-FURTHER] / weight[..., None]).to(v.dtype)
        ctx.shape = shape
        ctx.save_for_backward(q, k, v, out, highest + weight.log())
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
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
        work = _Workspace(ctx.shape, q, k)
        for head, missing in enumerate(ctx.shape.missing):
            for block in _blocks_of(q.shape[1], k.shape[1], ctx.shape, missing):
                some, others = (head, block.queries), (head, block.keys)
                scores = torch.mm(queries[some], keys[others].T, out=work.matrix(block))
                weights = _hide(scores, work.edges(block)).exp_()
                grad_v[others] += weights.T @ grad[some]
                # of the scores
                weights *= torch.mm(grads[some], values[others].T, out=work.matrix(block, 1))
                torch.mm(weights, k[others], out=grad_q[some])
                grad_k[others] += weights.T @ q[some]
        return None, grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


def _blocks_of(length: int, keys: int, shape: _Shape, missing: int) -> Iterator[_Block]:
    """Blocks of `length` queries, whose keys are the last of all keys."""
    history = keys - length
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        last, place = stop + history, start + history
        first = max(missing, place - shape.span + 1)
        first = max(missing, last - -(-(last - first) // ALIGNED) * ALIGNED)
        yield _Block(slice(start, stop), slice(first, last), place - first)


class _Workspace:
    """Memory for two blocks of scores, since new memory for each would take longer to get."""

    def __init__(self, shape: _Shape, q: Tensor, k: Tensor) -> None:
        keys = min(BLOCK + shape.span + ALIGNED, k.shape[1])
        self._memory = q.new_empty(2, min(BLOCK, q.shape[1]) * keys)
        self._span = shape.span
        self._edges: dict[tuple[int, int, int], list[tuple[slice, Tensor]]] = {}

    def matrix(self, block: _Block, number: int = 0) -> Tensor:
        """A matrix with a row for each query and a column for each key."""
        queries, keys = block.size
        return self._memory[number, : queries * keys].view(queries, keys)

    def edges(self, block: _Block) -> list[tuple[slice, Tensor]]:
        """The keys that some queries do not attend to, and what is added to their scores."""
        size = (*block.size, block.place)
        if size not in self._edges:  # most blocks have the same
            self._edges[size] = list(self._edges_of(*size))
        return self._edges[size]

    def _edges_of(self, queries: int, keys: int, place: int) -> Iterator[tuple[slice, Tensor]]:
        expired, later = max(0, place + queries - self._span), place + 1
        sides = [slice(0, expired), slice(later, keys)] if expired < later else [slice(0, keys)]
        query = torch.arange(place, place + queries)[:, None]
        for side in sides:
            if side.start < side.stop:
                age = query - torch.arange(side.start, side.stop)
                hidden = (age < 0) | (age >= self._span)
                yield side, self._memory.new_zeros(hidden.shape).masked_fill_(hidden, -math.inf)


def _hide(scores: Tensor, edges: list[tuple[slice, Tensor]]) -> Tensor:
    for side, mask in edges:
        scores[:, side] += mask
    return scores


def _with_ones(x: Tensor) -> Tensor:
    """Adds columns to x (n, l, f): two of ones, then zeros."""
    x = functional.pad(x, (0, FURTHER))
    x[..., -FURTHER : 2 - FURTHER] = 1
    return x


def _with_offset(x: Tensor, offset: Tensor) -> Tensor:
    """Adds columns to x (n, l, f): `offset` (n, l), rounded and what is left, then zeros."""
    rounded = offset.to(x.dtype)
    x = functional.pad(x, (0, FURTHER))
    x[..., -FURTHER] = rounded
    x[..., 1 - FURTHER] = offset - rounded
    return x
