"""A bias towards the notes of chords that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS
from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import STEPS_PER_BEAT, second_half
from tokenization.plan import Chord, PlannedChord
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import (
    BAR,
    DURATIONS,
    EOS,
    NUM_PITCHES,
    POSITION,
    TEMPO,
    Families,
)

ON_BEAT, OFF_BEAT = 3.0, 1.5
"""Bias against pitches outside the chord; between beats they may pass."""
LOW, NOT_BASS = 48, 1.5
"""Pitches below the first number have this further bias, except the bass and its fifth."""
HELD = 4.0
"""Bias against notes of a quarter or longer that are a semitone above a tone of the chord, or the
other third."""
MISSING, MISSING_LATE, LEAVE = 0.5, 2.0, 1.0
"""Bias towards a tone that a chord still lacks, how much it grows until the chord ends, and bias
against the next chord while the tone has not sounded."""


class Harmony(NamedTuple):
    """Makes pitches outside the chords of the new bars less likely; drums have no bias.

    Root (or bass), third and seventh of a chord become more likely until they have sounded.
    """

    bars: tuple[tuple[PlannedChord, ...], ...]
    """The chords of each new bar; a bar without chords has no bias."""
    begun: frozenset[tuple[int, int]] = frozenset()
    """Position and pitch class of each note that began in the present bar."""

    @classmethod
    def of(cls, bars: Sequence[Sequence[PlannedChord] | None]) -> Harmony:
        """Return the bias for the chords of each new bar; None repeats the last chord before it."""
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
        (chord, *others), start, stop = self.bars[bar], 0, grammar.bar_length
        if others:
            half = second_half(stop)
            chord, start, stop = (others[0], half, stop) if position >= half else (chord, 0, half)
        if chord.chord is None:
            return None
        families, first = grammar.families, grammar.families.pitch
        if grammar.allowed[families.duration]:
            if (grammar.pitch - first) % 12 not in clashes(chord.chord):
                return None
            bias = np.zeros(families.size)
            long = families.duration + int(DURATIONS.searchsorted(STEPS_PER_BEAT))
            bias[long : families.drum_velocity] = -HELD
            return bias
        bias = _against(families, chord.chord, position % STEPS_PER_BEAT == 0).copy()
        sounding = {
            (pitch - first) % 12
            for _, pitch, end in grammar.sounding
            if end > grammar.bar_start + start
        }
        sounding |= {pitch for at, pitch in self.begun if at >= start}
        if missing := _missing(chord.chord, sounding):
            late = (position - start) / max(stop - start, 1)
            for pitch in missing:
                place = first + LOW + (pitch - LOW) % 12
                bias[place : families.drum : 12] += MISSING + MISSING_LATE * late
            bias[[BAR, EOS]] -= LEAVE
            bias[POSITION + stop : TEMPO] -= LEAVE
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Harmony:
        """See `Bias.advance`."""
        families = grammar.families
        if token == BAR:
            return self._replace(begun=frozenset()) if self.begun else self
        if not families.pitch <= token < families.drum:
            return self
        begun = grammar.position, (token - families.pitch) % 12
        return self if begun in self.begun else self._replace(begun=self.begun | {begun})


@lru_cache(maxsize=256)
def clashes(chord: Chord) -> frozenset[int]:
    """Return pitch classes against a chord: a semitone above a tone of it, and the other third."""
    root, third, *others = ((chord.root + above) % 12 for above in CHORD_INTERVALS[chord.quality])
    tones = {root, third, *others, *([] if chord.bass is None else [chord.bass])}
    against = {(tone + 1) % 12 for tone in tones}
    if (third - root) % 12 in (3, 4):
        against.add((2 * root + 7 - third) % 12)
    return frozenset(against - tones)


def _missing(chord: Chord, sounding: set[int]) -> set[int]:
    """Return pitch classes that a chord lacks: third, seventh, and root unless its bass sounds."""
    root, third, _, *seventh = (
        (chord.root + above) % 12 for above in CHORD_INTERVALS[chord.quality]
    )
    needed = {third, *seventh}
    if root not in sounding and chord.bass not in sounding:
        needed.add(root)
    return needed - sounding


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
