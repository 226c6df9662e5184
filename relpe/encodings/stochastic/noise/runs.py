"""Tiles of filtered noise taken together: runs of whole ones, and their noise.

A tile's codes are a product of the filters' matrix of each head and feature with the noise around
the tile. Tile by tile, these matrices and their noise, tens of megabytes, come from memory anew
each time. In a run one feature's matrix meets the noise of many tiles, and both stay in the cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from relpe.encodings.stochastic.noise import lattice as noise_tiles
from relpe.encodings.stochastic.noise.lattice import SITES, Halos, NoiseField, Placement

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = 16
"""Tiles of a run, at most."""
FEATURES = 16
"""Features of one head whose codes exist at once in a run: 4 MB of them."""


class Piece(NamedTuple):
    """Tiles whose codes are made by one call: one tile, or a run of whole ones.

    Its places `m` are tile after tile, of each those of the queries, then those of the keys.
    """

    rows: Tensor | slice  # of all positions, those in these tiles
    sites: Tensor | slice  # their places in the tile
    noise: Tensor  # (h, d, t, n, r): in a run a view, since halos overlap

    @property
    def tiles(self) -> int:
        """How many (t)."""
        return self.noise.shape[2]

    @property
    def whole(self) -> bool:
        """Whether the positions are all those of the tiles, in order."""
        return _is_whole(self.sites)

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Heads and features whose codes exist at once: all of a tile, few of a run."""
        if self.tiles == 1:
            yield slice(None), slice(None)
            return
        for head in range(self.noise.shape[0]):
            for start in range(0, self.noise.shape[1], FEATURES):
                yield slice(head, head + 1), slice(start, start + FEATURES)

    def codes(self, matrices: Tensor, heads: slice, features: slice) -> Tensor:
        """Codes (h, d, m, r) of a part, by the filters' matrices (h, d, 2c, n)."""
        part, noise = matrices[heads, features], self.noise[heads, features]
        if self.tiles == 1:
            codes = part @ noise[:, :, 0]
            return codes if self.whole else codes[:, :, self.places(codes.device)]
        codes = noise.new_empty(*part.shape[:2], self.tiles, part.shape[2], noise.shape[-1])
        pairs = zip(part.flatten(0, 1), noise.flatten(0, 1), codes.flatten(0, 1), strict=True)
        for matrix, around, out in pairs:
            torch.bmm(matrix.expand(self.tiles, -1, -1), around, out=out)
        return codes.flatten(2, 3)

    def places(self, device: torch.device) -> Tensor:
        """Of one tile: which of all its places, of queries, then of keys, the positions take."""
        sites = torch.arange(SITES, device=device)[self.sites]
        return torch.cat([sites, sites + SITES])

    def gather(self, q: Tensor, k: Tensor) -> Tensor:
        """Queries and keys (b, l, h, f) at the places, as (h, m, b, f)."""
        both = torch.stack([q[:, self.rows], k[:, self.rows]])
        return both.unflatten(2, (self.tiles, -1)).permute(4, 2, 0, 3, 1, 5).flatten(1, 3)

    def scatter(self, x: Tensor, queries: Tensor, keys: Tensor) -> None:
        """Puts (h, m, b, f) back, the reverse of `gather`."""
        both = x.unflatten(1, (self.tiles, 2, -1)).permute(2, 4, 1, 3, 0, 5).flatten(2, 3)
        queries[:, self.rows], keys[:, self.rows] = both[0], both[1]


def pieces(placement: Placement, halos: Halos | NoiseLine) -> Iterator[Piece]:
    """All tiles in order: runs where whole ones follow one another and their noise lies evenly."""
    first, count = 0, len(placement.tiles)
    while first < count:
        stop = first + 1
        while stop < min(first + RUN, count) and _follows(placement, stop):
            stop += 1
        noise = None
        if stop > first + 1:
            held = isinstance(halos, Halos)
            noise = _held_run(halos, first, stop) if held else halos.run(first, stop)
        if noise is None:
            for index in range(first, stop):
                around = halos.noise(index)[:, :, None]
                yield Piece(placement.rows[index], placement.sites[index], around)
        else:
            ends = placement.rows[first], placement.rows[stop - 1]
            assert isinstance(ends[0], slice)
            assert isinstance(ends[1], slice)
            yield Piece(slice(ends[0].start, ends[1].stop), slice(0, SITES), noise)
        first = stop


