"""Slow, obvious versions of filtered noise: what the fast ones are tested against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from relpe.encodings.stochastic.white_noise import TILES, lattice, white_noise

if TYPE_CHECKING:
    from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseState


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
    """Codes of queries and keys (l, h, d, r) at `positions` (l, p): one tap after the other."""
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
    """Encoded queries and keys by the codes themselves, every product written out."""
    query_codes, key_codes = filtered_codes(encoding, positions, state)
    if encoding.gates is not None:
        gate = torch.sigmoid(encoding.gates[layer])[..., None]
        features, draws = state.gates.shape[2:]
        constant = gate.sqrt() * state.gates[layer].to(gate) * (draws * features) ** -0.25
        query_codes = (1 - gate).sqrt() * query_codes + constant
        key_codes = (1 - gate).sqrt() * key_codes + constant
    return (q[..., None] * query_codes).sum(3), (k[..., None] * key_codes).sum(3)
