"""A bias that keeps new tracks in the range of their instruments, and basses at the bottom."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import DRUMS, NUM_PARTS, NUM_PITCHES, PROGRAM_ORDER, Families

OUTSIDE_RANGE = 4.0
"""Bias against pitches outside the range, which become e^4 times less likely."""
OCTAVE, FAR = 12, 5.0
"""Semitones by which a track may leave what it has played, and factor of the bias beyond that."""

BASSES = frozenset([*range(32, 40), 43])
"""Programs of basses, which should not rise above the lowest given note of a bar."""
LEAST_ROOM = 12
"""A bass keeps a range of at least this many semitones, however low the given notes are."""

_BASS, _WIDE = (28, 55), (28, 96)
_RANGES = (
    # pianos
    *[(21, 108)] * 6, (41, 89), (36, 96),
    # celesta, glockenspiel, music box, vibraphone, marimba, xylophone, tubular bells, dulcimer
    (60, 108), (72, 108), (60, 84), (53, 89), (43, 96), (65, 96), (60, 77), (60, 84),
    # organs, accordions, harmonica
    *[(24, 96)] * 3, (21, 108), (36, 96), (41, 89), (60, 84), (41, 89),
    # guitars
    *[(40, 84)] * 8,
    # basses
    *[_BASS] * 8,
    # violin, viola, cello, double bass, tremolo, pizzicato, harp, timpani
    (55, 96), (48, 84), (36, 72), _BASS, _WIDE, _WIDE, (23, 103), (36, 57),
    # ensembles, voices, orchestra hit
    *[_WIDE] * 2, *[(36, 96)] * 2, (48, 79), (48, 79), (48, 84), (48, 72),
    # trumpet, trombone, tuba, muted trumpet, horn, sections
    (52, 94), (34, 75), (29, 55), (58, 82), (41, 77), *[(36, 96)] * 3,
    # saxophones, oboe, English horn, bassoon, clarinet
    (54, 87), (49, 80), (42, 75), (37, 68), (58, 91), (52, 81), (34, 72), (50, 91),
    # piccolo, flute, recorder, pan flute, bottle, shakuhachi, whistle, ocarina
    (74, 108), *[(60, 96)] * 4, (55, 84), (60, 96), (60, 84),
    # leads, pads, effects
    *[(21, 108)] * 7, (21, 108), *[(36, 96)] * 16,
    # sitar, banjo, shamisen, koto, kalimba, bagpipe, fiddle, shanai
    (48, 77), (48, 84), (50, 79), (55, 84), (48, 79), (36, 77), (55, 96), (48, 72),
    # percussive, noises
    *[(0, 127)] * 16,
)  # fmt: skip
"""Lowest and highest pitch of each General MIDI program.

About the ranges that General MIDI 2 recommends, some of them wider.
"""


class Register(NamedTuple):
    """Makes pitches outside the ranges of instruments less likely, in some tracks.

    The range of a bass ends at the lowest given note of the bar.
    """

    ranks: frozenset[int]
    """Ranks of the tracks; drums have no range."""
    heard: Mapping[int, tuple[int, int]] = MappingProxyType({})
    """By rank: lowest and highest pitch so far, beyond which a track goes by an octave at most."""

    @classmethod
    def of(
        cls, ranks: Collection[int], heard: Mapping[int, tuple[int, int]] | None = None
    ) -> Register:
        """Return the bias for the tracks with these ranks."""
        return cls(frozenset(ranks), heard or MappingProxyType({}))

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del limit
        if grammar.track not in self.ranks:
            return None
        program = PROGRAM_ORDER[grammar.track // NUM_PARTS]
        if program == DRUMS:
            return None
        lowest, highest = instrument_range(program)
        if program in BASSES:
            highest = max(min(highest, _lowest_given(grammar)), lowest + LEAST_ROOM)
        bias = _outside(grammar.families, lowest, highest).copy()
        if grammar.track in self.heard:
            low, high = self.heard[grammar.track]
            bias += FAR * _outside(grammar.families, low - OCTAVE, high + OCTAVE)
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Register:
        """See `Bias.advance`."""
        del token, grammar
        return self


def instrument_range(program: int) -> tuple[int, int]:
    """Return the lowest and highest pitch of a General MIDI program."""
    return _RANGES[program]


def _lowest_given(grammar: RemiGrammar) -> int:
    """Return the lowest pitch that is given in the present bar; a large number if there is none."""
    bar, families = grammar.rules.bars.get(grammar.bar), grammar.families
    pitches = [
        token - families.pitch
        for token in (bar and bar.given) or ()
        if families.pitch <= token < families.drum
    ]
    return min(pitches, default=NUM_PITCHES)


@lru_cache(maxsize=1024)
def _outside(families: Families, lowest: int, highest: int) -> NDArray[np.float64]:
    pitches = np.arange(NUM_PITCHES)
    bias = np.zeros(families.size)
    bias[families.pitch : families.drum] = np.where(
        (pitches < lowest) | (pitches > highest), -OUTSIDE_RANGE, 0
    )
    return bias
