"""Linear attention: causal with a state of constant size, or bidirectional with a key mask."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpe.attention.linear.chunked import Tiling, causal_sums, tiling
from relpe.checks import check_attention, check_causal, check_key_mask, check_state, check_type

LEAST_WEIGHT = 1e-30
"""Minimum sum of weights. Below it the result is zero, since gradients divide by its square."""


class LinearState(NamedTuple):
    """Sums over past keys, in float32 or wider."""

    kv: Float[Tensor, "b h f e"]
    k_sum: Float[Tensor, "b h f"]
    log_scale: Float[Tensor, "b h"]
    """Logarithm of the factor taken out of both sums."""

    @classmethod
    def empty(
        cls, shape: tuple[int | torch.SymInt, ...], *, device: torch.device, dtype: torch.dtype
    ) -> LinearState:
        """Return the state before the first key; `shape` is (b, h, f, e)."""
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
    how: Tiling | None = None,
) -> tuple[Float[Tensor, "b l h e"], LinearState]:
    """Return means of the values up to each position (Katharopoulos et al., 2020, section 3.3).

    q and k are features (b, l, h, f), and v values (b, l, h, e). Returns (b, l, h, e) and the state
    after the last position. The cost is linear in l.

    `log_scale` (b, l, h), if given, is the logarithm of a factor of each key's features. It may be
    (1, l, h) if all rows share it, which is faster. Large values should be in float64; the state's
    `log_scale` is then float64 too.

    Sums have the dtype of the state, since they grow with l. Products are in half precision if v is
    and the device is fast in it. The result is zero where the weights of all keys sum to less than
    1e-30. `how` overrides the tiling.
    """
    check_type("state", state, LinearState)
    dtype = state.kv.dtype
    check_attention(q, k, v)
    check_causal(q, k)
    check_state(state.kv.shape, (q.shape[0], *q.shape[2:], v.shape[-1]))
    if log_scale is not None and log_scale.shape[1:] != q.shape[1:3]:
        raise ValueError(
            f"log_scale has the shape {tuple(log_scale.shape)}, expected (1 or b, l, h) as q has "
            f"{tuple(q.shape)}"
        )
    if 0 in q.shape[:2]:
        return v, state
    if q.shape[1] == 1 and not torch.is_grad_enabled():
        scale = None if log_scale is None else log_scale[:, 0]
        values, state = step(q[:, 0].to(dtype), k[:, 0].to(dtype), v[:, 0].to(dtype), state, scale)
        return values[:, None].to(v.dtype), state
    flat_q, flat_k, flat_v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    scale = None if log_scale is None else log_scale.transpose(1, 2).flatten(0, 1)
    numerator, denominator, kv, k_sum, last = causal_sums(
        flat_q,
        flat_k,
        flat_v,
        state.kv.flatten(0, 1),
        state.k_sum.flatten(0, 1),
        scale,
        state.log_scale.flatten(),
        tiling(v.device, v.dtype, dtype) if how is None else how,
    )
    values = numerator / divisor(denominator)[..., None]
    rows = (q.shape[0], q.shape[2])
    new_state = LinearState(*(part.unflatten(0, rows) for part in (kv, k_sum, last)))
    return values.unflatten(0, rows).transpose(1, 2).to(v.dtype), new_state


def linear_attention(
    q: Float[Tensor, "b l h f"],
    k: Float[Tensor, "b s h f"],
    v: Float[Tensor, "b s h e"],
    key_mask: Bool[Tensor, "b_or_1 s"] | None = None,
    log_scale: Float[Tensor, "b_or_1 s h"] | None = None,
) -> Float[Tensor, "b l h e"]:
    """Return means of all values, for each query (Katharopoulos et al., 2020, section 3.2).

    Like `causal_linear_attention`, but every query attends to every key for which `key_mask` (b, s)
    is True. Padding has no effect, regardless of its values. Rows are independent, since the common
    factor is taken out per row and head. Memory beyond inputs and outputs: copies of keys and
    values, and the sums (b, h, f, e).
    """
    check_attention(q, k, v)
    dtype = torch.promote_types(torch.float32, q.dtype)
    return read_sums(q.to(dtype), sums_of(k.to(dtype), v, key_mask, log_scale)).to(v.dtype)


def sums_of(
    k: Float[Tensor, "b s h f"],
    v: Float[Tensor, "b s h e"],
    key_mask: Bool[Tensor, "b_or_1 s"] | None = None,
    log_scale: Float[Tensor, "b_or_1 s h"] | None = None,
    turned: Float[Tensor, "b s h f"] | None = None,
) -> LinearState:
    """Return sums over all keys, in float32 or wider, of which `read_sums` makes weighted means.

    Arguments are those of `linear_attention`; `turned` are other features of the keys, for the
    numerator.
    """
    if key_mask is not None:
        check_key_mask(key_mask, k.shape[:2])
    dtype = torch.promote_types(torch.float32, k.dtype)
    k, wide_v = k.to(dtype), v.to(dtype)
    turned_k = k if turned is None else turned.to(dtype)
    rows = k.shape[0]  # `len` would be a constant in an exported model
    largest = k.new_zeros(rows, 1, k.shape[2])
    if log_scale is not None and k.shape[1]:
        if key_mask is not None:
            log_scale = log_scale.where(key_mask[..., None], -torch.inf)
        largest = log_scale.amax(1, keepdim=True)
        largest = largest.where(largest.isfinite(), 0.0)
        scale = torch.exp(log_scale - largest).to(dtype)[..., None]
        k, turned_k = k * scale, turned_k * scale
    if key_mask is not None:  # not a product, since padding may contain infinities
        exists = key_mask[..., None, None]
        k, turned_k, wide_v = (x.where(exists, 0.0) for x in (k, turned_k, wide_v))
    kv = torch.einsum("bshf,bshe->bhfe", turned_k, wide_v)
    return LinearState(kv, k.sum(1), largest[:, 0].expand(rows, -1))


def read_sums(
    q: Float[Tensor, "b l h f"], sums: LinearState, turned: Float[Tensor, "b l h f"] | None = None
) -> Float[Tensor, "b l h e"]:
    """Return means of all values for the features q of queries; `turned`: for the numerator."""
    dtype = sums.kv.dtype
    q = q.to(dtype)
    weight = torch.einsum("blhf,bhf->blh", q, sums.k_sum)
    turned = q if turned is None else turned.to(dtype)
    return torch.einsum("blhf,bhfe->blhe", turned, sums.kv) / divisor(weight)[..., None]


def divisor(denominator: Tensor) -> Tensor:
    """Return the denominators, replaced by 1 where their inverse or its square would overflow."""
    return torch.where(denominator < LEAST_WEIGHT, 1.0, denominator)


def step(
    q: Tensor, k: Tensor, v: Tensor, state: LinearState, log_scale: Tensor | None
) -> tuple[Tensor, LinearState]:
    """Compute one step of the recurrence, with features (b, h, f) and values (b, h, e)."""
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
    values = numerator / divisor(denominator)
    return values, LinearState(kv, k_sum, running)
