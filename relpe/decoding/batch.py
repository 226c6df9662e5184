"""Continuous batching: rows enter, grow by one token per step, and leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from relpe.decoding.base import Coordinates, TokenSteps
from relpe.decoding.sampling import Rule, SamplingOptions, draw
from relpe.models.decoder import DecoderState
from relpe.models.pointer.pointer import Pointer

RuleT = TypeVar("RuleT", bound=Rule)


@dataclass(eq=False)
class Row(Generic[RuleT]):
    """One sequence of a batch."""

    slot: int
    token: int
    """The last token, which the model has not read yet."""
    rule: RuleT
    options: SamplingOptions
    generator: np.random.Generator
    pointer: Pointer | None = None
    """Has read all tokens of the row, the last one included."""
    coordinates: Coordinates | None = None
    """Has read all tokens of the row but the last one; None for a model with one axis."""
    imposed: bool = False
    """What the rule said of the last token; see `Rule`."""
    paused: bool = False
    """Whether the row keeps its slot but does not grow."""

    @property
    def ended(self) -> bool:
        """Whether the rule allows no further token."""
        return not self.rule.allowed.any()

    def sample(self, logits: NDArray[np.float32]) -> None:
        """Sample the next token from logits (v,)."""
        rule = self.rule
        bias = getattr(rule, "bias", None)
        self.token = draw(logits, rule.allowed, self.options, self.generator, bias, self.pointer)
        self.imposed = getattr(rule, "imposed", False)
        self.rule = rule.advance(self.token)


class ContinuousBatch(Generic[RuleT]):
    """Rows that grow together; each depends only on its own state, rule, options and seed.

    A row leaves when it ends, and new rows may enter at any time.
    """

    def __init__(self, steps: TokenSteps) -> None:
        self._steps = steps
        self.rows: list[Row[RuleT]] = []

    def enter(
        self,
        state: DecoderState,
        position: int,
        token: int,
        rule: RuleT,
        options: SamplingOptions,
        seeds: Sequence[int],
        pointer: Pointer | None = None,
        coordinates: Coordinates | None = None,
    ) -> list[Row[RuleT]]:
        """Add one row per seed; all continue from `state` (one row) with `token` at `position`.

        `pointer`, if any, has read the tokens up to and with `token`, and `coordinates` those
        before it.
        """
        if not seeds:
            return []
        slot = self._steps.admit(state, position)
        slots = [slot, *(self._steps.fork(slot) for _ in seeds[1:])]
        entered = [
            Row(
                slot,
                token,
                rule,
                options,
                np.random.Generator(np.random.PCG64(seed)),
                pointer.copy() if pointer is not None else None,
                coordinates,
            )
            for slot, seed in zip(slots, seeds, strict=True)
        ]
        for row in entered:
            if row.ended:
                self._steps.release(row.slot)
            else:
                self.rows.append(row)
        return entered

    def step(self) -> list[tuple[Row[RuleT], int]]:
        """Sample one token for every row that is not paused, and return them.

        Rows that end leave the batch.
        """
        rows = [row for row in self.rows if not row.paused]
        if not rows:
            return []
        slots, tokens = [row.slot for row in rows], [row.token for row in rows]
        places: list[NDArray[np.int64]] = []
        for row in rows:
            if row.coordinates is not None:
                place, row.coordinates = row.coordinates.read(np.array([row.token]))
                places.append(place)
        axes = (np.concatenate(places),) if places else ()
        logits = self._steps.step(slots, tokens, *axes)
        for row, scores in zip(rows, logits, strict=True):
            row.sample(scores)
        for row in rows:  # after all are sampled: faster, as code stays in the cache
            if row.ended:
                self.leave(row)
            elif row.pointer is not None:
                row.pointer.extend([row.token], imposed=row.imposed)
        return [(row, row.token) for row in rows]

    def follow(self, row: Row[RuleT], leader: Row[RuleT]) -> None:
        """Let `row` go on from where `leader` is, with its own random numbers."""
        slot = self._steps.fork(leader.slot)
        self._steps.release(row.slot)
        row.slot, row.token, row.rule, row.imposed = slot, leader.token, leader.rule, leader.imposed
        row.pointer = leader.pointer and leader.pointer.copy()
        row.coordinates = leader.coordinates

    def leave(self, row: Row[RuleT]) -> None:
        """Remove a row before it ends."""
        self.rows.remove(row)
        self._steps.release(row.slot)
