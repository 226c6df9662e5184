"""Reading of prompts and one-token steps by the decoder itself, without compilation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.checks import check_tokens
from relpe.decoding.base import check_axes
from relpe.models.decoder import Decoder, DecoderState

PREFILL_CHUNK = 512
"""Prompt tokens read per call, which bounds memory for prompts of any length."""


@torch.inference_mode()
def prefill_steps(
    model: Decoder,
    state: DecoderState,
    tokens: Tensor,
    position: int = 0,
    coordinates: Tensor | None = None,
) -> Iterator[tuple[int, DecoderState]]:
    """Read `tokens` (b, l), the first at `position`, in constant memory.

    `coordinates` (1 or b, l, p) are the axes of their positions after the first. Yields the number
    of tokens read and the state after them, so that a caller can show progress and stop.
    """
    check_tokens("tokens", tokens, model.embedding.weight)
    for start in range(0, tokens.shape[1], PREFILL_CHUNK):
        piece = tokens[:, start : start + PREFILL_CHUNK]
        place = position + start + torch.arange(piece.shape[1], device=tokens.device)[None, :, None]
        if coordinates is not None:
            others = coordinates[:, start : start + PREFILL_CHUNK]
            place = torch.cat([place.expand(len(others), -1, -1), others], -1)
        _, state = model(piece, place, state)
        yield start + piece.shape[1], state


def prefill(model: Decoder, state: DecoderState, tokens: Tensor, position: int = 0) -> DecoderState:
    """Read `tokens` (b, l), the first at `position`, in constant memory; return the state."""
    for _, newest in prefill_steps(model, state, tokens, position):
        state = newest
    return state


class PlainSteps:
    """`TokenSteps` by the decoder itself, on its device, one row after another.

    Rows are not batched because a batched matrix product may round differently, and a row must not
    depend on the others.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._rows: dict[int, tuple[DecoderState, int]] = {}
        self._next = 0

    @property
    def name(self) -> str:
        """See `TokenSteps.name`."""
        return f"torch {str(self._decoder.embedding.weight.dtype).removeprefix('torch.')}"

    def admit(self, state: DecoderState, position: int) -> int:
        """See `TokenSteps.admit`."""
        self._rows[self._next] = state, position
        self._next += 1
        return self._next - 1

    def fork(self, slot: int) -> int:
        """See `TokenSteps.fork`; states are immutable, so two rows can share one."""
        return self.admit(*self._rows[slot])

    def release(self, slot: int) -> None:
        """See `TokenSteps.release`."""
        del self._rows[slot]

    @torch.inference_mode()
    def step(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        coordinates: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """See `TokenSteps.step`."""
        check_axes(self._decoder.num_axes, coordinates)
        logits = np.empty((len(slots), self._decoder.config.vocabulary_size), np.float32)
        device = self._decoder.embedding.weight.device
        for row, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            state, position = self._rows[slot]
            ids = torch.tensor([[token]], device=device)
            place = torch.full((1, 1, 1), position, device=device)
            if coordinates is not None:
                others = torch.from_numpy(coordinates[row]).to(device)
                place = torch.cat([place, others[None, None]], -1)
            out, state = self._decoder(ids, place, state)
            self._rows[slot] = state, position + 1
            logits[row] = out[0, -1].float().cpu().numpy()
        return logits
