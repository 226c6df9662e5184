"""What a prompt played: a cache of it, so that a groove goes on.

A small model knows many styles and forgets which one it plays. A cache of what was heard (Kuhn &
De Mori, 1990; Grave, Joulin & Usunier, 2017) makes likelier what followed in the prompt where the
same stood, twice over: anywhere in the prompt, and in the same bar of its phrase, as far as the
new music goes on with the prompt's phrase again and again. So sounds and patterns stay, and chords
and fills come back in their order. New bars are not heard: music that listened to itself would
settle on one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tokenization.vocabulary import BAR, POSITION, TEMPO, Families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GAIN = 5.0
"""Bias of a token that always followed, and very often."""
ANYWHERE = (1.0, 0.8, 0.6, 0.3)
"""Of the bias, by how much of what stands before is the same as somewhere in the prompt."""
IN_PHRASE = (1.3, 0.9, 0.5)
"""Of the bias, by how much of it is the same as in the same bar of the phrase."""
LONGEST_PHRASE = 16
"""Bars."""
_BAR, _POSITION, _PROGRAM, _PITCH, _VELOCITY, _DURATION = range(6)

_Context: TypeAlias = tuple[int, ...]
"""Which of the shares it has, and what is the same."""


class _Place(NamedTuple):
    """What stands before a token."""

    bar: int = -1
    """Number of the bar in the prompt and what follows it, from 0."""
    position: int = -1
    """Id of the last Position in the bar; -1 before any."""
    program: int = -1
    """Id of the last Program or Part there."""
    pitch: int = -1
    """Id of the last Pitch or Drum of that."""
    kind: int = -1
    """Of the token right before; -1 before any."""
    notes: tuple[int, ...] = ()
    """Ids of all Programs, Parts, Pitches and Drums at the position."""
    before: tuple[int, ...] = ()
    """Position and notes of the position before, in whatever bar."""

    def after(self, token: int, families: Families) -> _Place:
        """The place behind a token."""
        if token == BAR:
            return _Place(self.bar + 1, kind=_BAR, before=self._left)
        if POSITION <= token < TEMPO:
            return _Place(self.bar, token, kind=_POSITION, before=self._left)
        if families.program <= token < families.pitch:
            notes = (*self.notes, token)
            return self._replace(program=token, pitch=-1, kind=_PROGRAM, notes=notes)
        if families.pitch <= token < families.velocity:
            return self._replace(pitch=token, kind=_PITCH, notes=(*self.notes, token))
        if token < families.program:  # tempo, metre, beginning, end: as if not there
            return self
        return self._replace(kind=_VELOCITY if token < families.duration else _DURATION)

    @property
    def _left(self) -> tuple[int, ...]:
        """What is `before` at the next position."""
        return (self.position, *self.notes) if self.notes else self.before

    def contexts(self, phrase: int) -> tuple[tuple[_Context, ...], tuple[_Context, ...]]:
        """Those anywhere and those in a phrase of so many bars, each from most to least the same.

        Anywhere: the same notes at the position and at that before, which may lie in the bar
        before; else the same notes at the position; else the same note of the instrument; else the
        instrument. In the phrase: the last three of these.
        """
        bar, here = self.bar % phrase, (self.position, self.kind)
        anywhere = (
            (0, *here, *self.notes, -1, *self.before),
            (1, *here, *self.notes),
            (2, *here, self.program, self.pitch),
            (3, *here, self.program),
        )
        in_phrase = (
            (4, bar, *here, *self.notes),
            (5, bar, *here, self.program, self.pitch),
            (6, bar, *here, self.program),
        )
        return anywhere, in_phrase


class Recall(NamedTuple):
    """What followed in a prompt where the same stood; immutable. Made by `after`."""

    families: Families
    followed: dict[_Context, tuple[NDArray[np.int64], NDArray[np.float64]]]
    """Ids of what followed and the bias of each; never changed."""
    phrase: int
    """Bars."""
    place: _Place

    @classmethod
    def after(
        cls,
        families: Families,
        ids: Sequence[int] | NDArray[np.integer],
        strength: float = 1.0,
    ) -> Recall:
        """That of a prompt, behind its last id."""
        tokens = np.asarray(ids, np.int64).tolist()
        phrase = phrase_bars(tokens[:-1].count(BAR))  # a last Bar begins the new music
        counts: defaultdict[_Context, Counter[int]] = defaultdict(Counter)
        place = _Place()
        for token in tokens:
            after = place.after(token, families)
            for contexts in place.contexts(phrase) if after is not place else ():
                for context in contexts:
                    counts[context][token] += 1
            place = after
        followed = {}
        for context, found in counts.items():
            # one that was there once is less sure than one that always was
            scale = strength * GAIN * (ANYWHERE + IN_PHRASE)[context[0]] / (found.total() + 1)
            bias = scale * np.fromiter(found.values(), float)
            followed[context] = (np.fromiter(found, np.int64), bias)
        return cls(families, followed, phrase, place)

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,); None where nothing like it stood."""
        found = [
            next((self.followed[one] for one in contexts if one in self.followed), None)
            for contexts in self.place.contexts(self.phrase)
        ]
        if found == [None, None]:
            return None
        bias = np.zeros(self.families.size)
        for one in found:
            if one is not None:
                bias[one[0]] += one[1]
        return bias

    def advance(self, token: int) -> Recall:
        """That after `token`."""
        return self._replace(place=self.place.after(token, self.families))


def phrase_bars(num_bars: int) -> int:
    """Bars of the phrase of a prompt that has so many.

    All of them if they are a multiple of four and at most `LONGEST_PHRASE`; else the greatest power
    of two that is not more than either.
    """
    if num_bars % 4 == 0 and 0 < num_bars <= LONGEST_PHRASE:
        return num_bars
    return 1 << (min(max(num_bars, 1), LONGEST_PHRASE).bit_length() - 1)
