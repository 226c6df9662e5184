"""A bias that lets music come to rest in its last bar."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import STEPS_PER_BEAT
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, DURATIONS, POSITION

LAST_BEAT, LONG, LONGER_LATE = 12.0, 2.0, 6.0


class Cadence(NamedTuple):
    """A bias towards long notes in the last bar, and against notes in its last beat.

    Positions in the last beat have a bias of -12. Durations have a bias that rises from 2 to 8
    towards the end of the bar. It applies in full to notes that last up to the bar line or beyond,
    and in proportion to their reach to shorter ones.
    """

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        families, length, allowed = grammar.families, grammar.bar_length, grammar.allowed
        moves_on = bool(length and allowed[BAR])
        if not (moves_on or allowed[families.duration]) or not limit.in_last_bar(grammar):
            return None
        bias, position = np.zeros(families.size), max(grammar.position, 0)
        if moves_on:
            last_beat = max(length - STEPS_PER_BEAT, 1)
            bias[POSITION + last_beat : POSITION + length] = -LAST_BEAT
        else:
            rest = max(length - position, 1)
            most = LONG + LONGER_LATE * position / length
            durations = slice(families.duration, families.duration + len(DURATIONS))
            bias[durations] = most * np.minimum(DURATIONS / rest, 1)
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Cadence:
        """See `Bias.advance`."""
        del token, grammar
        return self
