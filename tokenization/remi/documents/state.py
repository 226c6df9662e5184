"""The state of the grammar apart from notes: what a document contains so far."""

from __future__ import annotations

from typing import NamedTuple


class DocumentState(NamedTuple):
    """The state of a document after the tokens so far; see `DocumentGrammar`."""

    last_header: int = 0
    """The last id of the header that is not of a player; 0 before any."""
    gap: int = 0
    """Bars of the gap; 0: there is none."""
    is_planned: bool | None = None
    """Whether bars have a Return; None before this is known."""
    later: int = 0
    """Number of Later bars so far."""
    main: int = 0
    """Number of other bars so far."""
    written: int = 0
    """Number of bars with a Write so far."""
    given: frozenset[int] = frozenset()
    """Ranks of tracks that have played before the Write of a bar."""
    writers: frozenset[int] = frozenset()
    """Ranks of tracks that have played after the Write of a bar."""
    has_ended: bool = False
    """Whether the last Later bar had a Last."""

    # of the current bar
    is_later: bool = False
    is_last: bool = False
    must_write: bool = False
    """Whether the bar has a Write, or must get one."""
    has_write: bool = False
    playing: frozenset[int] = frozenset()
    """Ranks of tracks that have played in the bar."""
    ringing: tuple[tuple[int, int, int], ...] = ()
    """`sounding` at the start of the bar."""
    root: int = -1
    """Root of the last chord; -1 for none."""
    cursor: int = 0
    """Number of the given tokens of a `FixedBar` so far."""

    @property
    def is_first(self) -> bool:
        """Whether the bar is the first Later bar or the first other bar, which states its metre."""
        return self.later == 1 if self.is_later else self.main == 1

    @property
    def bars_left(self) -> int:
        """Bars of the gap after this one, if this is one of its bars."""
        return self.gap - self.written - (not self.has_write)
