"""What a prompt played: a cache of it, so that a groove goes on.

A small model knows many styles and forgets which one it plays. A cache of what was heard (Kuhn &
De Mori, 1990; Grave, Joulin & Usunier, 2017) makes likelier what followed in the prompt where the
same stood, twice over: anywhere in the prompt, and in the same bar of its phrase, as far as the
new music goes on with the prompt's phrase again and again. So sounds and patterns stay, and chords
and fills come back in their order. New bars are not heard: music that listened to itself would
settle on one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, Families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GAIN = 5.0
"""Bias of a token that always followed, and very often."""
ANYWHERE = (0.42, 0.33, 0.28, 0.18)
"""Of the bias, by how much of what stands before is the same as somewhere in the prompt."""
IN_PHRASE = (1.14, 0.78, 0.42)
"""Of the bias, by how much of it is the same as in the same bar of the phrase."""
MANNER = 2.0
"""Factor for loudness and length, which are a manner of playing: nobody hears them as a copy."""
HEARD = 32
"""Bars at the end of a prompt that count: of longer ones the cache would grow and say no more."""
SHORTEST_PHRASE, LONGEST_PHRASE = 4, 16
"""Bars, where enough of them are heard to tell."""
FEWEST_REPEATS, SAME = 4, 0.9
"""Bars that tell how like a phrase comes again, and how like they are if that is plain."""
_BAR, _POSITION, _PROGRAM, _PITCH, _VELOCITY, _DURATION = range(6)

_Context: TypeAlias = tuple[int, ...]
"""Which of the shares it has, and what is the same."""


class _Place(NamedTuple):
    """What stands before a token."""

    bar: int = -1
    """Number of the bar in the prompt and what follows it, from 0."""
    position: int = -1
    """Id of the last Position in the bar; -1 before any."""
    track: tuple[int, ...] = ()
    """Id of the last Program there, and of the Part that follows it."""
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
            track = (token,) if token < families.part else (*self.track, token)
            notes = (*self.notes, token)
            return self._replace(track=track, pitch=-1, kind=_PROGRAM, notes=notes)
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
            (2, *here, self.pitch, *self.track),
            (3, *here, *self.track),
        )
        in_phrase = (
            (4, bar, *here, *self.notes),
            (5, bar, *here, self.pitch, *self.track),
            (6, bar, *here, *self.track),
        )
        return anywhere, in_phrase


class Recall(NamedTuple):
    """What followed in a prompt where the same stood; immutable. Made by `after`."""

    families: Families
    followed: dict[_Context, dict[int, int]]
    """How often each id followed; never changed."""
    phrase: int
    """Bars."""
    place: _Place
    strength: float = 1.0
    """Factor of the bias."""

    @classmethod
    def after(
        cls,
        families: Families,
        ids: Sequence[int] | NDArray[np.integer],
        strength: float = 1.0,
    ) -> Recall:
        """That of a prompt, behind its last id: a last bar without notes begins the new music."""
        tokens = np.asarray(ids, np.int64)
        bars = np.flatnonzero(tokens == BAR)
        if len(bars) and not (tokens[bars[-1] :] >= families.pitch).any():
            bars, opening = bars[:-1], int(bars[-1])
        else:
            opening = len(tokens)
        first = int(bars[-HEARD]) if len(bars) > HEARD else 0
        place = _Place()
        heard: list[tuple[_Place, int]] = []
        notes: list[set[tuple[int, ...]]] = []
        for at, token in enumerate(tokens.tolist()):
            after = place.after(token, families)
            if after is not place and first <= at <= opening:
                heard.append((place, token))
                if token == BAR:
                    notes.append(set())
                elif after.kind == _PITCH and notes:
                    notes[-1].add((after.position, *after.track, token))
            place = after
        phrase = phrase_bars(notes[: min(len(bars), HEARD)])
        followed: dict[_Context, dict[int, int]] = {}
        for before, token in heard:
            for contexts in before.contexts(phrase):
                for context in contexts:
                    found = followed.setdefault(context, {})
                    found[token] = found.get(token, 0) + 1
        return cls(families, followed, phrase, place, strength)

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,); None where nothing like it stood."""
        bias = None
        for contexts in self.place.contexts(self.phrase):
            context = next((one for one in contexts if one in self.followed), None)
            if context is None:
                continue
            found = self.followed[context]
            if bias is None:
                bias = np.zeros(self.families.size)
            # one that was there once is less sure than one that always was
            share = (ANYWHERE + IN_PHRASE)[context[0]] / (sum(found.values()) + 1)
            if self.place.kind in (_PITCH, _VELOCITY):
                share *= MANNER
            for token, times in found.items():
                bias[token] += self.strength * GAIN * share * times
        return bias

    def advance(self, token: int) -> Recall:
        """That after `token`."""
        return self._replace(place=self.place.after(token, self.families))


def phrase_bars(notes: Sequence[set[tuple[int, ...]]]) -> int:
    """Bars of the phrase of a prompt, from the notes of each of its bars; at least 1.

    By its length alone: all bars if they are a multiple of four and at most `LONGEST_PHRASE`; else
    the greatest power of two that is not more than either. If enough bars follow such a phrase to
    hear whether it comes again, the phrase of four bars or more that does so most; if too few do,
    the longest that plainly comes again, if there is one.
    """
    count = len(notes)
    likeness = {
        lag: float(np.mean([_likeness(*pair) for pair in zip(notes, notes[lag:], strict=False)]))
        for lag in range(1, min(LONGEST_PHRASE, count - FEWEST_REPEATS) + 1)
    }
    length = 1 << (min(max(count, 1), LONGEST_PHRASE).bit_length() - 1)
    if count % 4 == 0 and 0 < count <= LONGEST_PHRASE:
        length = count
    if length in likeness:
        heard = [lag for lag in likeness if lag >= SHORTEST_PHRASE]
        return max(heard, key=lambda lag: (likeness[lag], lag), default=length)
    return max((lag for lag, like in likeness.items() if like >= SAME), default=length)


def _likeness(one: set[tuple[int, ...]], other: set[tuple[int, ...]]) -> float:
    """Share of the notes of two bars that both have, 0 to 1 (Jaccard, 1912); 1 where none has."""
    return len(one & other) / len(one | other) if one or other else 1.0
