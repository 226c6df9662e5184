"""Common parts of the two tokenizers of the SPE paper (Liutkus et al., 2021)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import STEPS_PER_BEAT
from tokenization.tokenizer import Rules, Vocabulary


def known_ids(ids: Sequence[int] | NDArray[np.integer], eos: int, pad: int) -> NDArray[np.int64]:
    """Ids up to the first EOS; integers that are not ids become PAD, the last id."""
    array = np.asarray(ids, dtype=np.int64).reshape(-1)
    array = np.where((array >= 0) & (array < pad), array, pad)
    return array[: int(np.argmax(array == eos))] if eos in array else array


@dataclass(frozen=True)
class SpeGrammar(ABC):
    """State of a grammar in bars of 4/4.

    Every state has a possible next token; EOS is followed by PAD.
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
        """Mask (v,) of the tokens that may follow; never empty."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Place of the next token, for error messages."""

    @abstractmethod
    def _after(self, token: int) -> Self:
        """State after an allowed token."""

    def advance(self, token: int) -> Self:
        """State after one more token. Raises ValueError if the token is not allowed."""
        names = self.vocabulary.names
        is_known = 0 <= token < len(names)
        if not (is_known and self.allowed[token]):
            name = names[token] if is_known else f"id {token}"
            after = names[self.last] if self.last >= 0 else "nothing"
            raise ValueError(f"{name} is not allowed at {self._place}, after {after}")
        return self._after(token)

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Self:
        """The same state, since a pitch may be struck while it sounds, as in the data sets."""
        return self

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Self:
        """State after a prompt. The rules do not apply to it, only to the tokens that follow.

        Raises ValueError if the prompt is not canonical.
        """
        state = replace(self, rules=Rules())
        for token in np.asarray(ids).tolist():
            state = state.advance(token)
        return replace(state, rules=self.rules)
