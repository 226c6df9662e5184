"""A bias that decides the metre and the tempo with which a piece from nothing begins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar

DECIDED = 1000.0
"""Bias of the tokens that are decided: no other one is sampled."""


class Head(NamedTuple):
    """Decides tokens of the head of the first bar."""

    tokens: tuple[int, ...]
    """A TimeSignature, a Tempo, or both."""

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del limit
        if grammar.bar != 1 or grammar.position >= 0:
            return None
        bias = np.zeros(grammar.families.size)
        bias[list(self.tokens)] = DECIDED
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Head:
        """See `Bias.advance`."""
        del token, grammar
        return self
