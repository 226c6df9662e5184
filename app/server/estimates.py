"""Estimates how long jobs take, from the speeds of earlier jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from app.compose.new_bars import NewBars
from tokenization.remi.vocabulary import BAR

if TYPE_CHECKING:
    from app.compose.continuation import Result
    from app.compose.prompt.prompt import Prompt

_ROWS_POWER = 0.3
"""The speed of all rows together is about proportional to this power of their number."""
_RECENT_BARS = 16
"""New music is expected to have as many tokens per bar as the end of its prompt."""
_UNKNOWN_BAR_SECONDS = 2.0
"""Duration of a bar of the first piece from nothing, whose tempo is not known before."""


@dataclass
class Rate:
    """An amount per unit, such as tokens per second, over recent jobs; large jobs count more."""

    earlier_weight: float = 0.7
    """Weight of earlier jobs, relative to the next one."""
    amount: float = 0.0
    units: float = 0.0

    def learn(self, amount: float, units: float) -> None:
        """Add a job; does nothing without an amount, or without units."""
        if amount > 0 and units > 0:
            self.amount = self.earlier_weight * self.amount + amount
            self.units = self.earlier_weight * self.units + units

    @property
    def value(self) -> float | None:
        """The amount per unit; None before the first job."""
        return self.amount / self.units if self.units else None


@dataclass
class ModelSpeed:
    """How fast a model generates, and how many tokens its bars have."""

    _tokens: defaultdict[int, Rate] = field(default_factory=lambda: defaultdict(Rate))
    """Tokens per second of all rows together, by the number of rows."""
    _reading: Rate = field(default_factory=Rate)
    """Tokens of prompts per second."""
    _bars: Rate = field(default_factory=lambda: Rate(earlier_weight=0.9))
    """Tokens per bar of pieces from nothing, which vary more than speeds."""
    _bar_seconds: Rate = field(default_factory=lambda: Rate(earlier_weight=0.9))
    """Seconds of music per bar of pieces from nothing."""

    def learn(self, result: Result) -> None:
        """Learn from a job, which may have been stopped."""
        rows = result.rows
        self._reading.learn(result.prompt_tokens, result.reading_seconds)
        self._tokens[rows].learn(result.tokens, result.seconds - result.reading_seconds)
        if not result.prompt_tokens:
            bars = sum(piece.bars for piece in result.pieces)
            takes = rows / len(result.pieces)
            self._bars.learn(result.tokens, bars * takes)
            self._bar_seconds.learn(sum(piece.seconds for piece in result.pieces), bars)

    def reading(self, tokens: int) -> float:
        """Return the seconds to read a prompt of `tokens` tokens; 0 before the first prompt."""
        return tokens / (self._reading.value or np.inf)

    def generating(self, prompt: Prompt | None, bars: float, rows: int) -> float | None:
        """Return the seconds to generate `bars` bars in each row; None before the first job."""
        speeds = {number: rate.value for number, rate in list(self._tokens.items()) if rate.value}
        if not speeds:
            return None
        like = min(speeds, key=lambda number: (abs(number - rows), number))
        speed = speeds[like] * (rows / like) ** _ROWS_POWER
        per_bar = self._bars.value if prompt is None else tokens_per_bar(prompt)
        return None if per_bar is None else bars * rows * per_bar / speed

    def bar_seconds(self, prompt: Prompt | None) -> float:
        """Return the duration of a bar of the new music."""
        if prompt is None:
            return self._bar_seconds.value or _UNKNOWN_BAR_SECONDS
        new = NewBars.after(prompt, 1)
        begin, end = prompt.score.seconds_at(np.array([new.line(0), new.line(1)])).tolist()
        return end - begin


def tokens_per_bar(prompt: Prompt) -> float:
    """Return the number of tokens of a bar at the end of a prompt."""
    bars = min(_RECENT_BARS, prompt.bars)
    first = np.flatnonzero(prompt.ids == BAR)[prompt.bar_tokens[prompt.bars - bars]]
    return (len(prompt.ids) - int(first)) / bars
