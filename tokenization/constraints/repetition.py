"""Bars that come back note for note: what was heard, and which token would go on with a copy.

A bar's content is what strikes in it: positions, tracks and pitches, without velocities, durations,
tempo and metre. A bar is a copy where it has the content of an earlier one and the bar before has
that of the bar before then: what repeats is a pair of bars, and a phrase of more bars pair by pair.
So a bar may come back anywhere else, and loops of any length are noticed once they come round.

A bar that is played again and again (an ostinato) is left alone until it was heard four times in a
row, a phrase as they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, Families

if TYPE_CHECKING:
    from collections.abc import Iterable

OSTINATO_BARS = 4
"""How often in a row a bar may be heard before it counts as a copy of itself."""


class _Step(NamedTuple):
    """A token of a bar's content, and those before it."""

    before: _Step | None
    content: int
    """Content of the bar up to it, hashed."""
    token: int


class _Heard:
    """Which tokens went on from what, in the order in which bars ended.

    It only grows, and the rules of a row share it: each reads what was there when it was made.
    Where a second rule goes on from the same place, as variations do, it takes a copy.
    """

    def __init__(self) -> None:
        self.bars = 0
        self.tokens: dict[int, dict[int, list[int]]] = {}
        """By what stands before: the tokens that followed, and numbers of their bars, rising."""

    def with_bar(self, number: int, last: int, step: _Step | None) -> _Heard:
        """With one more bar after the first `number`, by its last step and the bar before it."""
        heard = self if self.bars == number else self._until(number)
        heard.bars += 1
        while step is not None:
            following = heard.tokens.setdefault(hash((last, step.content)), {})
            following.setdefault(step.token, []).append(number)
            step = step.before
        return heard

    def _until(self, number: int) -> _Heard:
        copy = _Heard()
        copy.bars = number
        for before, following in self.tokens.items():
            for token, bars in following.items():
                if early := [bar for bar in bars if bar < number]:
                    copy.tokens.setdefault(before, {})[token] = early
        return copy


class Repetition(NamedTuple):
    """How far the bar that is being written is a copy; immutable, constant work for each token."""

    families: Families
    heard: _Heard
    number: int = 0
    """Bars that have ended."""
    last: int = 0
    """Content of the bar before, hashed; 0 where it has no notes."""
    times: int = 1
    """How often in a row it was heard."""
    content: int = 0
    """Content of this bar so far, hashed."""
    step: _Step | None = None
    """The last of this bar."""

    @classmethod
    def after(cls, families: Families, tokens: Iterable[int]) -> Repetition:
        """What is known after some tokens."""
        repetition = cls(families, _Heard())
        for token in tokens:
            repetition = repetition.advance(token)
        return repetition

    @property
    def copies(self) -> list[tuple[int, int]]:
        """Tokens that would go on with a copy, and how often it was heard so far."""
        following = self.heard.tokens.get(hash((self.last, self.content)))
        if not self.last or not following:
            return []
        counted = ((token, _number_below(bars, self.number)) for token, bars in following.items())
        return [(token, times) for token, times in counted if times]

    def advance(self, token: int) -> Repetition:
        """The same after one more token."""
        if token == BAR:
            return self._next_bar()
        families, position = self.families, POSITION <= token < TEMPO
        if not position and not families.program <= token < families.velocity:
            return self
        so_far = self._without_empty_position() if position else self
        return so_far._replace(
            content=hash((so_far.content, token)),
            step=_Step(so_far.step, so_far.content, token),
        )

    def _without_empty_position(self) -> Repetition:
        """Without a last Position at which there is nothing but a tempo."""
        step = self.step
        if step is None or not POSITION <= step.token < TEMPO:
            return self
        return self._replace(content=step.content, step=step.before)

    def _next_bar(self) -> Repetition:
        bar = self._without_empty_position()
        times = self.times + 1 if bar.content == self.last else 1
        counts = times == 1 or times >= OSTINATO_BARS
        return self._replace(
            heard=self.heard.with_bar(self.number, self.last, bar.step if counts else None),
            number=self.number + 1,
            last=bar.content,
            times=times,
            content=0,
            step=None,
        )


def _number_below(bars: list[int], number: int) -> int:
    """How many of rising numbers are below one; a row asks for all of them."""
    count = len(bars)
    while count and bars[count - 1] >= number:
        count -= 1
    return count
