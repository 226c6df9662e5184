"""A bias towards the notes of chords that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS
from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import BAR_UNIT, STEPS_PER_BEAT
from tokenization.plan import Chord, PlannedChord
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import NUM_PITCHES, Families

ON_BEAT, OFF_BEAT = 3.0, 1.5
"""Bias against pitches outside the chord; between beats they may pass."""
LOW, NOT_BASS = 48, 1.5
"""Pitches below the first number have this further bias, except the bass and its fifth."""


class Harmony(NamedTuple):
    """Makes pitches outside the chords of the new bars less likely; drums have no bias."""

    bars: tuple[tuple[PlannedChord, ...], ...]
    """The chords of each new bar; a bar without chords has no bias."""

    @classmethod
    def of(cls, bars: Sequence[Sequence[PlannedChord] | None]) -> Harmony:
        """The bias for the chords of each new bar; None repeats the last chord before it."""
        held: tuple[PlannedChord, ...] = ()
        kept: list[tuple[PlannedChord, ...]] = []
        for chords in bars:
            held = held[-1:] if chords is None else tuple(chords)
            kept.append(held)
        return cls(tuple(kept))

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        bar, position = grammar.bar - limit.first_bar, max(grammar.position, 0)
        if not 0 <= bar < len(self.bars) or not self.bars[bar]:
            return None
        first, *others = self.bars[bar]
        later = others and position >= second_half(grammar.bar_length)
        chord = others[0].chord if later else first.chord
        if chord is None:
            return None
        return _against(grammar.families, chord, position % STEPS_PER_BEAT == 0).copy()

    def advance(self, token: int, grammar: RemiGrammar) -> Harmony:
        """See `Bias.advance`."""
        del token, grammar
        return self


def second_half(length: int) -> int:
    """Grid step at which the second chord of a bar of this length begins."""
    unit = BAR_UNIT if length % STEPS_PER_BEAT else STEPS_PER_BEAT
    return -(-length // (2 * unit)) * unit


@lru_cache(maxsize=256)
def _against(families: Families, chord: Chord, on_beat: bool) -> NDArray[np.float64]:
    pitches = np.arange(NUM_PITCHES)
    above = (pitches - chord.root) % 12
    bias = np.where(np.isin(above, CHORD_INTERVALS[chord.quality]), 0.0, -1.0)
    bias *= ON_BEAT if on_beat else OFF_BEAT
    bass = chord.root if chord.bass is None else chord.bass
    is_bass = np.isin((pitches - bass) % 12, (0, 7))
    bias[(pitches < LOW) & ~is_bass] -= NOT_BASS
    biases = np.zeros(families.size)
    biases[families.pitch : families.drum] = bias
    biases.setflags(write=False)
    return biases
