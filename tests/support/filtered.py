"""White noise and states of filtered noise for tests."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch

from relpe.encodings.stochastic.white_noise import SITES, TILES, NoiseField

if TYPE_CHECKING:
    from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseState


REACH = [-1, 0, 1]
"""Tiles that a tile's filters read, as offsets on one axis."""
NEIGHBOURS = tuple((offset,) for offset in REACH)
"""The same in the format of a stencil."""


def line(length: int, start: int = 0) -> torch.Tensor:
    """Positions (1, l, 1) from `start` on."""
    return torch.arange(start, start + length)[None, :, None]


def noise_field(drawn: list[int] | None = None) -> NoiseField:
    """Noise on one axis; `drawn` collects the indices of the tiles that are drawn."""

    class Counted(NoiseField):
        def tile(self, index: tuple[int, ...]) -> torch.Tensor:
            if drawn is not None:
                drawn.append(index[0])
            return super().tile(index)

    return Counted("normal", 5, (2, 3, 4), {}, torch.empty(0, dtype=torch.float64))


def state_with(
    encoding: FilteredNoise, noise: torch.Tensor, first: tuple[int, ...]
) -> FilteredNoiseState:
    """A state in which `noise` (h, d, *space, r) begins at point `first` of the lattice."""
    tile, space = TILES[encoding.axes], noise.shape[2:-1]
    low = [a // c for a, c in zip(first, tile, strict=True)]
    high = [-(-(a + n) // c) for a, n, c in zip(first, space, tile, strict=True)]
    sizes = [(b - a) * c for a, b, c in zip(low, high, tile, strict=True)]
    whole = noise.new_zeros(*noise.shape[:2], *sizes, noise.shape[-1])
    inside = [
        slice(f - a * c, f - a * c + n) for f, a, c, n in zip(first, low, tile, space, strict=True)
    ]
    whole[(slice(None), slice(None), *inside)] = noise
    tiles, parts = [], []
    for index in itertools.product(*[range(b - a) for a, b in zip(low, high, strict=True)]):
        cut = [slice(i * c, (i + 1) * c) for i, c in zip(index, tile, strict=True)]
        tiles.append([a + i for a, i in zip(low, index, strict=True)])
        parts.append(whole[(slice(None), slice(None), *cut)].flatten(2, -2))
    state = encoding.init_state(0, torch.device("cpu"))
    return state._replace(tiles=torch.tensor(tiles), noise=torch.stack(parts, 2))


def unit_noise(
    encoding: FilteredNoise, positions: torch.Tensor, reach: tuple[int, ...]
) -> FilteredNoiseState:
    """Noise in all tiles around `positions` (l, p): each realization is 1 at one point, else 0.

    Sums over realizations are then the exact second moments over white noise. `reach` is the number
    of samples that filters read on either side, per axis.
    """
    tile = TILES[encoding.axes]
    low = [int(x) for x in positions.amin(0)]
    high = [int(x) for x in positions.amax(0)]
    spans = [
        range((a - n) // c, (b + n) // c + 1)
        for a, b, c, n in zip(low, high, tile, reach, strict=True)
    ]
    tiles = torch.tensor(list(itertools.product(*spans)))
    heads, features, draws = encoding.shape
    assert len(tiles) * SITES <= draws, (len(tiles) * SITES, "realizations needed")
    points = torch.eye(len(tiles) * SITES, draws, dtype=torch.float64)
    noise = points.view(len(tiles), SITES, draws).expand(heads, features, -1, -1, -1)
    state = encoding.init_state(0, torch.device("cpu"))
    return state._replace(tiles=tiles, noise=noise)


def moments(
    encoding: FilteredNoise, positions: torch.Tensor, state: FilteredNoiseState
) -> torch.Tensor:
    """(h, d, l, l): products of query and key codes summed over realizations, without scale."""
    codes, _ = encoding.prepare(positions[None], state)
    assert codes.shared is not None
    _, features, draws = encoding.shape
    return torch.einsum("lhdr,shdr->hdls", *codes.shared) * math.sqrt(features * draws)
