"""What every tokenizer offers, and the file that says which one a model was trained with."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin, get_type_hints

from tokenization.compat.miditok_remi import MidiTokRemiConfig
from tokenization.compat.spe_groove import SpeGrooveConfig
from tokenization.compat.spe_pop import SpePopConfig
from tokenization.errors import TokenizerError
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import FILE_NAME, FORMAT_VERSION, PianoRemiConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tokenization.remi.grammar import TempoRule
    from tokenization.remi.remi import TokenSequence
    from tokenization.remi.vocabulary import Vocabulary
    from tokenization.score import Score, TimeSignature, Track

TokenizerConfig = (
    PianoRemiConfig | MultitrackRemiConfig | SpePopConfig | SpeGrooveConfig | MidiTokRemiConfig
)
"""Every tokenizer there is; another one is added with `|`."""

PRESETS: dict[str, TokenizerConfig] = {
    "piano": PianoRemiConfig(),
    "multitrack": MultitrackRemiConfig(),
    "spe-pop": SpePopConfig(),
    "spe-groove": SpeGrooveConfig(),
    "miditok": MidiTokRemiConfig(),
}
"""Tokenizers by the names that people know them by."""

_CONFIGS: dict[str, type[TokenizerConfig]] = {
    config.kind: type(config) for config in PRESETS.values()
}


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

    def advance(self, token: int) -> Grammar:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        ...

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Grammar:
        """The same with more notes sounding: rank of the track, MIDI pitch, step where it ends.

        Pitches outside the vocabulary's range are passed over.
        """
        ...

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Grammar:
        """State after a prompt, whatever the rules: they hold for what follows."""
        ...


class Tokenizer(Protocol):
    """Music to token ids and back."""

    @property
    def config(self) -> TokenizerConfig:
        """Everything needed to build it again."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """Names of the ids."""
        ...

    def encode(self, score: Score) -> TokenSequence:
        """Canonical tokens of a score. Raises MidiError where there are none."""
        ...

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Score of any ids; never raises. The others are those of the `TokenSequence`."""
        ...

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Place of each track among the runs of one position, -1 for a track that is not heard."""
        ...

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
        ...

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of some bars, with what is in force where they start."""
        ...

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """The same music higher or lower; None where it leaves the range."""
        ...

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder."""
        ...


def load_tokenizer(folder: Path) -> Tokenizer:
    """Tokenizer that `save` wrote into a folder.

    Raises TokenizerError where the file is missing or damaged, or where its ids would not mean what
    they meant when it was written.
    """
    path = folder / FILE_NAME
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        version, stored = content["format_version"], dict(content["config"])
        kind, vocabulary_hash = str(stored.pop("kind")), content["vocabulary_hash"]
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TokenizerError(
            f"{path} is damaged: expected JSON with format_version, config and vocabulary_hash; "
            "take the file from the released model again"
        ) from error
    if version != FORMAT_VERSION:
        raise TokenizerError(
            f"{path} has format {version}, expected {FORMAT_VERSION}; install the release that "
            "wrote it"
        )
    config_class = _CONFIGS.get(kind)
    if config_class is None:
        raise TokenizerError(f"{path} asks for {kind!r}, expected one of {', '.join(_CONFIGS)}")
    unknown = stored.keys() - {field.name for field in fields(config_class)}
    if unknown:
        raise TokenizerError(f"{path} has unknown options: {', '.join(sorted(unknown))}")
    for name, hint in get_type_hints(config_class).items():
        known = get_args(hint)
        if get_origin(hint) is Literal and stored.get(name, known[0]) not in known:
            choices = " or ".join(map(repr, known))
            raise TokenizerError(f"{path}: {name} is {stored[name]!r}, expected {choices}")
    tokenizer = config_class(**stored).build()
    if tokenizer.vocabulary.hash != vocabulary_hash:
        raise TokenizerError(
            f"{path} was written for vocabulary {vocabulary_hash}, this release has "
            f"{tokenizer.vocabulary.hash}: its ids mean other tokens; install the release that "
            "wrote it"
        )
    return tokenizer
