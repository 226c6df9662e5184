"""Nats per note of some pieces, before and after a tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.models.decoder import Decoder
from relpe.models.pointer.config import PointerConfig
from relpe.models.pointer.odds import PointerOdds, pointer_odds
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import Families
from training.data.corpus import Corpus, read_facts
from training.errors import TrainingError
from training.evaluation.likelihood import predicted, streaming_nats
from training.evaluation.subject import MeasuredPieces, load_split

MOST_TOKENS: Final = 16_384
"""Tokens that are measured; of more, the beginnings of all pieces."""
MOST_PIECES: Final = 32
_FEWEST_TOKENS = 512
_CHUNK, _ROWS = 1024, 8


class Nats(NamedTuple):
    """Nats per note."""

    decoder: float
    mixture: float | None
    """With the pointer; None for a model without one."""


@dataclass(frozen=True)
class Measure:
    """Pieces that are measured several times with different weights."""

    pieces: MeasuredPieces
    odds: Sequence[PointerOdds] | None

    @classmethod
    def of(cls, corpus: Corpus, tokenizer: Remi, pointer: PointerConfig | None) -> Measure:
        """Return a measure of all pieces of a corpus, up to `MOST_PIECES`, evenly spaced.

        Raises:
            TrainingError: there are no notes in them.
        """
        most = max(MOST_TOKENS // max(min(len(corpus), MOST_PIECES), 1), _FEWEST_TOKENS)
        pieces = MeasuredPieces.of(corpus, tokenizer, MOST_PIECES, most)
        if not sum(pieces.notes):
            raise TrainingError("the pieces to measure have no notes; give other pieces")
        odds = None if pointer is None else [pointer_odds(pointer, piece) for piece in pieces.ids]
        return cls(pieces, odds)

    @property
    def notes(self) -> int:
        """Number of notes of all pieces."""
        return sum(self.pieces.notes)

    def decoder_only(self, decoder: Decoder, families: Families) -> float:
        """Return the nats per note without the pointer."""
        return self._per_note(self._nats(decoder, families))

    def __call__(self, decoder: Decoder, families: Families) -> Nats:
        """Return the nats per note, without and with the pointer."""
        nats = self._nats(decoder, families)
        mixed = None
        if self.odds is not None:
            pairs = zip(self.odds, nats, strict=True)
            mixed = self._per_note([odds.mixed(values) for odds, values in pairs])
        return Nats(self._per_note(nats), mixed)

    def _nats(self, decoder: Decoder, families: Families) -> list[NDArray[np.float64]]:
        return streaming_nats(decoder, self.pieces.ids, _CHUNK, _ROWS, families=families)

    def _per_note(self, nats: list[NDArray[np.float64]]) -> float:
        return float(np.nansum(np.concatenate(predicted(nats, self.pieces.hidden)))) / self.notes


def of_corpus(data: Path, tokenizer: Remi, decoder: Decoder) -> Measure:
    """Return a measure of the validation split of a prepared corpus.

    Raises:
        TrainingError: it is not a prepared corpus with this vocabulary.
    """
    if read_facts(data)["vocabulary"] != tokenizer.vocabulary.hash:
        raise TrainingError(
            f"--original {data}: the corpus has another vocabulary than the model; give the corpus "
            "with which the model was trained"
        )
    corpus = load_split(data, "validation", "--original")
    return Measure.of(corpus, tokenizer, decoder.config.pointer)
