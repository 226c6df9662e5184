"""Causal linear attention: chunks of positions, running sums between them, and its own backward.

Within a chunk scores are formed as in ordinary attention; all that came before is in sums of
constant size. One function serves whole sequences, pieces and single tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 64
"""Positions whose scores are formed at once; 64 is fastest in float32 on CPUs."""


LEAST_WEIGHT = 1e-30
"""A query whose keys weigh less together gets zero: the gradient of a ratio has the square."""


class LinearState(NamedTuple):
    """Sums over past keys: all that linear attention remembers. float32 or wider."""

    kv: Float[Tensor, "b h f e"]
    k_sum: Float[Tensor, "b h f"]
    log_scale: Float[Tensor, "b h"]
    """Logarithm of the factor taken out of both sums."""

    @classmethod
    def empty(
        cls, shape: tuple[int, int, int, int], *, device: torch.device, dtype: torch.dtype
    ) -> LinearState:
        """State before the first key, for shape (b, h, f, e)."""
        b, h, f, e = shape
        return cls(
            torch.zeros(b, h, f, e, device=device, dtype=dtype),
            torch.zeros(b, h, f, device=device, dtype=dtype),
            torch.full((b, h), -torch.inf, device=device, dtype=dtype),
        )


def causal_linear_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b l h f"],
    v: Float[Tensor, "b l h e"],
    state: LinearState,
    log_scale: Float[Tensor, "b_or_1 l h"] | None = None,
) -> tuple[Float[Tensor, "b l h e"], LinearState]:
    """Weighted means of the values up to each position (Katharopoulos et al., 2020, section 3.3).

    q and k are features (b, l, h, f), v values (b, l, h, e); `log_scale` (b, l, h), where given, is
    the logarithm of a factor that belongs to each key's features; (1, l, h) if all rows share it,
    which is faster; in float64 where it is large, and then the state's `log_scale` is. Returns
    (b, l, h, e) and the state after the last position. Cost is linear in l. Sums are kept in the
    state's dtype whatever the inputs, since they grow with l. A query whose features meet no key,
    or only with products below 1e-30, gives zero, not a division by zero.
    """
    dtype = state.kv.dtype
    if q.shape[1] == 1 and not torch.is_grad_enabled():
        scale = None if log_scale is None else log_scale[:, 0]
        values, state = _step(q[:, 0].to(dtype), k[:, 0].to(dtype), v[:, 0].to(dtype), state, scale)
        return values[:, None].to(v.dtype), state
    flat_q, flat_k, flat_v = (x.transpose(1, 2).flatten(0, 1).to(dtype) for x in (q, k, v))
    scale = None if log_scale is None else log_scale.transpose(1, 2).flatten(0, 1)
    numerator, denominator, kv, k_sum, last = _CausalSums.apply(
        flat_q,
        flat_k,
        flat_v,
        state.kv.flatten(0, 1),
        state.k_sum.flatten(0, 1),
        scale,
        state.log_scale.flatten(),
    )
    values = numerator / _divisor(denominator)[..., None]
    rows = q.shape[0]
    new_state = LinearState(
        kv.unflatten(0, (rows, -1)), k_sum.unflatten(0, (rows, -1)), last.unflatten(0, (rows, -1))
    )
    return values.unflatten(0, (rows, -1)).transpose(1, 2).to(v.dtype), new_state


def _divisor(denominator: Tensor) -> Tensor:
    """Denominators, and 1 for those so small that their inverse, or its square, would overflow."""
    return torch.where(denominator < LEAST_WEIGHT, 1.0, denominator)


def _step(
    q: Tensor, k: Tensor, v: Tensor, state: LinearState, log_scale: Tensor | None
) -> tuple[Tensor, LinearState]:
    """The same for one position, features (b, h, f) and values (b, h, e): the recurrence itself."""
    kv, k_sum, past = state
    if log_scale is None:
        running = torch.zeros_like(past)
    else:
        running = torch.maximum(past, log_scale)
        decay = torch.exp(past - running).to(kv.dtype)[..., None]
        k = k * torch.exp(log_scale - running).to(kv.dtype)[..., None]
        kv, k_sum = kv * decay[..., None], k_sum * decay
    kv = torch.addcmul(kv, k[..., None], v[..., None, :])
    k_sum = k_sum + k
    numerator = (q[..., None, :] @ kv)[..., 0, :]
    denominator = (q * k_sum).sum(-1, keepdim=True)
    values = numerator / _divisor(denominator)
    return values, LinearState(kv, k_sum, running)


class _Chunk(NamedTuple):
    """Where a chunk lies, and the causal weights of its keys and of the sums.

    Weights are exp(key's scale - running maximum at the query): 1 where there are no scales. `n`
    rows times heads, `s` of them where only so many differ.
    """

    span: slice
    within: Tensor  # (s, c, c): key j as query i sees it; 0 for j > i
    before: Tensor | None  # (n, c): the sums as query i sees them
    after: Tensor | None  # (n, c): key j in the new sums
    decay: Tensor | None  # (n,): the old sums in the new sums

    def weigh(self, scores: Tensor) -> Tensor:
        """Scores (n, c, c) times the weights, in place."""
        scores.unflatten(0, (-1, self.within.shape[0])).mul_(self.within)
        return scores


def _chunks(
    length: int, like: Tensor, scale: Tensor | None, start: Tensor
) -> tuple[list[_Chunk], Tensor]:
    """All chunks and the running maximum after them. The maximum never looks at later keys.

    `scale` is (n, l), or (s, l) where rows share it, and `start` (n,); rows that share scales then
    share the maximum, which may be any common factor.
    """
    triangle = torch.ones(CHUNK, CHUNK, dtype=like.dtype, device=like.device).tril()
    chunks = []
    for first in range(0, length, CHUNK):
        span = slice(first, min(first + CHUNK, length))
        size = span.stop - first
        mask = triangle[None, :size, :size]
        if scale is None:
            chunks.append(_Chunk(span, mask, None, None, None))
            continue
        keys, copies = scale[:, span], len(start) // len(scale)
        greatest = start.unflatten(0, (copies, -1)).amax(0)
        running = torch.maximum(keys.cummax(1).values, greatest[:, None])
        end = running[:, -1:]
        within = torch.exp((keys[:, None] - running[..., None]).clamp(max=0)).to(like) * mask
        before = torch.exp(start[:, None] - running.repeat(copies, 1)).to(like)
        after = torch.exp(keys - end).repeat(copies, 1).to(like)
        end = end[:, 0].repeat(copies)
        chunks.append(_Chunk(span, within, before, after, torch.exp(start - end).to(like)))
        start = end
    if scale is None:
        start = torch.zeros_like(start)
    return chunks, start


class _CausalSums(torch.autograd.Function):
    """Numerator (n, l, e) and denominator (n, l) of attention, and the sums; n rows times heads.

    Scales are constants to the gradient: they cancel in the ratio.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv: Tensor,
        k_sum: Tensor,
        scale: Tensor | None,
        start: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        ctx.save_for_backward(q, k, v, kv, k_sum, scale, start)
        chunks, last = _chunks(q.shape[1], q, scale, start)
        numerator, denominator = torch.empty_like(v), q.new_empty(q.shape[:2])
        for chunk in chunks:
            q_c, k_c, v_c = q[:, chunk.span], k[:, chunk.span], v[:, chunk.span]
            scores = chunk.weigh(q_c @ k_c.mT)
            past = q_c if chunk.before is None else q_c * chunk.before[..., None]
            numerator[:, chunk.span] = torch.baddbmm(past @ kv, scores, v_c)
            denominator[:, chunk.span] = scores.sum(-1) + (past @ k_sum[..., None])[..., 0]
            kv, k_sum = _next_sums(chunk, k_c, v_c, kv, k_sum)
        return numerator, denominator, kv, k_sum, last

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad_num: Tensor,
        grad_den: Tensor,
        grad_kv: Tensor,
        grad_k_sum: Tensor,
        _grad_last: Tensor,
    ) -> tuple[Tensor | None, ...]:
        q, k, v, kv, k_sum, scale, start = ctx.saved_tensors
        chunks, _ = _chunks(q.shape[1], q, scale, start)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for chunk in chunks:  # sums grow again from the first position on
            k_c, v_c = k[:, chunk.span], v[:, chunk.span]
            num, den = grad_num[:, chunk.span], grad_den[:, chunk.span, None]
            grad_scores = chunk.weigh((num @ v_c.mT).add_(den))
            past = torch.baddbmm(den * k_sum[:, None], num, kv.mT)
            if chunk.before is not None:
                past = past * chunk.before[..., None]
            grad_q[:, chunk.span] = torch.baddbmm(past, grad_scores, k_c)
            # the weights of keys, already at hand, serve the second half of the gradient too
            q_c = q[:, chunk.span]
            grad_k[:, chunk.span] = grad_scores.mT @ q_c
            scores = chunk.weigh(q_c @ k_c.mT)
            grad_v[:, chunk.span] = scores.mT @ num
            kv, k_sum = _next_sums(chunk, k_c, v_c, kv, k_sum)
        for chunk in reversed(chunks):  # and their gradients from the last position back
            q_c, k_c, v_c = q[:, chunk.span], k[:, chunk.span], v[:, chunk.span]
            num, den = grad_num[:, chunk.span], grad_den[:, chunk.span, None]
            later_k = v_c @ grad_kv.mT + grad_k_sum[:, None]
            later_v = k_c @ grad_kv
            if chunk.after is not None:
                later_k, later_v = (
                    later_k * chunk.after[..., None],
                    later_v * chunk.after[..., None],
                )
            grad_k[:, chunk.span] += later_k
            grad_v[:, chunk.span] += later_v
            if chunk.decay is not None and chunk.before is not None:
                q_c = q_c * chunk.before[..., None]
                grad_kv, grad_k_sum = (
                    grad_kv * chunk.decay[:, None, None],
                    grad_k_sum * chunk.decay[:, None],
                )
            grad_kv = torch.baddbmm(grad_kv, q_c.mT, num)
            grad_k_sum = grad_k_sum + (q_c * den).sum(1)
        return grad_q, grad_k, grad_v, grad_kv, grad_k_sum, None, None


def _next_sums(
    chunk: _Chunk, k: Tensor, v: Tensor, kv: Tensor, k_sum: Tensor
) -> tuple[Tensor, Tensor]:
    if chunk.after is not None and chunk.decay is not None:
        k = k * chunk.after[..., None]
        kv, k_sum = kv * chunk.decay[:, None, None], k_sum * chunk.decay[:, None]
    return torch.baddbmm(kv, k.mT, v), k_sum + k.sum(1)
