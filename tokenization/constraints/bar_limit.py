"""The end of generated music: after a number of bars, or with the bar that completes a duration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import BAR_UNIT, STEPS_PER_BEAT
from tokenization.remi.grammar import After, RemiGrammar
from tokenization.remi.vocabulary import (
    BAR,
    DURATIONS,
    EOS,
    POSITION,
    TEMPO,
    TEMPO_GRID,
    TIME_SIGNATURE,
)

DEFAULT_BPM = 120.0
"""Tempo before any is set, as in MIDI."""
_TIMES = slice(TIME_SIGNATURE, TEMPO)


class PlannedBar(NamedTuple):
    """A bar, from one Bar token to the next, whose length is decided before it is generated."""

    length: int
    """Length in grid steps, given by its TimeSignature."""
    room: int
    """Number of its grid steps at which notes may begin; less than `length` if the notated bar ends
    between two eighth notes."""
    notated: int
    """Index, from 0, of the notated bar to which it belongs."""

    @property
    def time_signature(self) -> int:
        """Id of its TimeSignature token."""
        return TIME_SIGNATURE + self.length // BAR_UNIT - 1


class BarLimit(NamedTuple):
    """Ends the music at the Bar token that would begin a bar after the last one, or at an EOS.

    All methods take the state of the grammar before the next token.
    """

    first_bar: int
    """Number of the first new bar, as counted by the grammar."""
    last_bar: int
    """Number of the last bar; ignored if `seconds` is given."""
    planned: tuple[PlannedBar, ...] = ()
    """The new bars; empty if the model chooses their lengths."""
    seconds: float | None = None
    """Duration of the new music, in its own tempos, instead of `last_bar`: the last bar is the one
    that completes it."""
    max_tokens: int = 0
    """Maximum number of tokens of a bar, for models with little training that might never end one;
    0: no limit."""
    seconds_before: float = 0.0
    """Duration of the bars that have ended, if `seconds` is given."""
    tokens: int = 0
    """Number of tokens in the current bar so far."""
    finished: bool = False
    last: int = 0
    """Id of the Last that marks the last bar, with which the piece ends; 0: none."""
    holds_notes: bool = False
    """Whether no note may sound beyond the last bar, as in a gap; implied by a Last."""

    def notated_bar(self, grammar: RemiGrammar) -> int:
        """Return the index, from 0, of the notated bar that is being generated."""
        bar = max(grammar.bar - self.first_bar, 0)
        return self.planned[bar].notated if self.planned else bar

    def seconds_after(self, grammar: RemiGrammar) -> float:
        """Return the duration of the music up to the end of the current bar."""
        bpm = DEFAULT_BPM
        if grammar.tempo:
            bpm = float(TEMPO_GRID[grammar.tempo - TEMPO])
        return self.seconds_before + grammar.bar_length / STEPS_PER_BEAT * 60 / bpm

    def in_last_bar(self, grammar: RemiGrammar) -> bool:
        """Return whether the next Bar token ends the music."""
        if self.seconds is not None:
            return self.seconds_after(grammar) > self.seconds - 1e-6
        return grammar.bar == self.last_bar

    def allowed(self, grammar: RemiGrammar) -> NDArray[np.bool_]:
        """Return the mask (v,) of the tokens that may follow; all False once finished."""
        allowed = grammar.allowed
        if self.finished:
            return np.zeros_like(allowed)
        if allowed[BAR] and self.max_tokens and self.tokens >= self.max_tokens:
            return np.arange(len(allowed)) == BAR
        if self.planned and (allowed[BAR] or allowed[_TIMES].any()):
            allowed = self._as_planned(grammar)
        if (self.last or self.holds_notes) and self.seconds is None:
            allowed = self._within(allowed, grammar)
        return self._with_last(allowed, grammar) if self.last else allowed

    def _with_last(self, allowed: NDArray[np.bool_], grammar: RemiGrammar) -> NDArray[np.bool_]:
        """Return a Last in the last bar only, unless a note of the prompt sounds beyond it."""
        if allowed[self.last]:
            allowed = allowed.copy()
            if self.in_last_bar(grammar):
                allowed[BAR] = allowed[EOS] = False
                allowed[_TIMES] = False
            else:
                allowed[self.last] = False
        return allowed

    def _within(self, allowed: NDArray[np.bool_], grammar: RemiGrammar) -> NDArray[np.bool_]:
        """Forbid durations beyond the last bar, which rule out its Last or enter the next bar."""
        if grammar.after is not After.VELOCITY:
            return allowed
        first = grammar.families.duration
        room = self._steps_left(grammar) - max(grammar.position, 0)
        allowed = allowed.copy()
        allowed[first + int(DURATIONS.searchsorted(room, side="right")) :] = False
        return allowed

    def _steps_left(self, grammar: RemiGrammar) -> int:
        """Return the steps from the start of the bar to the end of the last one.

        The metre stays the same if it is free.
        """
        if self.planned:
            return sum(bar.length for bar in self.planned[grammar.bar - self.first_bar :])
        return grammar.bar_length * (self.last_bar - grammar.bar + 1)

    def _as_planned(self, grammar: RemiGrammar) -> NDArray[np.bool_]:
        bar = self.planned[grammar.bar - self.first_bar]
        allowed = grammar.allowed.copy()
        allowed[TIME_SIGNATURE:POSITION] = False
        allowed[POSITION + bar.room : TEMPO] = False
        # only right after its Bar token
        if bar.length != grammar.bar_length or not allowed.any():
            allowed[:] = False
            allowed[bar.time_signature] = True
        return allowed

    def advance(self, token: int, grammar: RemiGrammar) -> BarLimit:
        """Return the limit after `token`."""
        if token == EOS:
            return self._replace(finished=True)
        if token != BAR:
            return self._replace(tokens=self.tokens + 1) if self.max_tokens else self
        if self.in_last_bar(grammar):
            return self._replace(finished=True)
        if self.seconds is not None:
            return self._replace(seconds_before=self.seconds_after(grammar), tokens=0)
        return self._replace(tokens=0) if self.tokens else self
