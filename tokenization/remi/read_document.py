"""What any token ids say besides notes, bars and tempos: plan, header, and what is to be written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import QUALITIES
from tokenization.document import Header
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.remi.decode import Bars, Notes, Tokens
from tokenization.remi.vocabulary import Kind
from tokenization.score import TimeSignature

_NONE = -1


def read_key(tokens: Tokens) -> Key | None:
    """The first Key of any tokens."""
    places = (tokens.kinds == Kind.KEY).nonzero()[0]
    if not len(places):
        return None
    minor, tonic = divmod(int(tokens.values[places[0]]), 12)
    return Key(tonic, bool(minor))


def read_header(tokens: Tokens) -> Header:
    """The first Style, and the players: Program, Part if any, Plays."""
    kinds, values = tokens
    styles = (kinds == Kind.STYLE).nonzero()[0]
    players: set[int] = set()
    for place in (kinds == Kind.PLAYS).nonzero()[0].tolist():
        has_part = kinds[place - 1] == Kind.PART
        at = place - 1 - int(has_part)
        if kinds[at] == Kind.PROGRAM:
            program = int(values[at])
            players.add(program + (int(values[place - 1]) if has_part and program else 0))
    style = int(values[styles[0]]) if len(styles) else None
    return Header(style, tuple(sorted(players)))


def read_plan(
    tokens: Tokens, bars: Bars, lines: NDArray[np.int64], signatures: Sequence[TimeSignature]
) -> tuple[BarPlan, ...]:
    """The plan of each bar in the order of the music; empty without any Return.

    The first Return after a Bar counts, and the first two Chords. A Bass counts right after one of
    these. `lines` are the bar lines of the music, `signatures` those that name its bars.
    """
    kinds, values = tokens
    returns = (kinds == Kind.RETURN).nonzero()[0]
    if not len(returns):
        return ()
    count = len(lines) - 1
    bar_of = (kinds == Kind.BAR).cumsum() - 1
    table = np.zeros((count, 5), np.int64)
    table[:, 1:] = _NONE
    returns = returns[bar_of[returns] >= 0]
    # of several in a bar, the first is assigned last
    table[bar_of[returns[::-1]], 0] = values[returns[::-1]]
    chords = (kinds == Kind.CHORD).nonzero()[0]
    chords = chords[bar_of[chords] >= 0]
    of_bar = bar_of[chords]
    nth = np.arange(len(chords)) - of_bar.searchsorted(of_bar)
    chords, of_bar, nth = chords[nth < 2], of_bar[nth < 2], nth[nth < 2]
    after = chords + 1
    basses = np.where(kinds[after] == Kind.BASS, values[after], _NONE)
    table[of_bar, 1 + 2 * nth] = values[chords]
    table[of_bar, 2 + 2 * nth] = basses
    if bars.num_later:
        table = np.roll(table, -bars.num_later, 0)
    starts = np.array([signature.tick for signature in signatures])
    at = starts.searchsorted(lines[:-1], side="right") - 1
    halves = np.array([-(-signature.numerator // 2) for signature in signatures])[at]
    return tuple(map(_bar_plan, *table.T.tolist(), halves.tolist()))


@lru_cache(maxsize=65_536)
def _bar_plan(source: int, first: int, bass: int, second: int, bass_2: int, half: int) -> BarPlan:
    """A plan from its values, with `_NONE` for tokens that are missing."""
    pairs = ((0, first, bass), (half, second, bass_2))
    chords = (PlannedChord(beat, _chord(c, b)) for beat, c, b in pairs if c != _NONE)
    return BarPlan(source, tuple(chords))


def _chord(index: int, bass: int) -> Chord | None:
    root, quality = divmod(index, len(QUALITIES))
    if root == 12:
        return None
    return Chord(root, quality, None if bass in (_NONE, root) else bass)


class Written(NamedTuple):
    """The bars of a document that have a Write, in the order of the music."""

    first: int
    stop: int | None
    """None if the document has no gap."""
    given: frozenset[int]
    """Ranks of the tracks with notes before Write in these bars."""


def read_written(tokens: Tokens, bars: Bars, notes: Notes) -> Written | None:
    """The bars to be written: from the first one that has a Write to the last bar or the gap's end."""
    kinds = tokens.kinds
    writes = (kinds == Kind.WRITE).nonzero()[0]
    bar_of = (kinds == Kind.BAR).cumsum() - 1
    writes = writes[bar_of[writes] >= bars.num_later]
    if not len(writes):
        return None
    count = len(bars.lines) - 1 - bars.num_later
    has_gap = bool((kinds == Kind.GAP).any())
    first_write = np.full(len(bars.lines) - 1, -1)
    first_write[bar_of[writes[::-1]]] = writes[::-1]
    at = bar_of[notes.places]
    is_given = (at >= bar_of[writes[0]]) & (notes.places < first_write[at])
    given = frozenset((notes.keys[is_given] >> 7).tolist())
    return Written(int(bar_of[writes[0]]) - bars.num_later, count if has_gap else None, given)
