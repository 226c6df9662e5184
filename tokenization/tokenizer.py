"""What every tokenizer offers: vocabulary, encoding, decoding, grammar."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenization.score import Score, TimeSignature, Track

FILE_NAME = "tokenizer.json"
FORMAT_VERSION = 1

TempoRule = Literal["free", "bar_line", "never"]
"""Where the tempo may change. A piece without a tempo is still given one at its start."""


@dataclass(frozen=True)
class Vocabulary:
    """Names of tokens, by id."""

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
        """SHA-256 of the names in order, one per line: equal where the ids mean the same."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A piece as tokens, and what of it they do not say."""

    ids: NDArray[np.int32]
    """(l,), canonical."""
    dropped: int
    """Notes that the vocabulary has no tokens for."""
    clipped: int
    """Notes longer than the longest duration, cut to that."""
    merged: int = 0
    """Notes left out because another stands at the same pitch and position."""
    tempos_clipped: int = 0
    """Tempos outside the range of the vocabulary."""
    signatures: tuple[TimeSignature, ...] = ()
    """Time signatures as written, ticks in twelfths of a quarter; for `decode`."""
    tracks: tuple[Track, ...] = ()
    """Where tokens tell tracks apart: these without their notes, in the order of tokens; for
    `decode`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """(l,), quarter notes from the start that the tokens before each token have reached.

        Known before the token itself is.
        """
        raise NotImplementedError


class Grammar(Protocol):
    """Which token may follow. Immutable: advancing gives another one."""

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """(v,), which tokens may follow; never none."""
        ...

    @property
    def beat(self) -> float:
        """Quarter notes from the start that the tokens so far have reached."""
        ...

    @property
    def bar(self) -> int:
        """Bars begun so far."""
        ...

    @property
    def bar_start(self) -> int:
        """Where the bar begins, in twelfths of a quarter from the start."""
        ...

    @property
    def bar_length(self) -> int:
        """Length of the bar in twelfths of a quarter; 0 before it is known."""
        ...

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,) of the next token; None where nothing is."""
        ...

    def advance(self, token: int) -> Grammar:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        ...

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Grammar:
        """The same with more notes sounding: rank of the track, MIDI pitch, step where it ends.

        Pitches outside the vocabulary's range are passed over.
        """
        ...

    def remember(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        *,
        presence: float = 1.0,
        recall: float = 1.0,
    ) -> Grammar:
        """The same with a `bias` towards what a prompt played, and who rests longer than there.

        `ids` are what it was resumed with. Music of a single track is left alone, and 0 leaves out
        either.
        """
        ...

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Grammar:
        """State after a prompt, whatever the rules: they hold for what follows."""
        ...


class Config(Protocol):
    """Everything needed to build a tokenizer again: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """Name of the kind of tokenizer in `tokenizer.json`."""
        ...

    def build(self) -> Tokenizer:
        """The tokenizer."""
        ...


class Tokenizer(ABC):
    """Music to token ids and back."""

    vocabulary: ClassVar[Vocabulary]
    """Names of the ids."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def encode(self, score: Score) -> TokenSequence:
        """Canonical tokens of a score. Raises MidiError where there are none."""

    @abstractmethod
    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Score of any ids; never raises. The others are those of the `TokenSequence`."""

    @abstractmethod
    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Place of each track among the runs of one position, -1 for a track that is not heard."""

    @abstractmethod
    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
        silent: Collection[int] = (),
    ) -> Grammar:
        """Which token may come first; allows exactly the canonical sequences.

        `tracks`, where tokens tell tracks apart, are the only ones that may play, but for those at
        the places `silent`.
        """

    @abstractmethod
    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of some bars, with what is in force where they start."""

    @abstractmethod
    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """The same music higher or lower; None where it leaves the range."""

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
        content = {
            "format_version": FORMAT_VERSION,
            "config": asdict(self.config),
            "vocabulary_hash": self.vocabulary.hash,
        }
        beside = folder / f"{FILE_NAME}.part"
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        beside.replace(folder / FILE_NAME)


def end_of_crop(first_bar: int, num_bars: int | None, piece_bars: int) -> int:
    """Bar before which a crop ends: of `num_bars` bars, or of all, from bar `first_bar` on.

    Raises ValueError where a piece of `piece_bars` bars has no such bar.
    """
    if not 0 <= first_bar < piece_bars or (num_bars is not None and num_bars < 1):
        raise ValueError(
            f"asked for {num_bars} bars from bar {first_bar} on of a piece of {piece_bars} bars"
        )
    return piece_bars if num_bars is None else min(first_bar + num_bars, piece_bars)


def shift_ids(
    ids: NDArray[np.integer], by: int, first: int, stop: int
) -> NDArray[np.integer] | None:
    """A copy with the ids from `first` to before `stop` moved; None where one would leave them."""
    places = np.flatnonzero((ids >= first) & (ids < stop))
    shifted = ids[places].astype(np.int64) + by
    if len(shifted) and not first <= shifted.min() <= shifted.max() < stop:
        return None
    moved = ids.copy()
    moved[places] = shifted
    return moved
