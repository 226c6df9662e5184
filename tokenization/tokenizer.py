"""Interface of all tokenizers: vocabulary, token sequences, grammar, encoding and decoding."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenization.plan import PlannedChord
from tokenization.score import Score, TimeSignature, Track

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
    """Whether the model may choose which bars are to be written; only for version 2."""
    bars: Mapping[int, FixedBar] = NO_BARS
    """What is decided in advance of some bars, by `Grammar.bar`; only for version 2."""


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
    dropped: int
    """Number of notes that the vocabulary cannot represent."""
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


class Grammar(Protocol):
    """State that determines which tokens may follow. Immutable; `advance` returns a new state."""

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may follow; at least one."""
        ...

    @property
    def beat(self) -> float:
        """Time in quarter notes that the tokens so far have reached."""
        ...

    @property
    def bar(self) -> int:
        """Number of bars begun so far."""
        ...

    @property
    def bar_start(self) -> int:
        """Start of the bar, in twelfths of a quarter from the start of the piece."""
        ...

    @property
    def bar_length(self) -> int:
        """Length of the bar in twelfths of a quarter; 0 before it is known."""
        ...

    def advance(self, token: int) -> Grammar:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        ...

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Grammar:
        """The state with more sounding notes, each (rank of the track, MIDI pitch, end step).

        Pitches outside the range of the vocabulary are ignored.
        """
        ...

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Grammar:
        """State after a prompt. The rules do not apply to it, only to the tokens that follow."""
        ...


GrammarT = TypeVar("GrammarT", bound=Grammar, covariant=True)


class Config(Protocol):
    """Configuration from which a tokenizer can be rebuilt: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """Identifies the class of the tokenizer in `tokenizer.json`."""
        ...

    def build(self) -> Tokenizer:
        """The tokenizer."""
        ...


class BaseTokenizer(ABC, Generic[GrammarT]):
    """Converts scores to token ids and back."""

    vocabulary: Vocabulary
    """Names of the token ids."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def encode(self, score: Score) -> TokenSequence:
        """Canonical tokens of a score. Raises MidiError for a score that cannot be encoded."""

    @abstractmethod
    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Decodes any ids to a score; never raises.

        `signatures` and `tracks` are those of the `TokenSequence`.
        """

    @abstractmethod
    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Rank of each track among the tracks at one position; -1 if the track is not encoded."""

    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
        silent: Collection[int] = (),
        write: bool = True,
        bars: Mapping[int, FixedBar] | None = None,
    ) -> GrammarT:
        """Initial state of the grammar, which accepts exactly the canonical sequences.

        If tokens distinguish tracks, only `tracks` may play, except those at the indices `silent`.
        The other arguments are those of `Rules`.
        """
        ranks = None
        if tracks is not None:
            every = enumerate(self.track_ranks(tuple(tracks)))
            ranks = frozenset(rank for index, rank in every if index not in silent)
        return self._grammar(Rules(tempo, time_signature, end, ranks, write, bars or NO_BARS))

    @abstractmethod
    def _grammar(self, rules: Rules) -> GrammarT: ...

    @abstractmethod
    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of `num_bars` bars (default: all) from bar `first_bar` on.

        They start with the settings in effect at that bar. Raises ValueError if there is no such
        bar.
        """

    @abstractmethod
    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Transposed ids; None if a pitch would leave the range."""

    def save(self, folder: Path) -> None:
        """Writes the config and the hash of the vocabulary to `tokenizer.json` in a folder."""
        content = {
            "format_version": FORMAT_VERSION,
            "config": asdict(self.config),
            "vocabulary_hash": self.vocabulary.hash,
        }
        beside = folder / f"{FILE_NAME}.part"
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        beside.replace(folder / FILE_NAME)


Tokenizer: TypeAlias = BaseTokenizer[Grammar]
"""Any tokenizer."""


def end_of_crop(first_bar: int, num_bars: int | None, piece_bars: int) -> int:
    """Index of the bar at which a crop ends.

    Raises ValueError if a piece of `piece_bars` bars has no bar `first_bar`.
    """
    if not 0 <= first_bar < piece_bars or (num_bars is not None and num_bars < 1):
        raise ValueError(
            f"first_bar is {first_bar} and num_bars is {num_bars}, expected at least one bar of "
            f"the {piece_bars} bars of the piece"
        )
    return piece_bars if num_bars is None else min(first_bar + num_bars, piece_bars)


def shift_ids(
    ids: NDArray[np.integer], by: int, first: int, stop: int
) -> NDArray[np.integer] | None:
    """Copy of `ids` with those in [first, stop) shifted; None if one would leave that range."""
    places = np.flatnonzero((ids >= first) & (ids < stop))
    shifted = ids[places].astype(np.int64) + by
    if len(shifted) and not first <= shifted.min() <= shifted.max() < stop:
        return None
    moved = ids.copy()
    moved[places] = shifted
    return moved
