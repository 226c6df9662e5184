"""What tokenizers work with: vocabularies, token sequences, and rules of a grammar."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.plan import PlannedChord
from tokenization.score import TimeSignature, Track

FILE_NAME = "tokenizer.json"
FORMAT_VERSION = 1

TempoRule = Literal["free", "bar_line", "never"]
"""Where the tempo may change. Generation always starts with a tempo, even with "never"."""


class FixedBar(NamedTuple):
    """What is decided in advance of one bar; None: the model chooses."""

    sources: tuple[int, ...] | None = None
    """Those among which the model chooses, see `BarPlan.source`; without one that is in the
    document, the bar is New."""
    chords: tuple[PlannedChord, ...] | None = None
    given: tuple[int, ...] | None = None
    """Ids of the given tracks, between the head of the bar and its Write; empty: a Write follows
    the head. None: the bar has a Write only if the model chooses so. `BarLimit.planned` should fix
    the length of the bar too, since a shorter one would not hold the given notes."""
    exact: bool = False
    """Whether the bar is to repeat its source as closely as possible; see `Pointer.extend`."""


NO_BARS: Mapping[int, FixedBar] = MappingProxyType({})


class Rules(NamedTuple):
    """Restrictions of a grammar, in addition to those of canonical sequences."""

    tempo: TempoRule = "free"
    time_signature: bool = True
    """Whether the bar length may change. Generation always starts with a bar length."""
    end: bool = True
    """Whether the piece may end."""
    tracks: frozenset[int] | None = None
    """Ranks of the tracks that may play; None: all."""
    write: bool = True
    """Whether the model may choose which bars are to be written."""
    bars: Mapping[int, FixedBar] = NO_BARS
    """What is decided in advance of some bars, by `RemiGrammar.bar`."""


@dataclass(frozen=True)
class Vocabulary:
    """Names of the tokens, indexed by id."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError("two tokens of the vocabulary have the same name")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Id of each name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the names in order, one per line: equal hashes mean equal vocabularies."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A piece as tokens, with information that the tokens do not contain."""

    ids: NDArray[np.int32]
    """Canonical token ids (l,)."""
    clipped: int
    """Number of notes shortened to the maximum duration."""
    merged: int = 0
    """Number of notes left out because the track has another at the same pitch and position."""
    tempos_clipped: int = 0
    """Number of tempos outside the range of the vocabulary that became its lowest or highest."""
    tempos_scaled: int = 0
    """Number of tempos outside the range that were halved or doubled, together with their beats."""
    signatures: tuple[TimeSignature, ...] = ()
    """Time signatures as notated, in ticks of a twelfth of a quarter; an argument of `decode`."""
    tracks: tuple[Track, ...] = ()
    """Tracks without their notes, in the order of their tokens; empty if tokens do not distinguish
    tracks. An argument of `decode`.
    """

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """Time in quarter notes reached by the tokens before each token, (l,).

        It is known before the token itself.
        """
        raise NotImplementedError


def end_of_crop(first_bar: int, num_bars: int | None, piece_bars: int) -> int:
    """Return the index of the bar at which a crop ends.

    Raises ValueError if a piece of `piece_bars` bars has no bar `first_bar`.
    """
    if not 0 <= first_bar < piece_bars or (num_bars is not None and num_bars < 1):
        raise ValueError(
            f"first_bar is {first_bar} and num_bars is {num_bars}, expected at least one bar of "
            f"the {piece_bars} bars of the piece"
        )
    return piece_bars if num_bars is None else min(first_bar + num_bars, piece_bars)
