"""Interface for token-by-token decoding: sequences in slots, and their factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from relpe.models.decoder import DecoderState

Backend = Literal["auto", "compiled", "torch"]
"""How steps are computed: `compiled`, by `torch`, or `auto` (compiled where possible)."""
Precision = Literal["int8", "float32"]
"""Precision of the weights in memory."""


class TokenSteps(Protocol):
    """Sequences in slots, each with its own state and position, advanced one token at a time.

    The logits of a slot are bit-identical regardless of the other slots in the call.
    """

    @property
    def name(self) -> str:
        """Name of the computation: the same name, version and seed give the same tokens."""
        ...

    def admit(self, state: DecoderState, position: int) -> int:
        """Return a new slot that continues from `state` (one row) at `position`."""
        ...

    def fork(self, slot: int) -> int:
        """Return a new slot with a copy of the state and the position of `slot`."""
        ...

    def release(self, slot: int) -> None:
        """Free a slot."""
        ...

    def step(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        coordinates: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """Return the logits (n, v) after one more token in each of n distinct slots.

        `coordinates` (n, p) are the axes of their positions after the first; None: there are none.
        """
        ...


class Coordinates(Protocol):
    """Axes of the positions of tokens after the first, which is their index; immutable.

    They are a function of the tokens so far, for example bar and place in the bar.
    """

    def read(self, ids: NDArray[np.integer]) -> tuple[NDArray[np.int64], Self]:
        """Return the coordinates (l, p) of the next tokens (l,), and the state after them."""
        ...


class StepsMaker(NamedTuple):
    """Makes the steps of one model."""

    name: str
    """See `TokenSteps.name`."""
    make: Callable[[], TokenSteps]
    """Returns new steps with separate slots."""
    warm_up: Callable[[], None] = lambda: None
    """Does slow work in advance, such as compiling."""
    fell_back: str | None = None
    """Why steps are not compiled although this was requested; None otherwise."""


def check_axes(num_axes: int, coordinates: NDArray[np.int64] | None) -> None:
    """Raise a ValueError unless positions with these coordinates have `num_axes` axes or more."""
    axes = 1 if coordinates is None else 1 + coordinates.shape[-1]
    if axes < num_axes:
        raise ValueError(
            f"positions have {axes} axes, but the model reads {num_axes}; give the coordinates of "
            "the tokens"
        )


def check_slots(slots: Sequence[int], used: Collection[int]) -> None:
    """Raise a ValueError unless `slots` are distinct and all in use."""
    if len(set(slots)) < len(slots) or any(slot not in used for slot in slots):
        raise ValueError(f"slots are {list(slots)}, expected distinct slots that are in use")
