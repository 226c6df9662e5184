"""The gated delta rule in chunks (Yang, Kautz & Hatamizadeh, 2025), as one operation.

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

from relpe.checks import check_attention, check_causal, check_state, check_type
from relpe.transforms import differentiate, first_derivatives, needs_all_derivatives, operation

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
    """Return outputs (b, l, h, e) and the state after the last position, in the state's dtype.

    Keys have unit norm, strengths are 0 to 1 (or 2), and logarithms of decays at most 0. Cost and
    memory are linear in l.
    """
    check_type("state", state, Tensor)
    check_attention(q, k, v, strength, log_decay)
    check_causal(q, k)
    check_state(state.shape, (q.shape[0], *q.shape[2:], v.shape[-1]))
    if needs_all_derivatives():
        outs = []
        steps = zip(*(x.unbind(1) for x in (q, k, v, strength, log_decay)), strict=True)
        for query, key, value, share, decay in steps:
            out, state = delta_step(query, key, value, share, decay, state)
            outs.append(out)
        return torch.stack(outs, 1), state
    out, end, *_ = torch.ops.relpe.gated_delta_rule(
        q, k, v, strength, log_decay, state, max(1, min(chunk, q.shape[1]))
    )
    return out, end


def delta_step(
    q: Float[Tensor, "b h d"],
    k: Float[Tensor, "b h d"],
    v: Float[Tensor, "b h e"],
    strength: Float[Tensor, "b h"],
    log_decay: Float[Tensor, "b h"],
    state: Float[Tensor, "b h d e"],
) -> tuple[Float[Tensor, "b h e"], Float[Tensor, "b h d e"]]:
    """Apply the rule at one position, in the dtype of the state."""
    q, k, v, strength, log_decay = (x.to(state.dtype) for x in (q, k, v, strength, log_decay))
    state = log_decay.exp()[..., None, None] * state
    correction = v - (k[..., None, :] @ state)[..., 0, :]
    state = state + (strength[..., None] * k)[..., None] * correction[..., None, :]
    return (q[..., None, :] @ state)[..., 0, :], state


class _ChunkInputs(NamedTuple):
    """Inputs of g chunks of c positions, in n rows times heads, and products of their decays."""

    q: Tensor  # (g, n, c, d)
    k: Tensor
    v: Tensor  # (g, n, c, e)
    strength: Tensor  # (g, n, c, 1)
    decay: Tensor  # (g, n, c, 1): g_i
    to_end: Tensor  # (g, n, c, 1): g_c / g_i
    since: Tensor  # (g, n, c, c): G; 0 above the diagonal

    @staticmethod
    def of(inputs: tuple[Tensor, ...], span: slice, chunk: int, dtype: torch.dtype) -> _ChunkInputs:
        """Return a part of q, k, v (b, l, h, f) and of strengths and log decays (b, l, h)."""
        q, k, v, strength, log_decay = (_tiled(x[:, span], chunk, dtype) for x in inputs)
        total = log_decay.cumsum(-2)
        # above the diagonal, the exponential could overflow
        since = (total - total.mT).clamp(max=0).exp().tril()
        return _ChunkInputs(
            q, k, v, strength, total.exp(), (total[..., -1:, :] - total).exp(), since
        )

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
        """Return the outputs (g, n, c, e)."""
        return self.decay * (self.q @ solution.states[:-1]) + self.scores @ solution.corrections

    def put(self, x: Tensor, into: Tensor) -> None:
        """Write x (g, n, c, f) to `into` (b, l, h, f), or (b, l, h) if f is 1."""
        b, length, h = into.shape[:3]
        size = x.shape[2]
        into = into if into.ndim == 4 else into[..., None]
        tiles = x.unflatten(1, (b, h)).permute(1, 0, 3, 2, 4)
        if length % size:
            into.copy_(tiles.flatten(1, 2)[:, :length])
        else:
            into.unflatten(1, (-1, size)).copy_(tiles)

    def take(self, x: Tensor) -> Tensor:
        """Convert (b, l, h, f) to (g, n, c, f)."""
        return _tiled(x, self.q.shape[2], self.q.dtype)


class _Solution(NamedTuple):
    """What the backward pass needs besides the inputs."""

    corrections: Tensor  # (g, n, c, e): U
    inverse: Tensor  # (g, n, c, c): of 1 + L
    states: Tensor  # (g + 1, n, d, e): before each chunk, and after the last

    @staticmethod
    def empty(v: Tensor, chunk: int, state: Tensor) -> _Solution:
        """Return room for all chunks of values like v (b, l, h, e), for a state (b, h, d, e)."""
        g, n = -(-v.shape[1] // chunk), state.shape[0] * state.shape[1]
        d, e = state.shape[2:]
        return _Solution(
            state.new_empty(g, n, chunk, e),
            state.new_empty(g, n, chunk, chunk).mT,  # the order of memory in which solvers write
            state.new_empty(g + 1, n, d, e),
        )

    def of(self, span: slice, chunk: int) -> _Solution:
        """Return the solution of the chunks in `span`, positions that begin with a chunk."""
        first, end = span.start // chunk, -(-span.stop // chunk)
        return _Solution(
            self.corrections[first:end], self.inverse[first:end], self.states[first : end + 1]
        )


def _solve(part: _ChunkInputs, solution: _Solution) -> None:
    """Compute the solution of a part, whose first state is given."""
    corrections, inverse, states = solution
    eye = torch.eye(part.k.shape[2], dtype=states.dtype, device=states.device)
    # the diagonal of the matrix is taken as 1
    inverse.copy_(
        torch.linalg.solve_triangular(
            part.strength * part.overlap, eye.expand_as(part.since), upper=False, unitriangular=True
        )
    )
    values = part.strength * part.v
    reads = (part.strength * part.decay) * part.k
    keys = (part.to_end * part.k).mT
    for i in range(len(keys)):
        torch.bmm(inverse[i], torch.baddbmm(values[i], reads[i], states[i], alpha=-1),
                  out=corrections[i])  # fmt: skip
        torch.mul(part.fade[i], states[i], out=states[i + 1])
        states[i + 1].baddbmm_(keys[i], corrections[i])


def _gradients(
    part: _ChunkInputs, solution: _Solution, grad: Tensor, after: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the inputs, (g, n, c, f), and of the state before the part.

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
        of_correction = torch.baddbmm(of_right[i], keys[i], of_states[i + 1])
        torch.bmm(inverse[i].mT, of_correction, out=of_right[i])
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
    """Return the slices of the positions of x (b, l, ...) whose work is done together."""
    length, step = x.shape[1], chunk * (TOGETHER if x.device.type == "cpu" else TOGETHER_ON_GPU)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _tiled(x: Tensor, chunk: int, dtype: torch.dtype) -> Tensor:
    """Tile x (b, l, h, f) or (b, l, h) to (g, n, c, f); zeros at the end change nothing."""
    x = x[..., None] if x.ndim == 3 else x
    if x.shape[1] % chunk:
        x = torch.nn.functional.pad(x, [0, 0, 0, 0, 0, -x.shape[1] % chunk])
    tiles = x.unflatten(1, (-1, chunk)).permute(1, 0, 3, 2, 4)
    return tiles.to(dtype, memory_format=torch.contiguous_format).flatten(1, 2)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    strength: Tensor,
    log_decay: Tensor,
    state: Tensor,
    chunk: int,
) -> tuple[Tensor, ...]:
    out, whole = state.new_empty(v.shape), _Solution.empty(v, chunk, state)
    whole.states[0] = state.flatten(0, 1)
    for span in _spans(q, chunk):
        part = _ChunkInputs.of((q, k, v, strength, log_decay), span, chunk, state.dtype)
        solution = whole.of(span, chunk)
        _solve(part, solution)
        part.put(part.outputs(solution), out[:, span])
    # a copy, since the state may be kept much longer than those of all chunks
    return out, whole.states[-1].view(state.shape).clone(), *whole


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    strength: Tensor,
    log_decay: Tensor,
    corrections: Tensor,
    inverse: Tensor,
    states: Tensor,
    chunk: int,
    grad: Tensor,
    grad_state: Tensor,
) -> tuple[Tensor, ...]:
    inputs = q, k, v, strength, log_decay
    grads = [torch.empty_like(x) for x in inputs]
    whole, after = _Solution(corrections, inverse, states), grad_state.flatten(0, 1)
    for span in reversed(_spans(q, chunk)):
        part = _ChunkInputs.of(inputs, span, chunk, states.dtype)
        given = part.take(grad[:, span])
        *of_inputs, after = _gradients(part, whole.of(span, chunk), given, after)
        for one, into in zip(of_inputs, grads, strict=True):
            part.put(one, into[:, span])
    return *grads, after.reshape(grad_state.shape).clone()


def _forward_shapes(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, ...]:
    solution = _Solution.empty(v, chunk, state)
    return state.new_empty(v.shape), state.new_empty(state.shape), *solution


def _backward_shapes(*given: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    grad_state = given[-1]
    return *map(torch.empty_like, given[:5]), grad_state.new_empty(grad_state.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401
    *tensors, _, ctx.chunk = inputs
    ctx.save_for_backward(*tensors, *output[2:])


@first_derivatives
def _gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    saved = ctx.saved_tensors  # once, since activation checkpointing computes them anew
    input_grads = torch.ops.relpe.gated_delta_rule_backward(*saved, ctx.chunk, *grads[:2])
    return *input_grads, None


_INPUTS = "Tensor q, Tensor k, Tensor v, Tensor strength, Tensor log_decay"
_SOLUTION = "Tensor corrections, Tensor inverse, Tensor states"
_SIX = ", ".join(["Tensor"] * 6)
operation(
    "gated_delta_rule",
    f"({_INPUTS}, Tensor state, int chunk) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward,
    _forward_shapes,
)
operation(
    "gated_delta_rule_backward",
    f"({_INPUTS}, {_SOLUTION}, int chunk, Tensor grad, Tensor grad_state) -> ({_SIX})",
    _backward,
    _backward_shapes,
)
differentiate("gated_delta_rule", _gradient, _keep)
