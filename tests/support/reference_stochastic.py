"""Naive stochastic encodings, as a reference for the fast ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from relpe.encodings.stochastic.white_noise import TILES, lattice, white_noise

if TYPE_CHECKING:
    from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseState
    from relpe.encodings.stochastic.sine import SineNoise, SineSPE


def noise_at(
    encoding: FilteredNoise, state: FilteredNoiseState, place: list[int]
) -> Float[Tensor, "h d r"]:
    """Noise of one point of the lattice: from the tiles that the state keeps, or drawn."""
    tile = TILES[len(place)]
    index = [x // c for x, c in zip(place, tile, strict=True)]
    inside = [x % c for x, c in zip(place, tile, strict=True)]
    site = lattice(tile).tolist().index(inside)
    kept = state.tiles.tolist()
    if index in kept:
        return state.noise[:, :, kept.index(index), site]
    heads, features, draws = encoding.shape
    sites = len(lattice(tile))
    noise = white_noise(encoding.noise, (heads, features, sites, draws), int(state.seed), index)
    return noise[:, :, site]


def filtered_codes(
    encoding: FilteredNoise, positions: Tensor, state: FilteredNoiseState
) -> tuple[Tensor, Tensor]:
    """Codes of queries and keys (l, h, d, r) at `positions` (l, p), summed tap by tap."""
    filters = encoding.filters()
    heads, features, draws = encoding.shape
    scale = (features * draws) ** -0.25
    taps = lattice(filters.values.shape[3:]).tolist()

    def code(side: int, position: list[int]) -> Tensor:
        total = filters.values.new_zeros(heads, features, draws)
        for tap in taps:
            place = [sum(x) for x in zip(position, filters.first, tap, strict=True)]
            weight = filters.values[side][(..., *tap)]
            noise = noise_at(encoding, state, place).to(weight)
            total = total + weight[..., None] * noise * scale
        return total

    queries, keys = (
        torch.stack([code(side, place) for place in positions.tolist()]) for side in (0, 1)
    )
    return queries, keys


def apply_filtered_noise(
    encoding: FilteredNoise,
    q: Float[Tensor, "b l h d"],
    k: Float[Tensor, "b l h d"],
    positions: Tensor,
    state: FilteredNoiseState,
    layer: int,
) -> tuple[Float[Tensor, "b l h r"], Float[Tensor, "b l h r"]]:
    """Encoded queries and keys, computed from codes with explicit products."""
    codes = filtered_codes(encoding, positions, state)
    return gated(encoding, q, k, codes, state.gates, layer)


def sine_codes(encoding: SineSPE, positions: Tensor, noise: SineNoise) -> tuple[Tensor, Tensor]:
    """Codes of queries and keys (l, h, d, r) at `positions` (l,), before the gate."""
    sines = encoding.config.num_sines
    features, draws = noise.sines.shape[1], noise.sines.shape[-1]
    frequencies = torch.sigmoid(encoding.frequencies) / 2
    gains = functional.softplus(encoding.gains) / math.sqrt(2 * sines) * (draws * features) ** -0.25

    def codes(offsets: Tensor | float) -> Tensor:
        angles = (
            2 * math.pi * frequencies * positions.to(frequencies)[:, None, None, None] + offsets
        )
        waves = torch.stack([angles.cos(), angles.sin()], -1) * gains[..., None]
        return torch.einsum("lhdkw,hdkwr->lhdr", waves, noise.sines.to(frequencies))

    return codes(encoding.offsets), codes(0.0)


def apply_sine_spe(
    encoding: SineSPE, q: Tensor, k: Tensor, positions: Tensor, noise: SineNoise, layer: int
) -> tuple[Tensor, Tensor]:
    """Encoded queries and keys (b, l, h, r), computed from codes with explicit products."""
    codes = sine_codes(encoding, positions, noise)
    return gated(encoding, q, k, codes, noise.gates, layer)


def gated(
    encoding: FilteredNoise | SineSPE,
    q: Tensor,
    k: Tensor,
    codes: tuple[Tensor, Tensor],
    noise: Tensor,
    layer: int,
) -> tuple[Tensor, Tensor]:
    """Queries and keys times their codes, mixed with the noise of gates (layers, h, d, r)."""
    query_codes, key_codes = codes
    if encoding.gates is not None:
        gate = torch.sigmoid(encoding.gates[layer])[..., None]
        features, draws = noise.shape[2:]
        constant = gate.sqrt() * noise[layer].to(gate) * (draws * features) ** -0.25
        query_codes = (1 - gate).sqrt() * query_codes + constant
        key_codes = (1 - gate).sqrt() * key_codes + constant
    return (q[..., None] * query_codes).sum(3), (k[..., None] * key_codes).sum(3)
