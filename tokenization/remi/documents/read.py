"""What token ids say besides notes and bars: plan, header, and what is to be written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import QUALITIES
from tokenization.document import Header
from tokenization.plan import BarPlan, Chord, Key, PlannedChord
from tokenization.remi.decode import Bars, Notes, Tokens
from tokenization.remi.packing import Packing
from tokenization.remi.vocabulary import MAX_DISTANCE, Kind
from tokenization.score import TimeSignature

_NONE = -1
_BASS_BITS = 4
_PLAN = Packing(31, 8, 8, _BASS_BITS, 8, _BASS_BITS)
"""Beat of the second chord, source + 64, and for each chord its index + 1 and bass + 1, or 0."""
_OF_CHORD = np.array([_PLAN.row(0, 0, 0, 1, 0, 0), 1, 0])
"""Factors that move the first, second and further chords of a bar to their fields."""


class Signs(NamedTuple):
    """The tokens of plans, headers and selections in a row: columns (n,)."""

    tokens: Tokens
    places: NDArray[np.intp]
    """Index of each in the row."""
    kinds: NDArray[np.uint8]
    values: NDArray[np.int64]
    counts: list[int]
    """Number of signs of each kind."""
    bar_places: NDArray[np.intp]
    """Index of each Bar (bars,) in the row."""

    @classmethod
    def of(cls, tokens: Tokens) -> Signs:
        """Return the signs of any tokens."""
        places = (tokens.kinds >= Kind.RETURN).nonzero()[0]
        bar_places = (tokens.kinds == Kind.BAR).nonzero()[0]
        kinds = tokens.kinds[places]
        counts = np.bincount(kinds, minlength=int(Kind.GAP) + 1).tolist()
        return cls(tokens, places, kinds, tokens.values[places], counts, bar_places)

    @property
    def first_bar(self) -> int:
        """Index of the first Bar; the length of the row without any."""
        return int(self.bar_places[0]) if len(self.bar_places) else len(self.tokens.kinds)

    def bar_of(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the bar in which each place of the row is; -1 before the first one."""
        return self.bar_places.searchsorted(places, side="right") - 1

    def has(self, kind: NDArray[np.uint8]) -> bool:
        """Return whether there is a token of a kind."""
        return self.counts[kind] > 0

    def in_bars(self, kind: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which signs (n,) are tokens of a kind after the first Bar, and the bar of each."""
        rows = (self.kinds == kind).nonzero()[0]
        of_bar = self.bar_of(self.places[rows])
        first = int(of_bar.searchsorted(0))
        return rows[first:], of_bar[first:]


def read_key(signs: Signs) -> Key | None:
    """Return the first Key."""
    if not signs.has(Kind.KEY):
        return None
    minor, tonic = divmod(int(signs.values[signs.kinds == Kind.KEY][0]), 12)
    return Key(tonic, bool(minor))


def read_header(signs: Signs) -> Header:
    """Return the first Style, and the players: Program, Part if any, Plays."""
    kinds, values = signs.tokens
    players: set[int] = set()
    plays: list[int] = (
        signs.places[signs.kinds == Kind.PLAYS].tolist() if signs.has(Kind.PLAYS) else []
    )
    for place in plays:
        has_part = bool(kinds[place - 1] == Kind.PART)
        at = place - 1 - has_part
        if kinds[at] == Kind.PROGRAM:
            program = int(values[at])
            players.add(program + (int(values[place - 1]) if has_part and program else 0))
    style = None
    if signs.has(Kind.STYLE):
        style = int(signs.values[signs.kinds == Kind.STYLE][0])
    return Header(style, tuple(sorted(players)))


def read_plan(
    signs: Signs, bars: Bars, lines: NDArray[np.int64], signatures: Sequence[TimeSignature]
) -> tuple[BarPlan, ...]:
    """Return the plan of each bar in the order of the music; empty without any Return.

    The first Return after a Bar counts, and the first two Chords. A Bass counts right after one of
    these. `lines` are the bar lines of the music, `signatures` those that name its bars.
    """
    if not signs.has(Kind.RETURN):
        return ()
    plans = np.full(len(lines) - 1, _PLAN.row(0, MAX_DISTANCE, 0, 0, 0, 0))
    returns, of_bar = signs.in_bars(Kind.RETURN)
    # of several in a bar, the first one is assigned last
    plans[of_bar[::-1]] = _PLAN.place(signs.values[returns] + MAX_DISTANCE, 1)[::-1]

    chords, of_bar = signs.in_bars(Kind.CHORD)
    nth = np.arange(len(chords)) - of_bar.searchsorted(of_bar)
    after = signs.places[chords] + 1
    kinds, values = signs.tokens
    basses = (values[after] + 1) * (kinds[after] == Kind.BASS)
    chord_codes = ((signs.values[chords] + 1) << _BASS_BITS) + basses
    chord_codes *= _OF_CHORD[np.minimum(nth, 2)]
    plans += np.bincount(of_bar, chord_codes, len(plans)).astype(np.int64)
    if bars.num_later:
        plans = np.roll(plans, -bars.num_later)
    starts = np.array([signature.tick for signature in signatures], np.int64)
    at = starts.searchsorted(lines[:-1], side="right") - 1
    halves = np.array([-(-signature.numerator // 2) for signature in signatures], np.int64)[at]
    return tuple(map(_bar_plan, (plans + _PLAN.place(halves, 0)).tolist()))


@lru_cache(maxsize=65_536)
def _bar_plan(packed: int) -> BarPlan:
    """Return the plan of a bar from its row of `_PLAN`."""
    rest, second_bass = divmod(packed, 1 << _BASS_BITS)
    rest, second = divmod(rest, 256)
    rest, bass = divmod(rest, 1 << _BASS_BITS)
    rest, first = divmod(rest, 256)
    half, source = divmod(rest, 256)
    pairs = ((0, first, bass), (half, second, second_bass))
    chords = (PlannedChord(beat, _chord(c - 1, b - 1)) for beat, c, b in pairs if c)
    return BarPlan(source - MAX_DISTANCE, tuple(chords))


def _chord(index: int, bass: int) -> Chord | None:
    root, quality = divmod(index, len(QUALITIES))
    if root == 12:
        return None
    return Chord(root, quality, None if bass in (_NONE, root) else bass)


class Written(NamedTuple):
    """The bars of a document that are to be written, in the order of the music."""

    first: int
    stop: int | None
    """None if the document has no gap."""
    given: frozenset[int]
    """Ranks of the tracks with notes before the Write of these bars."""
    others: frozenset[int]
    """Ranks of the other tracks in these bars."""


def read_written(signs: Signs, bars: Bars, notes: Notes) -> Written | None:
    """Return the bars to be written, from the first with a Write to the end or that of the gap."""
    if not signs.has(Kind.WRITE):
        return None
    rows, of_bar = signs.in_bars(Kind.WRITE)
    writes = signs.places[rows]
    writes, of_bar = writes[of_bar >= bars.num_later], of_bar[of_bar >= bars.num_later]
    if not len(writes):
        return None
    first_write = np.full(len(bars.lines) - 1, -1)
    first_write[of_bar[::-1]] = writes[::-1]
    of_note = signs.bar_of(notes.places)
    is_written = of_note >= of_bar[0]
    is_given = is_written & (notes.places < first_write[of_note])
    ranks = notes.keys >> 7
    return Written(
        int(of_bar[0]) - bars.num_later,
        len(bars.lines) - 1 - bars.num_later if signs.has(Kind.GAP) else None,
        frozenset(ranks[is_given].tolist()),
        frozenset(ranks[is_written & ~is_given].tolist()),
    )
