"""One-token steps of many rows: what they have in common, and those by the decoder itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from relpe.decoder import Decoder, DecoderState

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


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows that go through the decoder together, at one position."""

    state: DecoderState
    position: int
    slots: tuple[int, ...]


class PlainSteps:
    """Steps by the decoder itself, on its device.

    Rows run alone, since products of several may round otherwise: what a row gets must not hang on
    the others. `together` lets forks of one slot go through the decoder in one call, which is
    faster by far on a GPU.
    """

    def __init__(self, decoder: Decoder, *, together: bool = False) -> None:
        self._decoder, self._together = decoder, together
        self._groups: list[_Group] = []
        self._next = 0

    @property
    def name(self) -> str:
        """As `Steps.name`."""
        weight = self._decoder.embedding.weight
        kind = str(weight.dtype).removeprefix("torch.")
        return f"torch {kind}{' together' if self._together else ''}"

    def admit(self, state: DecoderState, position: int) -> int:
        """As `Steps.admit`."""
        self._groups.append(_Group(state, position, (self._next,)))
        self._next += 1
        return self._next - 1

    def fork(self, slot: int) -> int:
        """As `Steps.fork`."""
        group = self._group_of(slot)
        row = group.slots.index(slot)
        if not self._together:
            return self.admit(group.state.rows(torch.tensor([row])), group.position)
        every = torch.tensor([*range(len(group.slots)), row])
        slots = (*group.slots, self._next)
        self._swap(group, replace(group, state=group.state.rows(every), slots=slots))
        self._next += 1
        return self._next - 1

    def release(self, slot: int) -> None:
        """As `Steps.release`."""
        group = self._group_of(slot)
        rows = [row for row, other in enumerate(group.slots) if other != slot]
        if rows:
            left = tuple(group.slots[row] for row in rows)
            self._swap(
                group, replace(group, state=group.state.rows(torch.tensor(rows)), slots=left)
            )
        else:
            self._groups.remove(group)

    @torch.inference_mode()
    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """As `Steps.step`; slots that went together and do not go on together go apart."""
        given = dict(zip(slots, tokens, strict=True))
        size = self._decoder.config.vocabulary_size
        logits = np.empty((len(slots), size), np.float32)
        index = {slot: row for row, slot in enumerate(slots)}
        device = self._decoder.embedding.weight.device
        groups: list[_Group] = []
        for group in self._groups:
            going = [row for row, slot in enumerate(group.slots) if slot in given]
            if not going:
                groups.append(group)
                continue
            if len(going) < len(group.slots):
                rest = [row for row in range(len(group.slots)) if row not in going]
                groups.append(_part(group, rest))
                group = _part(group, going)
            ids = torch.tensor([[given[slot]] for slot in group.slots], device=device)
            place = torch.full((1, 1, 1), group.position, device=device)
            made, state = self._decoder(ids, place, group.state)
            groups.append(replace(group, state=state, position=group.position + 1))
            logits[[index[slot] for slot in group.slots]] = made[:, -1].float().cpu().numpy()
        self._groups = groups
        return logits

    def _group_of(self, slot: int) -> _Group:
        return next(group for group in self._groups if slot in group.slots)

    def _swap(self, old: _Group, new: _Group) -> None:
        self._groups[self._groups.index(old)] = new


def _part(group: _Group, rows: list[int]) -> _Group:
    slots = tuple(group.slots[row] for row in rows)
    return replace(group, state=group.state.rows(torch.tensor(rows)), slots=slots)


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
    together: bool = False,
) -> StepsMaker:
    """The steps of a decoder: compiled ones where that can be, unless `backend` says otherwise.

    Raises:
        ValueError: `compiled` was asked for and cannot be; the message says why.
    """
    reason = None
    if backend != "torch":
        reason = why_not_compiled(decoder)
        if reason is None:
            from relpe.fast_decode import CompiledDecoder  # needs Numba, and a second

            compiled = CompiledDecoder(decoder, precision)
            return StepsMaker(compiled.name, lambda: compiled.steps(threads), compiled.warm_up)
        if backend == "compiled":
            raise ValueError(f"found {reason}; use the backend torch, or auto")
    name = PlainSteps(decoder, together=together).name
    return StepsMaker(name, lambda: PlainSteps(decoder, together=together), fell_back=reason)


def why_not_compiled(decoder: Decoder) -> str | None:
    """Why steps of a decoder cannot be compiled; None where they can."""
    if decoder.embedding.weight.device.type != "cpu":
        return f"device {decoder.embedding.weight.device.type}, for which nothing is compiled"
    try:
        from relpe.fast_decode import refusal
    except ImportError as error:
        return f'no compiler in Python ({error}; pip install "relpe[fast]")'
    except RuntimeError as error:  # Numba finds no folder to write to
        return f"a compiler that cannot keep its work ({error}; let NUMBA_CACHE_DIR name a folder)"
    return refusal(decoder.config)
