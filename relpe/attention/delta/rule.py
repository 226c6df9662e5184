"""The gated delta rule in chunks (Yang, Kautz & Hatamizadeh, 2025), as one autograd operation.

The state S (d, e) maps keys to values. A position with key k of unit norm, value v, decay a in
(0, 1] and write strength w in [0, 1] (or [0, 2]) replaces a share of what S returns for k:

    S <- a S;  S <- S + w k (v - S^T k)^T;  the output is S^T q

In a chunk, let g_i be the product of the decays up to position i, and G the matrix g_i / g_j for
j <= i. With K, Q and V of the chunk, all corrections U = w (v - S^T k) follow from one triangular
system, so that the loop is over chunks instead of positions:

    (1 + L) U = w V - w g K S,  L = w K K^T G below the diagonal
    outputs = g Q S + (Q K^T G) U,  S <- g_c S + (g_c / g K)^T U

Gradients of U need the transposed system; the other gradients are products of these matrices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 32
"""Positions per chunk."""
TOGETHER = 4
"""Chunks whose work outside the loop is done together; on CPUs their data should fit the cache."""
TOGETHER_ON_GPU = 64
"""The same on other devices, whose kernels should be large."""


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

    Keys have unit norm, strengths are 0 to 1 (or 2), and logarithms of decays at most 0. Cost and
    memory are linear in l.
    """
    return _GatedDeltaRule.apply(
        q, k, v, strength, log_decay, state, max(1, min(chunk, q.shape[1]))
    )


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