def _follows(placement: Placement, index: int) -> bool:
    """Whether a tile continues the one before it: on a line, both whole, positions in order."""
    tile, before = placement.tiles[index], placement.tiles[index - 1]
    rows, ends = placement.rows[index], placement.rows[index - 1]
    return (
        len(tile) == 1
        and tile[0] == before[0] + 1
        and _is_whole(placement.sites[index])
        and _is_whole(placement.sites[index - 1])
        and isinstance(rows, slice)
        and isinstance(ends, slice)
        and rows.start == ends.stop
    )


def _is_whole(sites: Tensor | slice) -> bool:
    return isinstance(sites, slice) and sites == slice(0, SITES)


def _held_run(halos: Halos, first: int, stop: int) -> Tensor | None:
    """(h, d, t, n, r), the noise around tiles that follow one another; None where none is held.

    None on other devices than CPUs as well, where one call for all features of a tile is cheaper
    than one for each feature of a run.
    """
    noise = halos.noise(first)
    heads, features, samples, draws = noise.shape
    by_head, by_feature = noise.stride()[:2]
    step = SITES * draws
    size = ((stop - first - 1) * SITES + samples) * draws
    end = noise.storage_offset() + (heads - 1) * by_head + (features - 1) * by_feature + size
    if noise.device.type != "cpu" or end * noise.element_size() > noise.untyped_storage().nbytes():
        return None
    shape = (heads, features, stop - first, samples, draws)
    return noise.as_strided(shape, (by_head, by_feature, step, draws, 1), noise.storage_offset())


class NoiseLine:
    """Noise around consecutive tiles of one axis, drawn as runs of them come by; none is held.

    For one pass, or for more noise than may be held. Like `Halos`; what `run` gives is good until
    the next call.
    """

    def __init__(self, field: NoiseField, tiles: list[tuple[int, ...]], reach: list[int]) -> None:
        self._field, self._tiles, self._reach = field, [index for (index,) in tiles], reach
        self.draws = field.shape[-1]
        self._few: dict[int, Tensor] = {}
        heads, features, draws = field.shape
        size = min(RUN, len(tiles)) + len(reach) - 1
        self._buffer = field.like.new_empty(heads, features, size, SITES, draws)
        self._held = range(0)

    def tiles(self, index: int) -> list[tuple[int, ...]]:
        """Indices of the tiles in the halo of the index-th tile."""
        return [(self._tiles[index] + offset,) for offset in self._reach]

    def noise(self, index: int) -> Tensor:
        """(h, d, n, r), the noise of that halo, tile after tile."""
        wanted = [tile for (tile,) in self.tiles(index)]
        # those of the last call and of the run are not drawn again
        self._few = {tile: self._tile(tile) for tile in wanted}
        return torch.cat(list(self._few.values()), 2)

    def run(self, first: int, stop: int) -> Tensor:
        """(h, d, t, n, r), the noise around each tile from the first-th to before the stop-th."""
        begin = self._tiles[first] + self._reach[0]
        wanted = range(begin, begin + stop - first + len(self._reach) - 1)
        if begin < self._held.start:
            self._held = range(0)  # a new pass
        for tile in wanted:
            here = self._buffer[:, :, tile - begin]
            if tile in self._held:  # of the run before this one, and further to the right
                here.copy_(self._buffer[:, :, tile - self._held.start])
            else:
                here.copy_(self._few[tile] if tile in self._few else self._field.tile((tile,)))
        self._held = wanted
        samples = self._buffer.flatten(2, 3)
        halos = samples.unfold(2, SITES * len(self._reach), SITES)  # (h, d, t, r, n)
        return halos[:, :, : stop - first].mT

    def _tile(self, tile: int) -> Tensor:
        if tile in self._few:
            return self._few[tile]
        if tile in self._held:
            return self._buffer[:, :, tile - self._held.start].clone()
        return self._field.tile((tile,))


def noise_around(
    field: NoiseField,
    tiles: list[tuple[int, ...]],
    neighbours: tuple[tuple[int, ...], ...],
    *,
    passes: int | None,
) -> Halos | NoiseLine:
    """The noise around tiles, for a number of passes over all of them; None: also backward."""
    on_line = len(neighbours[0]) == 1 and tiles[-1][0] - tiles[0][0] == len(tiles) - 1 > 0
    if passes is None or not on_line or field.like.device.type != "cpu":
        return Halos(field, tiles, neighbours)
    numbers = (len(tiles) + len(neighbours) - 1) * SITES * math.prod(field.shape)
    much = numbers * field.like.element_size() > noise_tiles.HELD_NOISE_BYTES
    if passes > 1 and not much:
        return Halos(field, tiles, neighbours)
    return NoiseLine(field, tiles, [offset for (offset,) in neighbours])
