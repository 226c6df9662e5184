"""A bias against bars that repeat note for note.

The content of a bar is its onsets: positions, tracks and pitches, without velocities, durations,
tempo and metre. A bar is a copy if its content equals that of an earlier bar, and the bars before
these two are equal too. So a single bar may return in another context, while loops of any length
are detected when they start over.

A bar that is repeated immediately (an ostinato) is not a copy until it has occurred four times in a
row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, Families

OSTINATO_BARS = 4
"""How often in a row a bar may occur before it counts as a copy of itself."""
MOST = 16.0
"""Maximum bias, which is multiplied by the strength."""


class _Step(NamedTuple):
    """A token of the content of a bar, linked to the tokens before it."""

    before: _Step | None
    content: int
    """Hash of the bar's content up to this token."""
    token: int


class _Heard:
    """Which tokens followed which contexts, in the order in which bars ended.

    Entries are only added, so all states of a row share one object, and each state reads only the
    entries that existed when it was created. A second state that continues from the same place, as
    for variations, makes a copy.
    """

    def __init__(self) -> None:
        self.bars = 0
        self.tokens: dict[int, dict[int, list[int]]] = {}
        """By context: the tokens that followed it, and the indices of their bars, ascending."""

    def with_bar(self, number: int, last: int, step: _Step | None) -> _Heard:
        """Add one more bar after the first `number`, given its last step and the previous bar."""
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
    """A bias against tokens that would continue a copy of earlier bars; constant work per token.

    A token that would continue a copy has a bias of -strength times half the square of how often
    the copied bars have occurred, down to -16 times the strength.
    """

    families: Families
    heard: _Heard
    strength: float = 1.0
    number: int = 0
    """Number of bars that have ended."""
    last: int = 0
    """Hash of the previous bar's content; 0 if it has no notes."""
    times: int = 1
    """How often in a row the previous bar has occurred."""
    content: int = 0
    """Hash of this bar's content so far."""
    step: _Step | None = None
    """The last step of this bar."""

    @classmethod
    def after(cls, families: Families, tokens: Iterable[int], strength: float = 1.0) -> Repetition:
        """Return the bias after some tokens, whose bars also count as earlier bars."""
        repetition = cls(families, _Heard(), strength)
        for token in tokens:
            repetition = repetition.advance(token)
        return repetition

    @property
    def copies(self) -> list[tuple[int, int]]:
        """Tokens that would continue a copy, and how often the copied bars have occurred."""
        following = self.heard.tokens.get(hash((self.last, self.content)))
        if not self.last or not following:
            return []
        counted = ((token, _number_below(bars, self.number)) for token, bars in following.items())
        return [(token, times) for token, times in counted if times]

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del grammar, limit
        if not (copies := self.copies):
            return None
        bias = np.zeros(self.families.size)
        for token, times in copies:
            bias[token] = -self.strength * min(times**2 / 2, MOST)
        return bias

    def advance(self, token: int, grammar: RemiGrammar | None = None) -> Repetition:
        """See `Bias.advance`."""
        del grammar
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
        """Return the same without a last Position that has no notes."""
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
    """Return how many of the ascending numbers are below `number`; usually all."""
    count = len(bars)
    while count and bars[count - 1] >= number:
        count -= 1
    return count
