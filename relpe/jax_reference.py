"""Encodings of this package as pure functions in JAX, for a second framework and for comparison.

They compute what `SineSPE`, `ConvSPE` and `Algebraic` do, from the same parameters and noise, all
at once and without a state. Letters of shapes are those of `relpe`; `k` sines, `n` taps. Positions
of far sequences need `jax.config.update("jax_enable_x64", True)`. The extra `jax` installs JAX.
"""

from __future__ import annotations

import math
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
from jax.scipy.linalg import expm  # pyright: ignore[reportMissingImports]

Array = Any
"""An array of JAX or NumPy."""


def sine_codes(
    raw_frequencies: Array, offsets: Array, raw_gains: Array, noise: Array, positions: Array
) -> tuple[Array, Array]:
    """Return codes (l, h, d, r) of queries and keys by sine SPE (Liutkus et al., 2021, 3.1).

    Parameters are (h, d, k), standard normal noise is (h, d, k, 2, r), positions are (l,).
    """
    sines, draws = noise.shape[2], noise.shape[4]
    frequencies = jax.nn.sigmoid(raw_frequencies) / 2  # cycles per position
    scale = (noise.shape[1] * draws) ** -0.25 / math.sqrt(2 * sines)
    gains = scale * jax.nn.softplus(raw_gains)
    phases = 2 * math.pi * (positions[:, None, None, None] * frequencies % 1)

    def codes(angles: Array) -> Array:
        waves = jnp.stack([jnp.cos(angles), jnp.sin(angles)], -1) * gains[..., None]
        return jnp.einsum("lhdkc,hdkcr->lhdr", waves, noise)

    return codes(phases + offsets), codes(phases)


def convolved_codes(query_taps: Array, key_taps: Array, noise: Array) -> tuple[Array, Array]:
    """Return the codes (l, h, d, r) of queries and keys by convolutional SPE (ibid., section 3.2).

    Taps are (h, d, n), standard normal noise is (h, d, l + n - 1, r); position 0 reads its first n.
    """
    taps, (_, features, size, draws) = query_taps.shape[-1], noise.shape
    places = jnp.arange(size - taps + 1)[:, None] + jnp.arange(taps)
    windows = noise[:, :, places] * (features * draws) ** -0.25
    return tuple(jnp.einsum("hdlnr,hdn->lhdr", windows, x) for x in (query_taps, key_taps))  # pyright: ignore[reportReturnType]


def gated(codes: Array, raw_gates: Array, noise: Array) -> Array:
    """Return codes (l, h, d, r) mixed with a part that ignores the position (section 3.3).

    Raw gates are (h, d); standard normal noise (h, d, r) is the same for queries and keys.
    """
    gates = jax.nn.sigmoid(raw_gates)[..., None]
    constant = noise * (noise.shape[1] * noise.shape[2]) ** -0.25
    return jnp.sqrt(1 - gates) * codes + jnp.sqrt(gates) * constant


def encoded(x: Array, codes: Array) -> Array:
    """Encode queries or keys x (b, l, h, d) by their codes (l, h, d, r): (b, l, h, r)."""
    return jnp.einsum("blhd,lhdr->blhr", x, codes)


def turned(x: Array, angles: Array, positions: Array) -> Array:
    """Return the queries or keys x (b, l, h, d), turned by the algebraic encoding of sequences.

    Adjacent pairs of features turn by `angles` (h, d/2) radians per position of `positions` (l,)
    (Kogkalidis et al., 2024, with the planes of rotation in the projections).
    """
    phases = positions[:, None, None] * angles % (2 * math.pi)
    first, second = x[..., ::2], x[..., 1::2]
    cos, sin = jnp.cos(phases), jnp.sin(phases)
    pairs = [first * cos - second * sin, second * cos + first * sin]
    return jnp.stack(pairs, -1).reshape(x.shape)


def mapped(x: Array, base: Array, positions: Array) -> Array:
    """Multiply queries or keys x (b, l, h, d) by exp(S)^position, with S = base - base^T.

    `base` (h, d, d) are the parameters of the original code of Kogkalidis et al. (2024).
    """
    skew = base - base.swapaxes(-1, -2)
    maps = jax.vmap(jax.vmap(expm))(positions[:, None, None, None] * skew)
    return jnp.einsum("lhij,blhj->blhi", maps, x)
