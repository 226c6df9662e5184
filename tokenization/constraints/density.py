"""A bias that keeps the number of notes in a bar near a target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import BAR_UNIT
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, POSITION

GAIN, MOST, MOST_CROWD = 16.0, 8.0, 3.0


class Density(NamedTuple):
    """A bias against moving on in a bar with too few notes, and towards it in one with too many.

    Let g be 16 times the deficit of the bar, clipped to -8 and 8. The deficit is the share of the
    bar's time that has passed (an eighth note after the last position) minus the share of its
    target notes that were generated. A token that moves on to a later position, or to the next bar,
    has a bias of -g times the share of the rest of the bar that it skips. Another note at the
    current position has a bias of g, clipped to -3 and 3. This limit is smaller because instruments
    come in a fixed order at each position, and the last ones would otherwise fall silent.
    """

    notes_per_bar: float
    """Target number of notes per bar, for all instruments together."""
    notes: int = 0
    """Number of notes in the current bar so far."""

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del limit
        length, position = grammar.bar_length, max(grammar.position, 0)
        if not length or not grammar.allowed[BAR]:  # later positions may not follow
            return None
        families, bias = grammar.families, np.zeros(grammar.families.size)
        passed, rest = min((position + BAR_UNIT) / length, 1), length - position
        lack = GAIN * (passed - self.notes / self.notes_per_bar)
        skipped = np.arange(1, rest + 1) / rest
        later = max(min(lack, MOST), -MOST) * skipped
        bias[POSITION + position + 1 : POSITION + length] = -later[:-1]
        bias[BAR] = -later[-1]
        crowd = max(min(lack, MOST_CROWD), -MOST_CROWD)
        bias[families.program : families.velocity] = crowd
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Density:
        """See `Bias.advance`."""
        if token == BAR:
            return self._replace(notes=0)
        if grammar.families.pitch <= token < grammar.families.velocity:
            return self._replace(notes=self.notes + 1)
        return self
