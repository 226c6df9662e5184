"""Documents: scores with a plan and a header, of which some bars or tracks are to be written."""

from __future__ import annotations

from typing import NamedTuple

from tokenization.plan import Plan
from tokenization.score import Score


class Header(NamedTuple):
    """What is known of a piece before its first bar."""

    style: int | None = None
    """Index of the style, 0-63; its names belong to the corpus."""
    players: tuple[int, ...] = ()
    """Ranks of the tracks that are to be written, ascending; empty: not stated."""


class Selection(NamedTuple):
    """The bars and tracks that are to be written; everything else is given."""

    first: int
    """Index of the first of these bars."""
    stop: int | None = None
    """Index of the bar after the last one, at which given bars follow; None: up to the end of the
    piece."""
    given: tuple[int, ...] = ()
    """Indices of the tracks of the score that are given in these bars too."""


UNKNOWN = Header()
"""A header that states nothing."""


class Document(NamedTuple):
    """The contents of a token sequence; the arguments of `Remi.encode`."""

    score: Score
    plan: Plan | None = None
    header: Header = UNKNOWN
    selection: Selection | None = None
    """None: all bars are of one kind, as from nothing and in a continuation."""
    begins: bool = True
    """Whether the first bar is the beginning of the piece."""
    ends: bool = True
    """Whether the last bar is the end of the piece."""
    num_bars: int | None = None
    """Number of bars, as of a part of a piece: notes may sound beyond the last one, and those that
    begin after it are left out. None: as many as the score and its notes need."""
