"""Texts as ids: byte-pair encoding (Sennrich et al., 2016) of bytes, by the package tokenizers.

Every text has ids, and decoding returns exactly that text. Ids 0 and 1 are the start and the end;
those of the package follow, so that no text contains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError, missing_package
from training.tasks.transduction.pair_task import START

NAME = "tokenizer.json"
END = START + 1
"""Id of the symbol after the last token."""
_NUM_SPECIAL = 2
_NUM_BYTES = 256
LEAST = _NUM_SPECIAL + _NUM_BYTES
"""The smallest vocabulary: start, end and all bytes."""
_AT_A_TIME = 10_000  # the package needs much memory for each text


class Bpe:
    """A vocabulary of parts of words, with which texts become ids."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - of a package that may be missing
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Bpe:
        """Return the vocabulary of the most frequent parts of some texts, at most `size` ids.

        Raises:
            TrainingError: the package tokenizers is missing, or the size is below `LEAST`.
        """
        if size < LEAST:
            raise TrainingError(
                f"the vocabulary has {size} ids, expected at least {LEAST}: start, end and bytes"
            )
        package = _package()
        tokenizer = package.Tokenizer(package.models.BPE())
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=size - _NUM_SPECIAL,
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> Bpe:
        """Return the vocabulary in the folder of a run.

        Raises:
            TrainingError: the file is missing or damaged, or the package tokenizers is missing.
        """
        path = folder / NAME
        if not path.is_file():
            raise TrainingError(f"{path}: no such file, so the run cannot be used; train again")
        tokenizer = _package().Tokenizer
        try:
            return cls(tokenizer.from_file(str(path)))
        except Exception as error:  # the package raises no other class
            raise TrainingError(f"{path}: the file is damaged ({error}); train again") from error

    def save(self, folder: Path) -> None:
        """Write the vocabulary to a folder."""
        self._tokenizer.save(str(folder / NAME))

    @property
    def num_tokens(self) -> int:
        """Number of ids."""
        return self._tokenizer.get_vocab_size() + _NUM_SPECIAL

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids (l,) of each text, with start and end."""
        encoded: list[NDArray[np.int32]] = []
        for first in range(0, len(texts), _AT_A_TIME):
            batch = list(texts[first : first + _AT_A_TIME])
            for encoding in self._tokenizer.encode_batch(batch):
                ids = [START, *(number + _NUM_SPECIAL for number in encoding.ids), END]
                encoded.append(np.array(ids, np.int32))
        return encoded

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without start and end; bytes that are no UTF-8 become U+FFFD."""
        ordinary = range(_NUM_SPECIAL, self.num_tokens)
        return self._tokenizer.decode([id_ - _NUM_SPECIAL for id_ in ids if id_ in ordinary])


def _package() -> Any:  # noqa: ANN401
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise missing_package("translation", "tokenizers", "translation") from error

    return tokenizers
