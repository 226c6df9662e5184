"""A cache of position codes for compiled steps, filled in blocks of positions."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.kernels import products_of_waves
from relpe.encodings.base import Encoding
from relpe.encodings.stochastic.filtered_noise import FilteredNoise
from relpe.encodings.stochastic.sine import SineSPE
from relpe.models.decoder import Decoder

BLOCK = 32
"""Positions whose codes are computed together: the size of a tile of filtered noise."""
CODE_BYTES = 256 * 2**20
"""Size limit of the cache; rows whose codes do not fit are computed in a further batch."""


class PositionCodes:
    """`Encoding.encode` as a matrix for each position of the most recently used blocks.

    For encodings with gates, these are the codes before gating.
    """

    def __init__(self, decoder: Decoder, state: Any) -> None:  # noqa: ANN401
        config, encoding = decoder.config, decoder.encoding
        self._encoding, self._state = encoding, state
        self._layers, self._heads, self._width = config.num_layers, config.num_heads, config.width
        self._blocks: OrderedDict[int, int] = OrderedDict()  # block to its index in the pool
        if isinstance(encoding, SineSPE):
            sets = 1 if encoding.config.shared_by_layers else config.num_layers
            size = config.width // config.num_heads
            shape = (sets, 2, config.num_heads, size, state.sines.shape[-1])
            adds = False
        else:
            maps, added = self._make(0)
            shape, adds = None if maps is None else maps.shape[1:], added is not None
        self._made = adds or shape is not None
        block_bytes = 0 if shape is None else BLOCK * 4 * math.prod(shape)
        self._most = max(1, CODE_BYTES // block_bytes) if block_bytes else 64
        pool = self._most * BLOCK  # pages are allocated when they are written
        self.maps = np.empty((0, 1, 2, 1, 1, 1) if shape is None else (pool, *shape), np.float32)
        self.added = np.empty((pool if adds else 0, config.width), np.float32)

    def batches(self, positions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Indices of rows, in groups whose codes fit into the cache together."""
        if len(positions) <= self._most or not self._made:
            return [np.arange(len(positions))]
        blocks = positions // BLOCK
        distinct = np.unique(blocks)
        parts = (distinct[i : i + self._most] for i in range(0, len(distinct), self._most))
        return [np.flatnonzero(np.isin(blocks, part)) for part in parts]

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of the codes of each position in `maps` (p, n, 2, h, d, r) and `added` (p, m)."""
        if not self._made:
            return np.zeros(len(positions), np.int64)
        wanted = (positions // BLOCK).tolist()
        needed = set(wanted)
        for block in needed & self._blocks.keys():
            self._blocks.move_to_end(block)
        # rows at similar positions need few blocks; reuse memory that is already allocated
        most = min(self._most, 2 * len(needed))
        for block in sorted(needed - self._blocks.keys()):
            full = len(self._blocks) >= most
            place = self._blocks.popitem(last=False)[1] if full else len(self._blocks)
            self._fill(block, slice(place * BLOCK, (place + 1) * BLOCK))
            self._blocks[block] = place
        first = np.array([self._blocks[block] for block in wanted], np.int64) * BLOCK
        return first + positions % BLOCK

    @torch.inference_mode()
    def _fill(self, block: int, rows: slice) -> None:
        """Writes the codes of a block into the pool."""
        encoding = self._encoding
        if isinstance(encoding, SineSPE):
            waves, *noise = encoding.factors(_places(block), self._state)
            queries, keys = (array_of(x)[0] for x in noise)
            products_of_waves(array_of(waves)[0], queries, keys, self.maps[rows])
            return
        maps, added = self._make(block)
        if maps is not None:
            self.maps[rows] = maps
        if added is not None:
            self.added[rows] = added

    @torch.inference_mode()
    def _make(self, block: int) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """Codes (BLOCK, n, 2, h, d, r) of a block, and vectors added to embeddings (BLOCK, m).

        n is the number of layers if their codes differ, else 1. None if the encoding has none.
        """
        encoding = self._encoding
        codes, self._state = encoding.prepare(_places(block), self._state)
        if isinstance(encoding, FilteredNoise):
            sets = [one.shared for one in codes.by_layer or (codes,)]
            made = np.stack([array_of(one) for one in sets])  # (n, 2, BLOCK, h, d, r)
            return made.transpose(2, 0, 1, 3, 4, 5), None
        zeros = torch.zeros(1, BLOCK, self._width)
        added = encoding.embed(zeros, codes)
        return self._of_units(codes), None if added is zeros else array_of(added)[0]

    def _of_units(self, codes: Any) -> NDArray[np.float32] | None:  # noqa: ANN401
        """Codes (BLOCK, n, 2, h, d, r) of any encoding, by encoding the unit vectors."""
        if type(self._encoding).encode is Encoding.encode:
            return None
        size = self._width // self._heads
        units = torch.eye(size)[:, None, None].expand(size, BLOCK, self._heads, size)
        made = [
            torch.stack(self._encoding.encode(units, units, codes, layer))  # (2, d, BLOCK, h, r)
            for layer in range(self._layers)
        ]
        if all(torch.equal(one, made[0]) for one in made):
            made = made[:1]
        return array_of(torch.stack(made).permute(3, 0, 1, 4, 2, 5))


def _places(block: int) -> torch.Tensor:
    return torch.arange(block * BLOCK, (block + 1) * BLOCK)[None, :, None]


def array_of(x: torch.Tensor, dtype: torch.dtype = torch.float32) -> NDArray[Any]:
    """A contiguous copy on the CPU."""
    return x.detach().to("cpu", dtype, copy=True).contiguous().numpy()
