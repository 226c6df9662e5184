"""A bias that keeps new music close to the prompt, by a cache of the prompt.

A small model can play many styles, but loses the style of the prompt. A cache (Kuhn & De Mori,
1990; Grave, Joulin & Usunier, 2017) makes tokens more likely that followed the same context in the
prompt. There are two such biases: one for contexts anywhere in the prompt, which keeps sounds and
patterns, and one for contexts in the same bar of its phrase, which brings chords and fills back in
order, as if the new music repeated the phrase of the prompt. New bars are not added to the cache,
since music that imitates itself would end up repeating one bar.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, Families

GAIN = 5.0
"""Bias, before the factors below, of a token that always follows a frequent context."""
ANYWHERE = (0.42, 0.33, 0.28, 0.18)
"""Shares of the bias, by how much of the context matches somewhere in the prompt."""
IN_PHRASE = (1.14, 0.78, 0.42)
"""Shares of the bias, by how much of the context matches in the same bar of the phrase."""
MANNER = 2.0
"""Factor for velocities and durations, since repeating these does not sound like a copy."""
HEARD = 32
"""Number of bars at the end of the prompt that are cached; more bars do not improve the music."""
SHORTEST_PHRASE, LONGEST_PHRASE = 4, 16
"""Minimum and maximum length of a phrase in bars, if the prompt is long enough."""
FEWEST_REPEATS, SAME = 4, 0.9
"""Bars needed to decide whether a phrase repeats, and similarity from which it clearly does."""
_BAR, _POSITION, _PROGRAM, _PITCH, _VELOCITY, _DURATION = range(6)

_Context: TypeAlias = tuple[int, ...]
"""Index of its share of the bias, and the ids that match."""


class _Place(NamedTuple):
    """The context of a token."""

    bar: int = -1
    """Index of the bar in the prompt and the music after it, from 0."""
    position: int = -1
    """Id of the last Position in the bar; -1 before any."""
    track: tuple[int, ...] = ()
    """Ids of the last Program at the position, and of the Part that follows it."""
    pitch: int = -1
    """Id of the last Pitch or Drum of that track."""
    kind: int = -1
    """Kind of the preceding token; -1 before any."""
    notes: tuple[int, ...] = ()
    """Ids of all Programs, Parts, Pitches and Drums at the position."""
    before: tuple[int, ...] = ()
    """Position and notes of the previous position, in this bar or an earlier one."""

    def after(self, token: int, families: Families) -> _Place:
        """Return the context after a token."""
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
        # ignored: tempo, metre, BOS, EOS, plans
        if token < families.program or token >= families.return_:
            return self
        ends = families.duration <= token < families.drum_velocity
        return self._replace(kind=_DURATION if ends else _VELOCITY)

    @property
    def _left(self) -> tuple[int, ...]:
        """`before` at the next position."""
        return (self.position, *self.notes) if self.notes else self.before

    def contexts(self, phrase: int) -> tuple[tuple[_Context, ...], tuple[_Context, ...]]:
        """Return contexts to look up anywhere or in a phrase of `phrase` bars, specific ones first.

        Anywhere, these are: the same notes at this position and the previous one (which may be in
        an earlier bar); the same notes at this position; the same note of the instrument; the
        instrument. In the phrase, they are the last three of these.
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
    """How often each id followed each context; never changes."""
    phrase: int
    """Bars."""
    place: _Place
    strength: float = 1.0
    """Factor of the bias."""
    begin: _Place = _Place()
    """The context at the beginning of the bar."""

    @classmethod
    def after(
        cls,
        families: Families,
        ids: Sequence[int] | NDArray[np.integer],
        strength: float = 1.0,
        ranks: Collection[int] | None = None,
    ) -> Recall:
        """Return the bias after a prompt; a last bar without notes is the first new bar.

        `ranks` are those of the tracks that are written beside given ones. Their notes follow those
        of all given tracks, unlike in the prompt, so the cache has no others.
        """
        tokens = np.array(ids if ranks is None else _of_tracks(ids, families, ranks), np.int64)
        bars = np.flatnonzero(tokens == BAR)
        last = tokens[bars[-1] :] if len(bars) else tokens
        if len(bars) and not ((last >= families.pitch) & (last < families.velocity)).any():
            bars, opening = bars[:-1], int(bars[-1])
        else:
            opening = len(tokens)
        first = int(bars[-HEARD]) if len(bars) > HEARD else 0
        place = begin = _Place()
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
            if token == BAR:
                begin = place
        phrase = phrase_bars(notes[: min(len(bars), HEARD)])
        followed: dict[_Context, dict[int, int]] = {}
        for before, token in heard:
            for contexts in before.contexts(phrase):
                for context in contexts:
                    counts = followed.setdefault(context, {})
                    counts[token] = counts.get(token, 0) + 1
        return cls(families, followed, phrase, place, strength, begin)

    def logits(
        self, grammar: RemiGrammar | None = None, limit: BarLimit | None = None
    ) -> NDArray[np.float64] | None:
        """See `Bias.logits`; None if the context does not occur in the prompt."""
        del grammar, limit
        bias = None
        for contexts in self.place.contexts(self.phrase):
            context = next((one for one in contexts if one in self.followed), None)
            if context is None:
                continue
            counts = self.followed[context]
            if bias is None:
                bias = np.zeros(self.families.size)
            # a context that occurred once is weaker evidence than one that occurred often
            share = (ANYWHERE + IN_PHRASE)[context[0]] / (sum(counts.values()) + 1)
            if self.place.kind in (_PITCH, _VELOCITY):
                share *= MANNER
            for token, times in counts.items():
                bias[token] += self.strength * GAIN * share * times
        return bias

    def advance(self, token: int, grammar: RemiGrammar | None = None) -> Recall:
        """See `Bias.advance`."""
        del grammar
        if token == self.families.write:  # what came before it is given
            return self._replace(place=self.begin)
        place = self.place.after(token, self.families)
        if token == BAR:
            return self._replace(place=place, begin=place)
        return self._replace(place=place)


def _of_tracks(
    ids: Sequence[int] | NDArray[np.integer], families: Families, ranks: Collection[int]
) -> list[int]:
    """Return ids without notes of other tracks, and without positions that then have none."""
    kept: list[int] = []
    position: list[int] = []
    track: list[int] = []
    rank = -1
    for token in map(int, ids):
        if POSITION <= token < TEMPO:
            position = [token]
        elif families.program <= token < families.part:
            track, rank = [token], int(families.values[token])
        elif families.part <= token < families.pitch:
            track, rank = [*track, token], rank + int(families.values[token])
        elif not families.pitch <= token < families.return_:
            kept.append(token)
        elif rank in ranks:  # a track is named once for all its notes at a position
            kept += [*position, *track, token]
            position, track = [], []
    return kept


def phrase_bars(notes: Sequence[set[tuple[int, ...]]]) -> int:
    """Return the length in bars of a prompt's phrase, from the notes of each bar; at least 1.

    The default is the length of the prompt, if it is a multiple of four and at most
    `LONGEST_PHRASE`; otherwise the largest power of two that exceeds neither the prompt nor
    `LONGEST_PHRASE`. If at least `FEWEST_REPEATS` bars follow a phrase of the default length, the
    result is the length, at least `SHORTEST_PHRASE`, at which bars are most similar to those one
    phrase earlier. If fewer bars follow, it is the largest length with a similarity of at least
    `SAME`. If there is no such length, it is the default.
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
    """Return how similar the notes of two bars are, 0 to 1 (Jaccard, 1912); 1 if both are empty."""
    return len(one & other) / len(one | other) if one or other else 1.0
