"""A bias that lets music come to rest in its last bar, on a chord."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS
from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan import Chord
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, DURATIONS, NUM_PITCHES, POSITION, Families

LAST_BEAT, LONG, LONGER_LATE = 40.0, 2.0, 6.0
"""`LAST_BEAT` is large since a model that is sure of its groove outweighs a smaller bias."""
OUTSIDE, NOT_ROOT = 4.0, 3.0
"""Bias against pitches outside the chord, and against those other than its root below the pitch
`LOW`, or while the bar has no root."""
LOW = 52


class Cadence(NamedTuple):
    """A bias towards long notes in the last bar, and against notes in its last beat.

    Onsets in the last beat are all but forbidden, by a bias of -40. Long durations get a bias of up
    to 2 at the start of the bar, and of up to 8 at its end: in full if the note reaches the bar
    line, and in proportion if it is shorter. With a chord, pitches outside it get a bias of -4.
    Those other than its root get another -3 if they are low, or as long as the bar has no root.
    """

    chord: Chord | None = None
    """The last chord; None: any."""
    has_root: bool = False
    """Whether its root has begun in this bar."""

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        families, length, allowed = grammar.families, grammar.bar_length, grammar.allowed
        moves_on = bool(length and allowed[BAR])
        picks = self.chord is not None and bool(allowed[families.pitch : families.drum].any())
        if not (moves_on or picks or allowed[families.duration]):
            return None
        if not limit.in_last_bar(grammar):
            return None
        bias, position = np.zeros(families.size), max(grammar.position, 0)
        if picks:
            assert self.chord is not None
            bias[families.pitch : families.drum] = self._against(families, self.chord)
        if moves_on:
            last_beat = max(length - STEPS_PER_BEAT, 1)
            bias[POSITION + last_beat : POSITION + length] = -LAST_BEAT
        elif allowed[families.duration]:
            rest = max(length - position, 1)
            most = LONG + LONGER_LATE * position / length
            durations = slice(families.duration, families.duration + len(DURATIONS))
            bias[durations] = most * np.minimum(DURATIONS / rest, 1)
        return bias

    def _against(self, families: Families, chord: Chord) -> NDArray[np.float64]:
        pitches = np.arange(NUM_PITCHES)
        inside = np.isin((pitches - chord.root) % 12, CHORD_INTERVALS[chord.quality])
        bias = np.where(inside, 0.0, -OUTSIDE)
        bias[(pitches % 12 != _bass(chord)) & ((pitches < LOW) | (not self.has_root))] -= NOT_ROOT
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Cadence:
        """See `Bias.advance`."""
        families = grammar.families
        if token == BAR:
            return self._replace(has_root=False)
        if self.chord is None or self.has_root or not families.pitch <= token < families.drum:
            return self
        pitch = token - families.pitch
        return self._replace(has_root=pitch % 12 == _bass(self.chord))


def _bass(chord: Chord) -> int:
    """Pitch class of the lowest note."""
    return chord.root if chord.bass is None else chord.bass
