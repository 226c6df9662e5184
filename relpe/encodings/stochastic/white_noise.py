"""White noise on a lattice of integer positions, as a function of seed and place.

The lattice is divided into tiles. Each tile is drawn from its own seed, so that a part of a
sequence has the same values as the whole. Codes are also computed tile by tile, since filters read
the noise around every tile in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from relpe.transforms import check_draws, kept_on_device

NoiseKind = Literal["normal", "signs"]
SITES = 32
"""Positions of a tile (c).

With n taps, a dense product reads c + n - 1 samples per position, of which n are needed. Smaller
tiles waste less of it; larger tiles need fewer products.
"""
TILES = {1: (SITES,), 2: (4, 8), 3: (2, 4, 4)}
"""Shape of a tile, by number of axes."""
RUN = 16
"""Maximum number of tiles in a run, whose noise `NoiseLine` returns together."""
HELD_NOISE_BYTES = 512 * 2**20
"""Maximum size of noise that is held in memory during a call; otherwise layers redraw tiles."""


def white_noise(
    kind: NoiseKind, shape: Sequence[int], seed: int, place: Sequence[int] = ()
) -> Tensor:
    """Return float32 noise of variance 1 on the CPU, which depends only on the arguments."""
    check_draws()
    generator = torch.Generator().manual_seed(_mixed_seed(seed, place))
    if kind == "normal":
        return torch.randn(tuple(shape), generator=generator)
    size = math.prod(shape)
    octets = torch.randint(256, (-(-size // 8), 1), dtype=torch.uint8, generator=generator)
    bits = (octets >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.flatten()[:size].view(tuple(shape)).to(torch.float32).mul_(2).sub_(1)


def _mixed_seed(seed: int, place: Sequence[int]) -> int:
    """Return a seed of 32 bits, the limit of torch.

    On one axis, different places have different seeds.
    """
    folded = 0
    for index in place:
        folded = (_mix(folded) + index) & 0xFFFFFFFF
    stream = (seed >> 32) + 0x9E3779B9 * (1 + len(place))
    return _mix(_mix(folded ^ _mix(seed)) + _mix(stream))


def _mix(x: int) -> int:
    """Return a bijection of 32-bit integers in which every bit depends on all bits of x.

    Without it, neighbouring places would have neighbouring seeds. Source: MurmurHash3 (Appleby).
    """
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


class Stencil(NamedTuple):
    """How the positions of a tile read noise: position x reads x + first, x + first + 1, ...

    There is one tap per sample and axis. The stencil is the same for all tiles.
    """

    tile: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]  # offsets of the tiles whose noise is read: the halo
    table: Tensor  # (c, n) int64: the tap with which a position reads a sample of the halo, or
    # the number of taps if it does not
    columns: Tensor  # (c, taps) int64: the sample of the halo that a position reads with a tap


@kept_on_device
def stencil(taps: tuple[int, ...], first: tuple[int, ...]) -> Stencil:
    """Return the stencil of filters with `taps` per axis that begin to read at offset `first`."""
    tile = TILES[len(taps)]
    spans = [
        range(begin // c, (c - 1 + begin + n - 1) // c + 1)
        for c, n, begin in zip(tile, taps, first, strict=True)
    ]
    neighbours = tuple(product(*spans))
    places = lattice(tile)  # (c, p)
    samples = torch.tensor(neighbours)[:, None] * torch.tensor(tile) + places  # (j, c, p)
    tap = samples.flatten(0, 1) - places[:, None] - torch.tensor(first)
    inside = ((tap >= 0) & (tap < torch.tensor(taps))).all(-1)
    table = torch.where(inside, (tap * _strides(taps)).sum(-1), math.prod(taps))
    return Stencil(tile, neighbours, table, table.argsort(1)[:, : math.prod(taps)])


def lattice(sizes: Sequence[int]) -> Tensor:
    """Return all points of a box, (product of sizes, p) int64, the last axis varying fastest."""
    return torch.cartesian_prod(*[torch.arange(n) for n in sizes]).view(-1, len(sizes))


def _strides(sizes: Sequence[int]) -> Tensor:
    return torch.tensor([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))])


class Placement(NamedTuple):
    """The tiles of positions, and the positions of each tile."""

    tiles: list[tuple[int, ...]]  # in order
    rows: list[Tensor | slice]  # for each tile: indices of the positions in it
    sites: list[Tensor | slice]  # for each tile: places of these positions in the tile
    last: int  # the tile of the last position
    length: int  # number of positions (l)

    @classmethod
    def of(cls, positions: Tensor, tile: tuple[int, ...]) -> Placement:
        """Return the placement of positions (l, p) int64 in any order; indices on their device."""
        places = positions.cpu()
        shape = torch.tensor(tile)
        cells = torch.div(places, shape, rounding_mode="floor")
        sites = ((places - cells * shape) * _strides(tile)).sum(-1)
        tiles, which, counts = torch.unique(cells, dim=0, return_inverse=True, return_counts=True)
        rows = which.argsort(stable=True)
        sizes = counts.tolist()
        return cls(
            [tuple(index) for index in tiles.tolist()],
            [_indices(part, positions.device) for part in rows.split(sizes)],
            [_indices(part, positions.device) for part in sites[rows].split(sizes)],
            int(which[-1]),
            len(places),
        )


def _indices(index: Tensor, device: torch.device) -> Tensor | slice:
    """Return a slice if possible, since it copies nothing, else the index on the device."""
    first = int(index[0])
    if bool((index == torch.arange(first, first + len(index))).all()):
        return slice(first, first + len(index))
    return index.to(device)


class NoiseField(NamedTuple):
    """The noise of one sequence."""

    kind: NoiseKind
    seed: int
    shape: tuple[int, int, int]  # (h, d, r)
    kept: dict[tuple[int, ...], Tensor]  # cached tiles
    like: Tensor  # its device and dtype are those of the results

    def tile(self, index: tuple[int, ...]) -> Tensor:
        """Return the noise (h, d, c, r) of a tile."""
        if index in self.kept:
            return self.kept[index].to(self.like)
        heads, features, draws = self.shape
        noise = white_noise(self.kind, (heads, features, SITES, draws), self.seed, index)
        return noise.to(self.like)


class Halos:
    """The noise around each of some tiles, held in memory or redrawn on each access.

    The halos of consecutive tiles overlap; the overlap with the previous halo is not redrawn.
    """

    def __init__(
        self,
        field: NoiseField,
        tiles: list[tuple[int, ...]],
        neighbours: tuple[tuple[int, ...], ...],
    ) -> None:
        self._field = field
        self.draws = field.shape[-1]
        self._halos = [
            [tuple(map(sum, zip(tile, offset, strict=True))) for offset in neighbours]
            for tile in tiles
        ]
        distinct = sorted({index for halo in self._halos for index in halo})
        heads, features, draws = field.shape
        self._values: Tensor | None = None
        self._recent: dict[tuple[int, ...], Tensor] = {}
        size = len(distinct) * SITES * heads * features * draws * field.like.element_size()
        if size <= HELD_NOISE_BYTES:
            self._row = {index: row for row, index in enumerate(distinct)}
            self._values = field.like.new_empty(heads, features, len(distinct), SITES, draws)
            for index, row in self._row.items():
                self._values[:, :, row] = field.tile(index)

    def tiles(self, index: int) -> list[tuple[int, ...]]:
        """Return the indices of the tiles in the halo of the index-th tile."""
        return self._halos[index]

    def noise(self, index: int) -> Tensor:
        """Return the noise (h, d, n, r) of that halo, tile after tile."""
        halo = self._halos[index]
        if self._values is not None:
            rows = [self._row[tile] for tile in halo]
            if rows == list(range(rows[0], rows[0] + len(rows))):
                return self._values[:, :, rows[0] : rows[-1] + 1].flatten(2, 3)  # no copy
            return self._values[:, :, rows].flatten(2, 3)
        recent = self._recent
        self._recent = {
            tile: recent[tile] if tile in recent else self._field.tile(tile) for tile in halo
        }
        return torch.cat(list(self._recent.values()), 2)


class NoiseLine:
    """Noise around consecutive tiles on one axis, drawn run by run and not held in memory.

    Use it for a single pass, or for more noise than fits in memory. It is otherwise like `Halos`.
    The result of `run` is valid until the next call.
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
        """Return the indices of the tiles in the halo of the index-th tile."""
        return [(self._tiles[index] + offset,) for offset in self._reach]

    def noise(self, index: int) -> Tensor:
        """Return the noise (h, d, n, r) of that halo, tile after tile."""
        halo = [tile for (tile,) in self.tiles(index)]
        # tiles of the last call and of the last run are not redrawn
        self._few = {tile: self._tile(tile) for tile in halo}
        return torch.cat(list(self._few.values()), 2)

    def run(self, first: int, stop: int) -> Tensor:
        """Return the noise (h, d, t, n, r) around each of the tiles `first` to `stop` - 1."""
        begin = self._tiles[first] + self._reach[0]
        run = range(begin, begin + stop - first + len(self._reach) - 1)
        if begin < self._held.start:
            self._held = range(0)  # a new pass
        for tile in run:
            here = self._buffer[:, :, tile - begin]
            if tile in self._held:  # from the previous run, further to the right in memory
                here.copy_(self._buffer[:, :, tile - self._held.start])
            else:
                here.copy_(self._few[tile] if tile in self._few else self._field.tile((tile,)))
        self._held = run
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
    """Return the noise around tiles for a number of passes; None: several, with a backward pass."""
    on_line = len(neighbours[0]) == 1 and tiles[-1][0] - tiles[0][0] == len(tiles) - 1 > 0
    if passes is None or not on_line or field.like.device.type != "cpu":
        return Halos(field, tiles, neighbours)
    numbers = (len(tiles) + len(neighbours) - 1) * SITES * math.prod(field.shape)
    much = numbers * field.like.element_size() > HELD_NOISE_BYTES
    if passes > 1 and not much:
        return Halos(field, tiles, neighbours)
    return NoiseLine(field, tiles, [offset for (offset,) in neighbours])
