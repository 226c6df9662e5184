"""A cache of the prompt, so that a groove stays itself.

A small model knows many styles and forgets which one it plays. A cache (Kuhn & De Mori, 1990;
Grave, Joulin & Usunier, 2017) makes tokens more likely that followed the same context in the
prompt, twice: anywhere in the prompt, and in the same bar of its phrase, taking the new music to
repeat the prompt's phrase over and over. So sounds and patterns stay, and chords and fills come
back in order. New bars do not enter the cache: music that imitated itself would settle on one bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, Families

GAIN = 5.0
"""Bias of a token that always followed its context, and very often."""
ANYWHERE = (0.42, 0.33, 0.28, 0.18)
"""Shares of the bias, by how much of the context matches somewhere in the prompt."""
IN_PHRASE = (1.14, 0.78, 0.42)
"""Shares of the bias, by how much of the context matches in the same bar of the phrase."""
MANNER = 2.0
"""Factor for velocity and duration: a manner of playing, which is not heard as a copy."""
HEARD = 32
"""Bars at the end of the prompt that enter the cache; more would make it larger, not better."""
SHORTEST_PHRASE, LONGEST_PHRASE = 4, 16
"""Bounds of a phrase in bars, where the prompt is long enough to tell."""
FEWEST_REPEATS, SAME = 4, 0.9
"""Bars needed to tell whether a phrase repeats, and the likeness from which it plainly does."""
_BAR, _POSITION, _PROGRAM, _PITCH, _VELOCITY, _DURATION = range(6)

_Context: TypeAlias = tuple[int, ...]
"""Which of the shares it has, and what matches."""


class _Place(NamedTuple):
    """The context of a token."""

    bar: int = -1
    """Index of the bar in the prompt and the music after it, from 0."""
    position: int = -1
    """Id of the last Position in the bar; -1 before any."""
    track: tuple[int, ...] = ()
    """Id of the last Program there, and of the Part that follows it."""
    pitch: int = -1
    """Id of the last Pitch or Drum of that."""
    kind: int = -1
    """Of the preceding token; -1 before any."""
    notes: tuple[int, ...] = ()
    """Ids of all Programs, Parts, Pitches and Drums at the position."""
    before: tuple[int, ...] = ()
    """Position and notes of the previous position, in this bar or an earlier one."""

    def after(self, token: int, families: Families) -> _Place:
        """The context after a token."""
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
        if token < families.program:  # tempo, metre, BOS, EOS: ignored
            return self
        return self._replace(kind=_VELOCITY if token < families.duration else _DURATION)

    @property
    def _left(self) -> tuple[int, ...]:
        """`before` at the next position."""
        return (self.position, *self.notes) if self.notes else self.before

    def contexts(self, phrase: int) -> tuple[tuple[_Context, ...], tuple[_Context, ...]]:
        """Contexts to look up anywhere and in a phrase of `phrase` bars, most specific first.

        Anywhere: the same notes at this position and the previous one, which may be in the bar
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
    """A bias towards tokens that followed the same context in the prompt."""

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
        """The bias after a prompt; a last bar without notes begins the new music."""
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

    def logits(
        self, grammar: RemiGrammar | None = None, limit: BarLimit | None = None
    ) -> NDArray[np.float64] | None:
        """See `Bias.logits`; None where the prompt has no such context."""
        del grammar, limit
        bias = None
        for contexts in self.place.contexts(self.phrase):
            context = next((one for one in contexts if one in self.followed), None)
            if context is None:
                continue
            found = self.followed[context]
            if bias is None:
                bias = np.zeros(self.families.size)
            # seen once is less certain than seen always
            share = (ANYWHERE + IN_PHRASE)[context[0]] / (sum(found.values()) + 1)
            if self.place.kind in (_PITCH, _VELOCITY):
                share *= MANNER
            for token, times in found.items():
                bias[token] += self.strength * GAIN * share * times
        return bias

    def advance(self, token: int, grammar: RemiGrammar | None = None) -> Recall:
        """See `Bias.advance`."""
        del grammar
        return self._replace(place=self.place.after(token, self.families))


def phrase_bars(notes: Sequence[set[tuple[int, ...]]]) -> int:
    """Length in bars of a prompt's phrase, from the notes of each of its bars; at least 1.

    By the prompt's length alone: all bars if that is a multiple of four and at most
    `LONGEST_PHRASE`; else the greatest power of two that exceeds neither. If enough bars follow
    such a phrase to tell whether it repeats, the phrase of four bars or more that repeats best; if
    too few do, the longest that plainly repeats, if there is one.
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
    """Share of the notes of two bars that both have, 0 to 1 (Jaccard, 1912); 1 if both empty."""
    return len(one & other) / len(one | other) if one or other else 1.0
