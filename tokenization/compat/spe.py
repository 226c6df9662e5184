"""Common parts of the two codecs of the SPE paper (Liutkus et al., 2021)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.grammar import Rules
from tokenization.remi.vocabulary import STEPS_PER_BEAT
from tokenization.score import Track
from tokenization.tokenizer import Grammar, TempoRule, Tokenizer, Vocabulary

GrammarT = TypeVar("GrammarT", bound=Grammar)


class SpeTokenizer(Tokenizer, Generic[GrammarT]):
    """A tokenizer whose bars are all of 4/4 and whose tracks may all play."""

    @abstractmethod
    def _grammar(self, rules: Rules) -> GrammarT: ...

    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
        silent: Collection[int] = (),
    ) -> GrammarT:
        """Which token may come first; of the rules, those on metre and tracks say nothing here."""
        return self._grammar(Rules(tempo, time_signature, end))


def known_ids(ids: Sequence[int] | NDArray[np.integer], eos: int, pad: int) -> NDArray[np.int64]:
    """Ids up to the first EOS; PAD, which is the last of all ids, for what is none."""
    array = np.asarray(ids, dtype=np.int64).reshape(-1)
    array = np.where((array >= 0) & (array < pad), array, pad)
    return array[: int(np.argmax(array == eos))] if eos in array else array


@dataclass(frozen=True)
class SpeGrammar(ABC):
    """What the tokens so far say about the next one, in bars of 4/4.

    Every state can go on: after EOS, PAD follows.
    """

    vocabulary: ClassVar[Vocabulary]

    rules: Rules
    last: int = -1
    """Last token; -1 before any."""

    @property
    def bar_length(self) -> int:
        """Length of a bar in twelfths of a quarter."""
        return 4 * STEPS_PER_BEAT

    @property
    @abstractmethod
    def allowed(self) -> NDArray[np.bool_]:
        """(v,), which tokens may follow; never none."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where the next token stands, for errors."""

    @abstractmethod
    def _after(self, token: int) -> Self:
        """State after one more token, which is allowed."""

    def advance(self, token: int) -> Self:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        names = self.vocabulary.names
        is_known = 0 <= token < len(names)
        if not (is_known and self.allowed[token]):
            name = names[token] if is_known else f"id {token}"
            after = names[self.last] if self.last >= 0 else "nothing"
            raise ValueError(f"{name} may not stand here: {self._place}, after {after}")
        return self._after(token)

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Self:
        """The same: a pitch may be struck while it sounds, as it may in the data sets."""
        return self

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Self:
        """State after a prompt, whatever the rules: they hold for what follows.

        Raises ValueError where the prompt is not canonical.
        """
        state = replace(self, rules=Rules())
        for token in np.asarray(ids).tolist():
            state = state.advance(token)
        return replace(state, rules=self.rules)
