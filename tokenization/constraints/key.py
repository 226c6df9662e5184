"""A bias towards the notes of a key or scale, such as `C`, `F#m` or `D dorian`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.keys import pitch_classes
from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import NUM_PITCHES, Families

OUTSIDE_KEY = 4.0
"""Bias against pitches outside the key, which become e^4 times less likely; drums have none."""


class KeyBias(NamedTuple):
    """Makes pitches outside a key less likely."""

    outside: NDArray[np.float64]
    """The bias (v,), which never changes."""

    @classmethod
    def of(cls, key: str, families: Families) -> KeyBias:
        """Return the bias for a key or scale by name. Raises ValueError if it is unknown."""
        pitches = np.arange(NUM_PITCHES)
        inside = np.isin(pitches % 12, list(pitch_classes(key)))
        outside = np.zeros(families.size)
        outside[families.pitch : families.drum] = np.where(inside, 0, -OUTSIDE_KEY)
        return cls(outside)

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64]:
        """See `Bias.logits`."""
        del grammar, limit
        return self.outside.copy()

    def advance(self, token: int, grammar: RemiGrammar) -> KeyBias:
        """See `Bias.advance`."""
        del token, grammar
        return self
