"""A cache of position codes for compiled steps, filled in blocks of positions."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.kernels import products_of_waves
from relpe.encodings.base import AbsoluteEncoding, Encoding, QueryKeyEncoding
from relpe.models.decoder import Decoder, DecoderConfig

BLOCK = 32
"""Positions whose codes are computed together: the size of a tile of filtered noise."""
CODE_BYTES = 256 * 2**20
"""Size limit of the cache of an encoding; rows whose codes do not fit are computed in a further
batch."""


Block = tuple[int, ...]
"""Consecutive places on the last axis that an encoding reads: the other coordinates, and the number
of the block on the last."""


class PositionCodes:
    """Codes of all encodings of a decoder, at the most recently used positions."""

    def __init__(self, decoder: Decoder, states: Sequence[Any]) -> None:
        self._parts = [
            EncodingCodes(
                encoding,
                state,
                decoder.config,
                len(decoder.blocks_of(index)),
                decoder.axes_of(index),
            )
            for index, (encoding, state) in enumerate(zip(decoder.encodings, states, strict=True))
        ]
        ends = np.cumsum([part.size for part in self._parts])
        self.flat = np.empty(int(ends[-1]), np.float32)  # pages are allocated when written
        self._starts = np.array([0, *ends[:-1]])
        for part, start in zip(self._parts, self._starts, strict=True):
            part.set_pool(self.flat[start : start + part.size])
        adding = [index for index, part in enumerate(self._parts) if part.adds]
        self.added_by = adding[0] if adding else -1
        """Number of the encoding whose vectors are added to embeddings; -1: none."""

    @property
    def position_bytes(self) -> int:
        """Bytes of the codes of one position."""
        return sum(4 * part.size // (part.most * BLOCK) for part in self._parts if part.size)

    def encoding_and_set(self, encoding: int, layer: int) -> tuple[int, int]:
        """Return the number of the encoding, -1 without codes, and that of its `layer`'s set."""
        num_sets = self._parts[encoding].sets
        if num_sets == 0:
            return -1, 0
        return encoding, layer if num_sets > 1 else 0

    def needs_gates(self, encoding: int) -> bool:
        """Return whether gates of an encoding are still to be applied to its codes."""
        return self._parts[encoding].needs_gates

    def batches(self, positions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the indices of rows, in groups whose codes fit into the cache together.

        Positions are (b, p) int64.
        """
        parts = [part for part in self._parts if part.size]
        most = min((part.most for part in parts), default=len(positions))
        if len(positions) <= most:
            return [np.arange(len(positions))]
        blocks = [part.blocks(positions) for part in parts]
        groups: list[list[int]] = [[]]
        used: list[set[Block]] = [set() for _ in parts]
        for row in np.argsort(positions[:, 0], kind="stable").tolist():
            for used_blocks, of_rows in zip(used, blocks, strict=True):
                used_blocks.add(of_rows[row])
            if max(map(len, used)) > most:
                groups.append([])
                used = [{of_rows[row]} for of_rows in blocks]
            groups[-1].append(row)
        return [np.sort(group) for group in groups]

    def places(self, positions: NDArray[np.int64], used: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the first index in `flat` of the codes of each position, by encoding (n, b).

        Only positions that are `used` (b,) have codes.
        """
        first_indices = np.zeros((len(self._parts), len(positions)), np.int64)
        if used.any():
            for row, start, part in zip(first_indices, self._starts, self._parts, strict=True):
                row[used] = start + part.places(positions[used])
        return first_indices


class EncodingCodes:
    """`Encoding.encode` as a matrix for each position of the most recently used blocks.

    Absolute encodings have vectors instead.
    """

    def __init__(
        self,
        encoding: Encoding,
        state: Any,  # noqa: ANN401
        config: DecoderConfig,
        num_layers: int,
        axes: tuple[int, ...],
    ) -> None:
        self._encoding, self._state = encoding, state
        self._heads, self._width = config.num_heads, config.width
        self._layers, self._axes = num_layers, list(axes)
        self._blocks: OrderedDict[Block, int] = OrderedDict()  # block to its index in the pool
        self._shape: tuple[int, ...] = ()
        self.adds = False
        """Whether the codes are vectors (m,) that are added to embeddings."""
        self.needs_gates = True
        """Whether gates are still to be applied, since the encoding gives its codes by itself; if
        unit vectors are encoded, these have passed the gates."""
        factors = self._factors((0,) * len(axes))
        if factors is not None:
            all_heads, size, _, draws = factors[1].shape
            self._shape = (all_heads // self._heads, 2, self._heads, size, draws)
        else:
            maps, added = self._compute((0,) * len(axes))
            if maps is not None:
                self._shape = maps.shape[1:]
            elif added is not None:
                self._shape, self.adds = added.shape[1:], True
        self.sets = 0 if self.adds or not self._shape else self._shape[0]
        """Number of sets of codes: one for each layer, one that layers share, or none."""
        numel = math.prod(self._shape) if self._shape else 0
        self.most = max(1, CODE_BYTES // (BLOCK * 4 * numel)) if numel else 0
        """Maximum number of blocks."""
        self.size = self.most * BLOCK * numel
        """Size of the pool."""

    def set_pool(self, pool: NDArray[np.float32]) -> None:
        """Set the array (size,) that codes are written to."""
        self._pool = pool.reshape(-1, *self._shape) if self._shape else pool

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first index in the pool of the codes of each position."""
        if not self._shape:
            return np.zeros(len(positions), np.int64)
        blocks = self.blocks(positions)
        needed = set(blocks)
        for block in needed & self._blocks.keys():
            self._blocks.move_to_end(block)
        # rows at similar positions need few blocks; reuse memory that is already allocated
        most = min(self.most, 2 * len(needed))
        for block in sorted(needed - self._blocks.keys()):
            full = len(self._blocks) >= most
            index = self._blocks.popitem(last=False)[1] if full else len(self._blocks)
            self._fill(block, slice(index * BLOCK, (index + 1) * BLOCK))
            self._blocks[block] = index
        first = np.array([self._blocks[block] for block in blocks], np.int64) * BLOCK
        return (first + positions[:, self._axes[-1]] % BLOCK) * math.prod(self._shape)

    def blocks(self, positions: NDArray[np.int64]) -> list[Block]:
        """Return the block of each position (b, p): consecutive places on the last axis."""
        blocks = positions[:, self._axes]
        blocks[:, -1] //= BLOCK
        return [tuple(block) for block in blocks.tolist()]

    @torch.inference_mode()
    def _fill(self, block: Block, rows: slice) -> None:
        """Write the codes of a block into the pool."""
        factors = self._factors(block)
        if factors is not None:
            products_of_waves(*factors, self._pool[rows])
            return
        maps, added = self._compute(block)
        self._pool[rows] = added if maps is None else maps

    @torch.inference_mode()
    def _factors(
        self, block: Block
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]] | None:
        """Return waves and noise of a block, see `QueryKeyEncoding.factors`; None without them."""
        encoding = self._encoding
        if not isinstance(encoding, QueryKeyEncoding):
            return None
        factors = encoding.factors(_positions(block), self._state)
        if factors is None:
            return None
        waves, queries, keys = (array_of(x)[0] for x in factors)
        return waves, queries, keys

    @torch.inference_mode()
    def _compute(
        self, block: Block
    ) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """Compute codes (BLOCK, n, 2, h, d, r) of a block, and vectors (BLOCK, m) of embeddings.

        n is the number of layers if their codes differ, else 1. None if the encoding has none.
        """
        encoding = self._encoding
        codes, self._state = encoding.prepare(_positions(block), self._state)
        if isinstance(encoding, AbsoluteEncoding):
            return None, array_of(encoding.embed(torch.zeros(1, BLOCK, self._width), codes))[0]
        if not isinstance(encoding, QueryKeyEncoding):
            return None, None
        matrices = encoding.matrices(codes)
        self.needs_gates = matrices is not None
        if matrices is None:
            return self._encode_units(encoding, codes), None
        return array_of(matrices.movedim(2, 0)), None

    def _encode_units(
        self, encoding: QueryKeyEncoding[Any, Any], codes: object
    ) -> NDArray[np.float32]:
        """Return the codes (BLOCK, n, 2, h, d, r) of an encoding, by encoding the unit vectors.

        If it turns pairs of features, these are (BLOCK, n, 2, h, 2, d): the factor of each feature,
        and that of its partner.
        """
        size = self._width // self._heads
        if encoding.partners is None:
            matrices = self._encode(torch.eye(size), encoding, codes)
        else:  # the sums of the first features of all pairs, and of the second
            is_first = torch.arange(size) < torch.tensor(encoding.partners)
            sums = self._encode(torch.stack([is_first, ~is_first]).float(), encoding, codes)
            matrices = [
                torch.where(is_first, layer_sums, layer_sums.flip(1))  # own factor, then partner's
                for layer_sums in sums
            ]
        if all(torch.equal(matrix, matrices[0]) for matrix in matrices):
            matrices = matrices[:1]
        return array_of(torch.stack(matrices).permute(3, 0, 1, 4, 2, 5))

    def _encode(
        self, vectors: torch.Tensor, encoding: QueryKeyEncoding[Any, Any], codes: object
    ) -> list[torch.Tensor]:
        """Encode vectors (n, d) at all positions of a block: (2, n, BLOCK, h, r) per layer."""
        x = vectors[:, None, None].expand(len(vectors), BLOCK, self._heads, -1)
        return [torch.stack(encoding.encode(x, x, codes, layer)) for layer in range(self._layers)]


def _positions(block: Block) -> torch.Tensor:
    """Return the positions (1, BLOCK, p) of a block."""
    positions = torch.tensor(block).repeat(1, BLOCK, 1)
    positions[..., -1] = positions[..., -1] * BLOCK + torch.arange(BLOCK)
    return positions


def array_of(x: torch.Tensor, dtype: torch.dtype = torch.float32) -> NDArray[Any]:
    """Return a contiguous copy on the CPU."""
    return x.detach().to("cpu", dtype, copy=True).contiguous().numpy()
