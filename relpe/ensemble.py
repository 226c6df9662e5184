"""Sequences that are written side by side: they enter, go on token by token, and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from relpe.sampling import Rule, SamplingOptions, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from relpe.decoder import DecoderState
    from relpe.steps import Steps

RuleT = TypeVar("RuleT", bound=Rule)


@dataclass(eq=False)
class Voice(Generic[RuleT]):
    """One sequence that is being written."""

    slot: int
    token: int
    """Its last token, which is not in the state yet."""
    rule: RuleT
    options: SamplingOptions
    generator: np.random.Generator

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return not self.rule.allowed.any()

    def write(self, logits: NDArray[np.float32]) -> None:
        """Draws its next token from logits (v,)."""
        rule = self.rule
        bias = getattr(rule, "bias", None)
        self.token = draw(logits, rule.allowed, self.options, self.generator, bias)
        self.rule = rule.advance(self.token)


class Ensemble(Generic[RuleT]):
    """Voices that write at once; what one writes hangs on its own state, rule and seed alone.

    One that ends leaves, and others may enter at any time (continuous batching).
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.voices: list[Voice[RuleT]] = []

    def enter(
        self,
        state: DecoderState,
        position: int,
        token: int,
        rule: RuleT,
        options: SamplingOptions,
        seeds: Sequence[int],
    ) -> list[Voice[RuleT]]:
        """One voice for each seed, all going on from `state` of one row, `token` at `position`."""
        slot = self._steps.admit(state, position)
        slots = [slot, *(self._steps.fork(slot) for _ in seeds[1:])]
        entered = [
            Voice(slot, token, rule, options, np.random.Generator(np.random.PCG64(seed)))
            for slot, seed in zip(slots, seeds, strict=True)
        ]
        for voice in entered:
            if voice.ended:
                self._steps.release(voice.slot)
            else:
                self.voices.append(voice)
        return entered

    def step(self) -> list[tuple[Voice[RuleT], int]]:
        """One more token of every voice; those that end with it leave. Empty: there are none."""
        voices = self.voices
        if not voices:
            return []
        logits = self._steps.step([v.slot for v in voices], [v.token for v in voices])
        going: list[Voice[RuleT]] = []
        for voice, scores in zip(voices, logits, strict=True):
            voice.write(scores)
            if voice.ended:
                self._steps.release(voice.slot)
            else:
                going.append(voice)
        self.voices = going
        return [(voice, voice.token) for voice in voices]

    def leave(self, voice: Voice[RuleT]) -> None:
        """Ends a voice before its time."""
        self.voices.remove(voice)
        self._steps.release(voice.slot)
