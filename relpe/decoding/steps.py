"""One-token steps of many rows: what they have in common, and those by the decoder itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
import torch

from relpe.decoding.cuda_graph import TileSteps, why_not_tiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from relpe.models.decoder import Decoder, DecoderState

PREFILL_CHUNK = 512
"""Tokens of a prompt that are read at once: bounds memory whatever the prompt's length."""
Backend = Literal["auto", "compiled", "torch"]
"""Compiled where that can be; the decoder's own code."""
Precision = Literal["int8", "float32"]
"""Of weights in memory."""


class Steps(Protocol):
    """Sequences in slots, each with a state and a position of its own."""

    @property
    def name(self) -> str:
        """What computes: within one, and one set of versions, a seed draws the same tokens."""
        ...

    def admit(self, state: DecoderState, position: int) -> int:
        """A slot that goes on from `state`, of one row, at `position`."""
        ...

    def fork(self, slot: int) -> int:
        """Another slot that goes on from where `slot` is."""
        ...

    def release(self, slot: int) -> None:
        """Gives a slot back."""
        ...

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits (n, v) after one more token in each of some slots, all different."""
        ...


@torch.inference_mode()
def prefill_steps(
    model: Decoder, state: DecoderState, tokens: Tensor, position: int = 0
) -> Iterator[tuple[int, DecoderState]]:
    """Reads `tokens` (b, l), the first at `position`, in constant memory.

    Yields how many are read and the state after them, so that a caller can show progress and stop.
    """
    for start in range(0, tokens.shape[1], PREFILL_CHUNK):
        piece = tokens[:, start : start + PREFILL_CHUNK]
        place = position + start + torch.arange(piece.shape[1], device=tokens.device)
        _, state = model(piece, place[None, :, None], state)
        yield start + piece.shape[1], state


def prefill(model: Decoder, state: DecoderState, tokens: Tensor, position: int = 0) -> DecoderState:
    """State after reading `tokens` (b, l), the first at `position`, in constant memory."""
    for _, newest in prefill_steps(model, state, tokens, position):
        state = newest
    return state


class PlainSteps:
    """Steps by the decoder itself, on its device, one row after the other.

    Products of several rows may round otherwise: what a row gets must not hang on the others.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._rows: dict[int, tuple[DecoderState, int]] = {}
        self._next = 0

    @property
    def name(self) -> str:
        """As `Steps.name`."""
        return f"torch {str(self._decoder.embedding.weight.dtype).removeprefix('torch.')}"

    def admit(self, state: DecoderState, position: int) -> int:
        """As `Steps.admit`."""
        self._rows[self._next] = state, position
        self._next += 1
        return self._next - 1

    def fork(self, slot: int) -> int:
        """As `Steps.fork`; a state is never changed, so that two rows may go on from one."""
        return self.admit(*self._rows[slot])

    def release(self, slot: int) -> None:
        """As `Steps.release`."""
        del self._rows[slot]

    @torch.inference_mode()
    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """As `Steps.step`."""
        logits = np.empty((len(slots), self._decoder.config.vocabulary_size), np.float32)
        device = self._decoder.embedding.weight.device
        for row, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            state, position = self._rows[slot]
            ids = torch.tensor([[token]], device=device)
            place = torch.full((1, 1, 1), position, device=device)
            made, state = self._decoder(ids, place, state)
            self._rows[slot] = state, position + 1
            logits[row] = made[0, -1].float().cpu().numpy()
        return logits


class StepsMaker(NamedTuple):
    """What makes the steps of one model."""

    name: str
    """As `Steps.name`."""
    make: Callable[[], Steps]
    """New slots; whoever writes has their own."""
    warm_up: Callable[[], None] = lambda: None
    """What takes long at the first time on a machine."""
    fell_back: str | None = None
    """Why it is the decoder's own code where compiled steps were wanted."""


def choose_steps(
    decoder: Decoder,
    backend: Backend = "auto",
    precision: Precision = "int8",
    *,
    threads: int = 1,
) -> StepsMaker:
    """The steps of a decoder: compiled ones where that can be, unless `backend` says otherwise.

    Without them, those of tiles of rows on a GPU, and of one row after the other on a CPU.

    Raises:
        ValueError: `compiled` was asked for and cannot be; the message says why.
    """
    reason = None
    if backend != "torch":
        reason = why_not_compiled(decoder)
        if reason is None:
            from relpe.decoding.compiled import CompiledDecoder  # needs Numba, and a second

            compiled = CompiledDecoder(decoder, precision)
            return StepsMaker(compiled.name, lambda: compiled.steps(threads), compiled.warm_up)
        if backend == "compiled":
            raise ValueError(f"found {reason}; use the backend torch, or auto")
    on_gpu = decoder.embedding.weight.device.type == "cuda"
    kind = TileSteps if on_gpu and why_not_tiled(decoder) is None else PlainSteps
    return StepsMaker(kind(decoder).name, lambda: kind(decoder), fell_back=reason)


def why_not_compiled(decoder: Decoder) -> str | None:
    """Why steps of a decoder cannot be compiled; None where they can."""
    if decoder.embedding.weight.device.type != "cpu":
        return f"device {decoder.embedding.weight.device.type}, for which nothing is compiled"
    try:
        from relpe.decoding.compiled import refusal
    except ImportError as error:
        return f'no compiler in Python ({error}; pip install "relpe[fast]")'
    except RuntimeError as error:  # Numba finds no folder to write to
        return f"a compiler that cannot keep its work ({error}; let NUMBA_CACHE_DIR name a folder)"
    return refusal(decoder.config)