class _GatedDeltaRule(torch.autograd.Function):
    """The rule for several chunks at a time."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        q: Tensor,
        k: Tensor,
        v: Tensor,
        strength: Tensor,
        log_decay: Tensor,
        state: Tensor,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        inputs = q, k, v, strength, log_decay
        out, kept = state.new_empty(v.shape), list[Tensor]()
        now = state.flatten(0, 1)
        for span in _spans(q, chunk):
            part = _Part.of(inputs, span, chunk, state.dtype)
            solution = _solve(part, now)
            part.put(part.outputs(solution), out[:, span])
            now = solution.states[-1]
            kept += solution
        ctx.save_for_backward(*inputs, *kept)
        ctx.chunk, ctx.shape = chunk, state.shape
        return out, now.unflatten(0, state.shape[:2])

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
        grad_state: Tensor,
    ) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once, since activation checkpointing computes them anew
        inputs, kept = saved[:5], saved[5:]
        grads = [torch.empty_like(x) for x in inputs]
        after = grad_state.flatten(0, 1)
        spans = _spans(grad, ctx.chunk)
        for index, span in reversed([*enumerate(spans)]):
            part = _Part.of(inputs, span, ctx.chunk, grad_state.dtype)
            solution = _Solution(*kept[3 * index : 3 * index + 3])
            *of_inputs, after = _gradients(part, solution, part.take(grad[:, span]), after)
            for one, into in zip(of_inputs, grads, strict=True):
                part.put(one, into[:, span])
        return *grads, after.view(ctx.shape), None


class _Part(NamedTuple):
    """Inputs of g chunks of c positions, in n rows times heads, and products of their decays."""

    q: Tensor  # (g, n, c, d)
    k: Tensor
    v: Tensor  # (g, n, c, e)
    strength: Tensor  # (g, n, c, 1)
    decay: Tensor  # (g, n, c, 1): g_i
    to_end: Tensor  # (g, n, c, 1): g_c / g_i
    since: Tensor  # (g, n, c, c): G; 0 above the diagonal

    @staticmethod
    def of(inputs: tuple[Tensor, ...], span: slice, chunk: int, dtype: torch.dtype) -> _Part:
        """A part of q, k, v (b, l, h, f) and of strengths and log decays (b, l, h)."""
        q, k, v, strength, log_decay = (_tiled(x[:, span], chunk, dtype) for x in inputs)
        total = log_decay.cumsum(-2)
        # above the diagonal, the exponential could overflow
        since = (total - total.mT).clamp(max=0).exp().tril()
        return _Part(q, k, v, strength, total.exp(), (total[..., -1:, :] - total).exp(), since)

    @property
    def fade(self) -> Tensor:
        """g_c, (g, n, 1, 1)."""
        return self.decay[..., -1:, :]

    @property
    def overlap(self) -> Tensor:
        """K K^T G, (g, n, c, c)."""
        return self.k @ self.k.mT * self.since

    @property
    def scores(self) -> Tensor:
        """Q K^T G, (g, n, c, c)."""
        return self.q @ self.k.mT * self.since

    def outputs(self, solution: _Solution) -> Tensor:
        """(g, n, c, e)."""
        return self.decay * (self.q @ solution.states[:-1]) + self.scores @ solution.corrections

    def put(self, x: Tensor, into: Tensor) -> None:
        """Writes x (g, n, c, f) to `into` (b, l, h, f), or (b, l, h) if f is 1."""
        b, length, h = into.shape[:3]
        size = x.shape[2]
        into = into.view(b, length, h, -1)
        tiles = x.unflatten(1, (b, h)).permute(1, 0, 3, 2, 4)
        if length % size:
            into.copy_(tiles.flatten(1, 2)[:, :length])
        else:
            into.unflatten(1, (-1, size)).copy_(tiles)

    def take(self, x: Tensor) -> Tensor:
        """(b, l, h, f) to (g, n, c, f)."""
        return _tiled(x, self.q.shape[2], self.q.dtype)


class _Solution(NamedTuple):
    """What the backward pass needs besides the inputs."""

    corrections: Tensor  # (g, n, c, e): U
    inverse: Tensor  # (g, n, c, c): of 1 + L
    states: Tensor  # (g + 1, n, d, e): before each chunk, and after the last


def _solve(part: _Part, state: Tensor) -> _Solution:
    """The corrections of a part that begins with `state` (n, d, e)."""
    chunks, rows, size, d = part.k.shape
    e = part.v.shape[-1]
    eye = torch.eye(size, dtype=state.dtype, device=state.device)
    # the diagonal of the matrix is taken as 1
    inverse = torch.linalg.solve_triangular(
        part.strength * part.overlap, eye.expand_as(part.since), upper=False, unitriangular=True
    )
    values = part.strength * part.v
    reads = (part.strength * part.decay) * part.k
    keys = (part.to_end * part.k).mT
    corrections = state.new_empty(chunks, rows, size, e)
    states = state.new_empty(chunks + 1, rows, d, e)
    states[0] = state
    for i in range(chunks):
        torch.bmm(inverse[i], torch.baddbmm(values[i], reads[i], states[i], alpha=-1),
                  out=corrections[i])  # fmt: skip
        torch.mul(part.fade[i], states[i], out=states[i + 1])
        states[i + 1].baddbmm_(keys[i], corrections[i])
    return _Solution(corrections, inverse, states)


def _gradients(
    part: _Part, solution: _Solution, grad: Tensor, after: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the inputs, (g, n, c, f), and of the state before the part.

    `grad` (g, n, c, e) is that of the outputs, and `after` (n, d, e) that of the last state.
    """
    q, k, v, strength, decay, to_end, since = part
    corrections, inverse, states = solution
    before = states[:-1]
    overlap, scores = part.overlap, part.scores
    # the loop: of the right side of the system, and of the state after each chunk
    keys, reads = to_end * k, (-strength * decay * k).mT
    of_right, of_states = scores.mT @ grad, torch.empty_like(states)
    torch.matmul((decay * q).mT, grad, out=of_states[:-1])
    of_states[-1] = after
    for i in range(len(q) - 1, -1, -1):
        wanted = torch.baddbmm(of_right[i], keys[i], of_states[i + 1])
        torch.bmm(inverse[i].mT, wanted, out=of_right[i])
        of_states[i].addcmul_(part.fade[i], of_states[i + 1]).baddbmm_(reads[i], of_right[i])
    # the same for all chunks
    of_scores, of_lower = grad @ corrections.mT, of_right @ corrections.mT  # of L: negative
    of_query, of_read = grad @ before.mT, of_right @ before.mT  # of g Q; of w g K: negative
    of_key = corrections @ of_states[1:].mT  # of g_c / g K
    by_overlap = (of_lower * overlap).tril_(-1)
    of_products = (strength * of_lower * since).tril_(-1)
    of_scored = of_scores * since
    of_q = torch.addcmul(of_scored @ k, decay, of_query)
    of_k = torch.addcmul(of_scored.mT @ q, strength * decay, of_read, value=-1)
    of_k = of_k.addcmul_(to_end, of_key).sub_((of_products + of_products.mT) @ k)
    read_sum = decay * (of_read * k).sum(-1, keepdim=True)
    of_strength = (of_right * v).sum(-1, keepdim=True) - read_sum
    of_strength -= by_overlap.sum(-1, keepdim=True)
    # of log g_i: rows and columns of G, then g_i, g_c / g_i and g_c alone
    of_since = of_scores * scores - strength * by_overlap
    end_sum = to_end * (of_key * k).sum(-1, keepdim=True)
    of_total = of_since.sum(-1, keepdim=True) - of_since.sum(-2).unsqueeze(-1)
    of_total += decay * (of_query * q).sum(-1, keepdim=True) - strength * read_sum - end_sum
    of_fade = part.fade * (before * of_states[1:]).sum((-2, -1), keepdim=True)
    of_total[..., -1:, :] += end_sum.sum(-2, keepdim=True) + of_fade
    of_decay = of_total.flip(-2).cumsum(-2).flip(-2)
    return of_q, of_k, strength * of_right, of_strength, of_decay, of_states[0]


def _spans(x: Tensor, chunk: int) -> list[slice]:
    """Slices of the positions of x (b, l, ...) whose work is done together."""
    length, step = x.shape[1], chunk * (TOGETHER if x.device.type == "cpu" else TOGETHER_ON_GPU)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _tiled(x: Tensor, chunk: int, dtype: torch.dtype) -> Tensor:
    """(g, n, c, f) of x (b, l, h, f) or (b, l, h), with zeros at the end, which change nothing."""
    x = x[..., None] if x.ndim == 3 else x
    if x.shape[1] % chunk:
        x = torch.nn.functional.pad(x, [0, 0, 0, 0, 0, -x.shape[1] % chunk])
    tiles = x.unflatten(1, (-1, chunk)).permute(1, 0, 3, 2, 4)
    return tiles.to(dtype, memory_format=torch.contiguous_format).flatten(1, 2)
