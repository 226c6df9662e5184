"""Musical coordinates of tokens: bar, place in the bar, chord and section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import MAX_BAR_STEPS, second_half
from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, TIME_SIGNATURE, Families

NO_CHORD = -1
"""Chord of a token before the chords of its bar, or in a bar without any."""
NUM_COORDINATES = 4
_HALVES = np.array([second_half(length) for length in range(MAX_BAR_STEPS + 1)])
_NO_SECTIONS: Mapping[int, int] = {}


class Coordinates(NamedTuple):
    """The coordinates that the tokens so far have reached; immutable.

    Bars are counted from 0, the first bar of the ids. In an infilling they are counted from the
    gap: bars before it are negative, and those after it begin at its length. A Bar counts as the
    next bar, as long as no Later follows; tokens before the first Bar belong to the first bar. The
    place is that of the last Position in grid steps, 0 after a Bar or Write.

    Chord and section come from the plan and are labels: equal or not. The chord is the index of the
    last Chord that has begun at the place, `NO_CHORD` if there is none. The section of a bar is the
    number of the first bar of which it is a Return, directly or by other bars in between; that of a
    bar without a Return, or before its Return, is its own number. The coordinates of a token do not
    depend on later tokens.
    """

    families: Families
    first: int = 0
    """Number of the first bar that is not a Later bar; in an infilling, minus the number of bars
    before the gap."""
    gap: int = 0
    """Length of the gap in bars."""
    bars: int = 0
    """Number of bars so far that are not Later bars."""
    later: int = 0
    """Number of Later bars so far."""
    is_later: bool = False
    place: int = 0
    bar_length: int = 48
    """Grid steps of the bar, from the last TimeSignature."""
    chords: tuple[int, int] = (NO_CHORD, NO_CHORD)
    """Chords of the bar so far: from its start and from its middle on."""
    sections: Mapping[int, int] = _NO_SECTIONS
    """Section of each bar with a Return."""

    @classmethod
    def before(cls, ids: Sequence[int] | NDArray[np.integer], families: Families) -> Self:
        """Return the state before the first token of a document, or of the given part of one.

        In an infilling, the bars before the first one with a Write come before the gap; without a
        Write, all bars do.
        """
        array = np.asarray(ids, np.int64)
        if not (array >= families.gap).any():
            return cls(families)
        writes = np.flatnonzero(array == families.write)
        given = array[: writes[0]] if len(writes) else array
        bars = np.count_nonzero(given == BAR) - np.count_nonzero(given == families.later)
        return cls(families, bool(len(writes)) - int(bars))

    def read(
        self, ids: Sequence[int] | NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], Coordinates]:
        """Return bar, place, chord and section (l, 4) of each token, and the state after them."""
        array, families = np.asarray(ids, np.int64), self.families
        if len(array) == 1:  # in generation, 20 times as fast
            state = self.advance(int(array[0]))
            return np.array([[state.bar, state.place, state.chord, state.section]]), state
        is_bar = array == BAR
        is_later, is_write, is_gap = (
            array == families.later,
            array == families.write,
            (array >= families.gap) & (array < families.size),
        )
        is_position = (array >= POSITION) & (array < TEMPO)
        gaps = _last(array - families.gap + 1, is_gap, self.gap)
        later = self.later + is_later.cumsum()
        bars = self.bars + is_bar.cumsum() - is_later.cumsum()
        in_later = _last(is_later.astype(np.int64), is_bar | is_later, int(self.is_later)) > 0
        places = np.where(is_position, array - POSITION, 0)
        places = _last(places, is_bar | is_write | is_position, self.place)
        bar = np.where(in_later, gaps + later - 1, self.first + np.maximum(bars, 1) - 1)
        if not len(array):
            return np.zeros((0, NUM_COORDINATES), np.int64), self
        is_length = (array >= TIME_SIGNATURE) & (array < POSITION)
        lengths = _last(families.values[array * is_length], is_length, self.bar_length)
        first, second = self._chords_at(array, is_bar)
        chord = np.where((second >= 0) & (places >= _HALVES[lengths]), second, first)
        section, sections = self._sections_at(array, bar)
        state = self._replace(
            gap=int(gaps[-1]),
            bars=int(bars[-1]),
            later=int(later[-1]),
            is_later=bool(in_later[-1]),
            place=int(places[-1]),
            bar_length=int(lengths[-1]),
            chords=(int(first[-1]), int(second[-1])),
            sections=sections,
        )
        return np.column_stack([bar, places, chord, section]), state

    def _chords_at(
        self, ids: NDArray[np.int64], is_bar: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return both chords (l,) of the bar of each token, as far as they are known."""
        families = self.families
        is_chord = (ids >= families.chord) & (ids < families.bass)
        counts = is_chord.cumsum()
        # chords of the bar so far, this token included
        nth = counts - _last(counts, is_bar, -sum(chord >= 0 for chord in self.chords))
        values = np.where(is_chord, ids - families.chord, NO_CHORD)
        first, second = (
            _last(values, is_bar | (is_chord & (nth == number)), before)
            for number, before in enumerate(self.chords, 1)
        )
        return first, second

    def _sections_at(
        self, ids: NDArray[np.int64], bars: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Mapping[int, int]]:
        """Return the section (l,) of each token in these bars (l,), and sections of bars after."""
        families, sections = self.families, dict(self.sections)
        is_return = (ids >= families.return_) & (ids < families.chord)
        begins = is_return.copy()
        begins[0] = True
        begins[1:] |= bars[1:] != bars[:-1]
        at = np.empty_like(bars)
        for start, stop in pairwise([*np.flatnonzero(begins).tolist(), len(ids)]):
            bar = int(bars[start])
            if is_return[start] and bar not in sections:
                source = bar - int(families.values[ids[start]])
                sections[bar] = sections.get(source, source)
            at[start:stop] = sections.get(bar, bar)
        return at, sections

    def advance(self, token: int) -> Coordinates:
        """Return the state after one token; faster than `read` for a single one."""
        families = self.families
        if token == BAR:
            none = (NO_CHORD, NO_CHORD)
            return self._replace(bars=self.bars + 1, is_later=False, place=0, chords=none)
        if POSITION <= token < TEMPO:
            return self._replace(place=token - POSITION)
        if TIME_SIGNATURE <= token < POSITION:
            return self._replace(bar_length=int(families.values[token]))
        if token < families.return_ or token >= families.size:
            return self
        if token < families.later:
            return self._with_plan(token)
        if token == families.later:
            return self._replace(bars=self.bars - 1, later=self.later + 1, is_later=True)
        if token == families.write:
            return self._replace(place=0)
        return self._replace(gap=token - families.gap + 1) if token >= families.gap else self

    def _with_plan(self, token: int) -> Coordinates:
        """Return the state after a token of a plan: a Return, Chord or Bass."""
        families, bar = self.families, self.bar
        if token < families.chord:
            if bar in self.sections:
                return self
            source = bar - int(families.values[token])
            sections = {**self.sections, bar: self.sections.get(source, source)}
            return self._replace(sections=sections)
        first, second = self.chords
        if token >= families.bass or second >= 0:
            return self
        chord = token - families.chord
        return self._replace(chords=(first, chord) if first >= 0 else (chord, second))

    @property
    def chord(self) -> int:
        """Chord at the place of the last token."""
        first, second = self.chords
        return second if second >= 0 and self.place >= second_half(self.bar_length) else first

    @property
    def section(self) -> int:
        """Section of the bar of the last token."""
        return self.sections.get(self.bar, self.bar)

    @property
    def bar(self) -> int:
        """Bar of the last token."""
        if self.is_later:
            return self.gap + self.later - 1
        return self.first + max(self.bars, 1) - 1


def _last(values: NDArray[np.int64], marks: NDArray[np.bool_], before: int) -> NDArray[np.int64]:
    """Return, for each place (l,), the value at the last mark up to it, or `before`."""
    at = np.maximum.accumulate(np.where(marks, np.arange(1, len(marks) + 1), 0))
    return np.append(before, values)[at]
