"""The plan of a piece: for each bar, the earlier bar that it resembles, and its chords."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Chord(NamedTuple):
    """A chord, by its root, its quality and its bass."""

    root: int
    """Pitch class 0-11; C is 0."""
    quality: int
    """Index into `tokenization.analysis.chords.QUALITIES`."""
    bass: int | None = None
    """Pitch class of the bass; None: the root."""


class PlannedChord(NamedTuple):
    """A chord, or no chord, from a beat of its bar on."""

    beat: int
    """Beat of the bar's metre, from 0: either 0, or ceil(n / 2) for the second chord of a bar of n
    beats."""
    chord: Chord | None
    """None: no chord."""


@dataclass(frozen=True)
class BarPlan:
    """The plan of one bar."""

    source: int = 0
    """The bar that this one resembles: 0: none, it is new; d from 1 to 64: the bar d bars before;
    negative: a bar after the gap (only in infilling), -1 is the next bar."""
    chords: tuple[PlannedChord, ...] = ()
    """At most two; empty where chords do not apply, as for drums alone."""

    def __hash__(self) -> int:
        return self._hash  # computed once, since tables of plans are indexed by every bar

    @cached_property
    def _hash(self) -> int:
        return hash((self.source, self.chords))


class Key(NamedTuple):
    """A major or minor key."""

    tonic: int
    """Pitch class 0-11; C is 0."""
    minor: bool


@dataclass(frozen=True)
class Plan:
    """The plan of a piece; it is data of the piece, like its notes, and encoded with them."""

    bars: tuple[BarPlan, ...]
    """One for each bar, see `tokenization.grid.bar_lines`; empty if only the key is known. A piece
    may have more bars, in which its last notes sound: they are new and have no chords."""
    key: Key | None = None
