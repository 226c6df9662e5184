"""What a prompt played: a cache of it, so that a groove goes on.

A small model knows many styles and forgets which one it plays. A cache of what was heard (Kuhn &
De Mori, 1990; Grave, Joulin & Usunier, 2017) makes likelier what followed in the prompt where the
same stood: at the same place of a bar, after the same notes there and those at the position
before, which may lie in the bar before, so that chords follow each other as they did; else after
the same notes there; else after the same note of the instrument; else in the instrument. New bars
are not heard: music that listened to itself would settle on one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.vocabulary import BAR, POSITION, TEMPO, Families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GAIN = 5.0
"""Bias of a token that always followed, and very often."""
SHARES = (1.5, 1.0, 0.8, 0.4)
"""Of the bias, by how much of what stands before is the same, from most to least."""
_BAR, _POSITION, _PROGRAM, _PITCH, _VELOCITY, _DURATION, _OTHER = range(7)


class _Place(NamedTuple):
    """What stands before a token."""

    position: int = -1
    """Id of the last Position in the bar; -1 before any."""
    program: int = -1
    """Id of the last Program or Part there."""
    pitch: int = -1
    """Id of the last Pitch or Drum of that."""
    kind: int = _OTHER
    """Of the token right before."""
    notes: tuple[int, ...] = ()
    """Ids of all Programs, Parts, Pitches and Drums at the position."""
    before: tuple[int, ...] = ()
    """Position and notes of the position before, in whatever bar."""

    def after(self, token: int, families: Families) -> _Place:
        """The place behind a token."""
        if token == BAR:
            return _Place(kind=_BAR, before=self._left)
        if POSITION <= token < TEMPO:
            return _Place(token, kind=_POSITION, before=self._left)
        if families.program <= token < families.pitch:
            notes = (*self.notes, token)
            return self._replace(program=token, pitch=-1, kind=_PROGRAM, notes=notes)
        if families.pitch <= token < families.velocity:
            return self._replace(pitch=token, kind=_PITCH, notes=(*self.notes, token))
        if token < families.program:
            return self._replace(kind=_OTHER)
        return self._replace(kind=_VELOCITY if token < families.duration else _DURATION)

    @property
    def _left(self) -> tuple[int, ...]:
        """What is `before` at the next position."""
        return (self.position, *self.notes) if self.notes else self.before

    @property
    def contexts(self) -> tuple[tuple[int, ...], ...]:
        """From most to least of it, one for each of `SHARES`."""
        return (
            (0, self.position, self.kind, *self.notes, -1, *self.before),
            (1, self.position, self.kind, *self.notes),
            (2, self.position, self.kind, self.program, self.pitch),
            (3, self.position, self.kind, self.program),
        )


class Recall(NamedTuple):
    """What followed in a prompt where the same stood; immutable. Made by `after`."""

    families: Families
    followed: dict[tuple[int, ...], NDArray[np.float64]]
    """By context the bias (v,) of what follows; never changed."""
    place: _Place

    @classmethod
    def after(
        cls,
        families: Families,
        ids: Sequence[int] | NDArray[np.integer],
        strength: float = 1.0,
    ) -> Recall:
        """That of a prompt, behind its last id."""
        counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        place = _Place()
        for token in np.asarray(ids, np.int64).tolist():
            for context in place.contexts:
                counts[context][token] += 1
            place = place.after(token, families)
        followed: dict[tuple[int, ...], NDArray[np.float64]] = {}
        for context, tokens in counts.items():
            bias = np.zeros(families.size)
            # one that was there once is less sure than one that always was
            scale = strength * GAIN * SHARES[context[0]] / (tokens.total() + 1)
            bias[list(tokens)] = scale * np.fromiter(tokens.values(), float)
            bias.setflags(write=False)
            followed[context] = bias
        return cls(families, followed, place)

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,), read-only; None where nothing like it stood."""
        for context in self.place.contexts:
            if (bias := self.followed.get(context)) is not None:
                return bias
        return None

    def advance(self, token: int) -> Recall:
        """That after `token`."""
        return self._replace(place=self.place.after(token, self.families))
