"""Batched decoding on GPUs: one step of many rows is the replay of one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from relpe.decoding.base import check_slots
from relpe.models.decoder import Decoder, DecoderState

TILE_BYTES = 256 * 2**20
"""Maximum bytes of the states of a tile, unless 32 rows need more."""


def why_not_tiled(decoder: Decoder) -> str | None:
    """Return why rows at different positions cannot share a call of a decoder; None if they can."""
    if decoder.events is not None:
        return "rows with events do not pass the blocks at the same steps"
    for block, layer in enumerate(decoder.config.layers_in_order):
        if not decoder.encoding_of(block).rows_by_position:
            return f"encoding {layer.encoding.kind} has no codes of single positions"
        if layer.attention.name == "softmax":
            return "the state of softmax attention grows with the sequence"
    if decoder.num_axes > 1:
        return f"the model reads {decoder.num_axes} axes of the positions"
    return None


class TileSteps:
    """`TokenSteps` in tiles of a fixed number of rows; unused rows are computed too.

    A tile has memory at fixed addresses, so that a step on a GPU is the replay of one CUDA graph: a
    single launch instead of a few hundred. Matrix products always have the same shape, so that a
    row does not depend on the others.
    """

    def __init__(self, decoder: Decoder, rows: int | None = None) -> None:
        reason = why_not_tiled(decoder)
        if reason is not None:
            raise ValueError(f"rows cannot share a call: {reason}; use PlainSteps")
        self._decoder = decoder
        self._rows = _rows_of_tile(decoder) if rows is None else rows
        self._tiles: list[_Tile] = []
        self._used: set[int] = set()

    @property
    def name(self) -> str:
        """See `TokenSteps.name`."""
        weight = self._decoder.embedding.weight
        kind = str(weight.dtype).removeprefix("torch.")
        return f"torch {kind} in tiles of {self._rows} on {weight.device.type}"

    def admit(self, state: DecoderState, position: int) -> int:
        """See `TokenSteps.admit`."""
        slot = self._free_slot()
        tile, row = self._place(slot)
        tile.write(row, _leaves(state), position)
        return slot

    def fork(self, slot: int) -> int:
        """See `TokenSteps.fork`."""
        check_slots([slot], self._used)
        new = self._free_slot()
        (source, row), (tile, target) = self._place(slot), self._place(new)
        tile.write(target, source.read(row), source.position(row))
        return new

    def release(self, slot: int) -> None:
        """See `TokenSteps.release`."""
        check_slots([slot], self._used)
        self._used.remove(slot)

    @torch.inference_mode()
    def step(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        coordinates: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """See `TokenSteps.step`; coordinates are not read."""
        check_slots(slots, self._used)
        by_tile: dict[int, list[int]] = {}
        for index, slot in enumerate(slots):
            by_tile.setdefault(slot // self._rows, []).append(index)
        for number, indices in by_tile.items():
            rows = [slots[index] % self._rows for index in indices]
            self._tiles[number].run(rows, [tokens[index] for index in indices])
        # launch all tiles before waiting for the first
        logits = np.empty((len(slots), self._decoder.config.vocabulary_size), np.float32)
        for number, indices in by_tile.items():
            rows = [slots[index] % self._rows for index in indices]
            logits[indices] = self._tiles[number].logits.cpu().numpy()[rows]
        return logits

    def _place(self, slot: int) -> tuple[_Tile, int]:
        return self._tiles[slot // self._rows], slot % self._rows

    def _free_slot(self) -> int:
        slot = next(slot for slot in range(len(self._used) + 1) if slot not in self._used)
        if slot == len(self._tiles) * self._rows:
            self._tiles.append(_Tile(self._decoder, self._rows))
        self._used.add(slot)
        return slot


class _Tile:
    """States of n rows, and the inputs and outputs of a step, at fixed addresses."""

    @torch.inference_mode()
    def __init__(self, decoder: Decoder, rows: int) -> None:
        self._decoder = decoder
        device = decoder.embedding.weight.device
        self._tokens = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        self._positions = torch.zeros(rows, 1, 1, dtype=torch.int64, device=device)
        self._active = torch.zeros(rows, dtype=torch.bool, device=device)
        self.logits = torch.zeros(rows, decoder.config.vocabulary_size, device=device)
        # after the first token, the state of a window has its full size
        _, blank = decoder(self._tokens, self._positions, decoder.init_state(rows))
        self._state = blank.map_rows(torch.clone)
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._capture()

    def _capture(self) -> None:
        """Record a step as a graph; it must not synchronise with the device."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries and caches must be initialised outside the graph
            for _ in range(3):
                self._compute()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute()
        self._graph = graph

    def _compute(self) -> None:
        """Compute a step of all rows; the states of inactive rows do not change."""
        logits, after = self._decoder(self._tokens, self._positions, self._state)
        self.logits.copy_(logits[:, -1])
        for held, new in zip(_leaves(self._state), _leaves(after), strict=True):
            active = self._active.view(-1, *[1] * (held.ndim - 1))
            held.copy_(torch.where(active, new.to(held.dtype), held))
        self._positions.add_(self._active[:, None, None])

    def run(self, rows: list[int], tokens: list[int]) -> None:
        """Compute a step of some rows; their logits are in `logits` afterwards."""
        ids, active = np.zeros((2, len(self.logits)), np.int64)
        ids[rows], active[rows] = tokens, 1
        self._tokens.copy_(torch.from_numpy(ids)[:, None])
        self._active.copy_(torch.from_numpy(active))
        if self._graph is None:
            self._compute()
        else:
            self._graph.replay()

    @torch.inference_mode()
    def write(self, row: int, leaves: Sequence[Tensor], position: int) -> None:
        """Copy the state of one row into `row`."""
        for held, new in zip(_leaves(self._state), leaves, strict=True):
            if new.ndim > 1 and new.shape[1] < held.shape[1]:  # a window that is not full yet
                pads = [0, 0] * (new.ndim - 2) + [held.shape[1] - new.shape[1], 0]
                new = functional.pad(new, pads)
            held[row].copy_(new[0])
        self._positions[row] = position

    def read(self, row: int) -> list[Tensor]:
        """Return the tensors of a row."""
        return [leaf[row : row + 1] for leaf in _leaves(self._state)]

    def position(self, row: int) -> int:
        """Return the position of a row."""
        return int(self._positions[row])


def _rows_of_tile(decoder: Decoder) -> int:
    """Return the number of rows of a tile by the size of one row's state.

    It is a power of two from 32 to 256.
    """
    device = decoder.embedding.weight.device
    place = torch.zeros(1, 1, 1, dtype=torch.int64, device=device)
    with torch.inference_mode():
        _, state = decoder(place[0], place, decoder.init_state(1))
    size = sum(leaf.nbytes for leaf in _leaves(state))
    return max(32, min(256, 2 ** int(np.log2(max(1, TILE_BYTES // size)))))


def _leaves(state: DecoderState) -> list[Tensor]:
    """Return all tensors that belong to rows, in an order that depends only on the model."""
    leaves: list[Tensor] = []

    def keep(leaf: Tensor) -> Tensor:
        leaves.append(leaf)
        return leaf

    state.map_rows(keep)
    return leaves
