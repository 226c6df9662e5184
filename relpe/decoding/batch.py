"""Continuous batching: rows enter, grow by one token per step, and leave."""

from __future__ import annotations

from bisect import bisect_right
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
    measured: bool = False
    """Whether `nats` are counted."""
    imposed: bool = False
    """Whether the last token names a unit, see `PointerConfig.names`, and the rule allowed no other
    token of its family."""
    nats: float = 0.0
    """Nats of the sampled tokens; see `Sample.nats`."""

    @property
    def ended(self) -> bool:
        """Whether the rule allows no further token."""
        return not self.rule.allowed.any()

    def sample(self, logits: NDArray[np.float32]) -> None:
        """Samples the next token from logits (v,)."""
        rule = self.rule
        bias = getattr(rule, "bias", None)
        self.token = draw(logits, rule.allowed, self.options, self.generator, bias, self.pointer)
        self.imposed = self._is_imposed(rule.allowed)
        self.rule = rule.advance(self.token)
        if self.measured and not self.ended:  # the token that ends a sequence is not part of it
            scores = logits[rule.allowed].astype(np.float64)
            self.nats += float(np.logaddexp.reduce(scores) - logits[self.token])

    def _is_imposed(self, allowed: NDArray[np.bool_]) -> bool:
        """See `imposed`; `allowed` (v,) are those of which the last token was sampled."""
        config = self.pointer.config if self.pointer is not None else None
        if config is None or config.names is None or self.token not in range(*config.names):
            return False
        edges = *config.families, len(allowed)
        family = bisect_right(config.families, self.token)
        return np.count_nonzero(allowed[edges[family - 1] : edges[family]]) == 1


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
        *,
        measured: bool = False,
    ) -> list[Row[RuleT]]:
        """Adds one row per seed; all continue from `state` (one row) with `token` at `position`.

        `pointer`, if any, has read the tokens up to and with `token`, and `coordinates` those
        before it. `measured` rows count their nats.
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
                measured,
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
        """Samples one token for every row and returns them; rows that end leave the batch."""
        rows = self.rows
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
        going: list[Row[RuleT]] = []
        for row, scores in zip(rows, logits, strict=True):
            row.sample(scores)
            if row.ended:
                self._steps.release(row.slot)
            else:
                going.append(row)
        for row in going:  # after all are sampled: faster, as code stays in the cache
            if row.pointer is not None:
                row.pointer.extend([row.token], imposed=row.imposed)
        self.rows = going
        return [(row, row.token) for row in rows]

    def leave(self, row: Row[RuleT]) -> None:
        """Removes a row before it ends."""
        self.rows.remove(row)
        self._steps.release(row.slot)
