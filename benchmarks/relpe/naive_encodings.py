"""Encodings as implemented by their authors: all codes, maps or scores are computed.

They are slow and need much memory; `encoding_cases` compares ours with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from relpe.encodings.stochastic.white_noise import SITES, white_noise

if TYPE_CHECKING:
    from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseState


def convolved_codes(
    encoding: FilteredNoise, state: FilteredNoiseState, length: int, *, same_noise: bool
) -> tuple[Tensor, Tensor]:
    """Return codes of queries and keys (l, h, d, r) by a convolution (Liutkus et al., 2021, 3.2).

    As in the original, positions are contiguous in memory. The noise is that of the state or, as in
    the original, drawn at once, but only as much as needed.
    """
    filters = encoding.filters()
    heads, features, draws = encoding.shape
    taps, channels = filters.values.shape[-1], heads * features
    size = length + taps - 1
    if same_noise:
        first = filters.first[0]
        tiles = range(first // SITES, (first + size - 1) // SITES + 1)
        drawn = (heads, features, SITES, draws)
        parts = [white_noise(encoding.noise, drawn, int(state.seed), (tile,)) for tile in tiles]
        begin = first - tiles[0] * SITES
        noise = torch.cat(parts, 2)[:, :, begin : begin + size].permute(3, 0, 1, 2).flatten(1, 2)
    else:
        noise = torch.randn(draws, channels, size)
    noise = noise.to(filters.values.dtype)
    scale = (features * draws) ** -0.25
    queries, keys = (
        scale
        * functional.conv1d(noise, side.flatten(0, 1)[:, None], groups=channels)
        .unflatten(1, (heads, features))
        .permute(3, 1, 2, 0)
        for side in filters.values
    )
    return queries, keys


def doubled_powers(one: Tensor, length: int) -> Tensor:
    """Return the powers 0 to length - 1 (l, h, d, d) of maps (h, d, d), by repeated doubling.

    As in Kogkalidis et al. (2024): one table for all positions.
    """
    powers = one[None]
    while len(powers) < length - 1:
        powers = torch.cat([powers, powers @ powers[-1]])
    identity = torch.eye(one.shape[-1], dtype=one.dtype).expand_as(one)
    return torch.cat([identity[None], powers[: length - 1]])


def masked_tree_maps(skew: Tensor, words: Tensor, *, unused: int = 0) -> Tensor:
    """Return the maps (n, h, d, d) of words (n, t) of branches, from exponents (h, k, d, d).

    As in the code of Kogkalidis et al. (2024): the matrix exponential is computed again for every
    node, also for `unused` exponents, and each place of the words and each branch updates the nodes
    that have it there, in a copy of all maps.
    """
    heads, letters, features, _ = skew.shape
    idle = skew[:1, :1].detach().expand(1, unused, -1, -1).flatten(0, 1)
    every = torch.cat([skew.flatten(0, 1), idle])
    exponentials = torch.matrix_exp(every)
    for _ in range(len(words) - 1):
        exponentials = torch.matrix_exp(every)
    rotations = exponentials[: heads * letters].unflatten(0, (heads, letters))
    identity = torch.eye(features, dtype=skew.dtype).expand(heads, -1, -1)
    maps = identity.repeat(len(words), 1, 1, 1)
    for branches in words.unbind(1):
        for letter in range(letters):
            is_letter = branches == letter
            changed = maps.clone()
            changed[is_letter] = maps[is_letter] @ rotations[:, letter]
            maps = changed
    return maps
