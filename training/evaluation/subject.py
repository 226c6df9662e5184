"""A model and the data on which it is measured, checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.models.decoder import Decoder
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.remi.remi import Remi
from training.data.corpus import Corpus, note_ids, read_facts
from training.data.masks import masked_ids
from training.errors import TrainingError
from training.runs.weights import Origin, load_decoder, model_folder, round_as_released


class Subject(NamedTuple):
    """A model with the tokenizer of some data."""

    place: Path
    """Folder of the run or of the released model."""
    decoder: Decoder
    """In evaluation mode; its weights are rounded as for a release."""
    origin: Origin
    tokenizer: Remi


def load_subject(model: str, data: Path, weights: str) -> Subject:
    """Load a model by the folder of a run, or by the folder or name of a released model.

    Raises:
        TrainingError: the model and the data have different vocabularies.
    """
    tokenizer = load_tokenizer(data)
    size = len(tokenizer.vocabulary)
    place = model_folder(model)
    of_model = load_tokenizer(place).vocabulary.hash
    if of_model != tokenizer.vocabulary.hash:
        presets = [
            name for name, preset in PRESETS.items() if preset.build().vocabulary.hash == of_model
        ]
        raise TrainingError(
            f"{place}: the model has another vocabulary than {data}; give data that was prepared "
            f"with --tokenizer {' or '.join(presets) or 'of the model'}"
        )
    decoder, origin = load_decoder(model, weights)
    if decoder.config.vocabulary_size < size:
        raise TrainingError(
            f"{place}: the model has {decoder.config.vocabulary_size} token ids, expected the "
            f"{size} of its tokenizer"
        )
    round_as_released(decoder)
    return Subject(place, decoder.eval(), origin, tokenizer)


def load_split(data: Path, split: str, option: str = "--split", only: Sequence[str] = ()) -> Corpus:
    """Return a split of a corpus; of a mixture, the corpora `only`, or all if it is empty.

    Raises:
        TrainingError: there is no such split or corpus, or it is empty; the message names `option`.
    """
    corpus = Corpus.load(data, split, only)
    if not len(corpus) and only:
        raise TrainingError(
            f"{data}: the split {split!r} has no pieces of {', '.join(only)}; choose other corpora "
            "with --corpora, or another split"
        )
    if not len(corpus):
        splits = read_facts(data)["splits"]
        others = [f"{name} has {entry['files']}" for name, entry in splits.items()]
        raise TrainingError(
            f"{data}: split {split!r} is empty; choose another one with {option} "
            f"({', '.join(others)})"
        )
    return corpus


class MeasuredPieces(NamedTuple):
    """Pieces of a corpus on which models are measured."""

    ids: list[NDArray[np.int64]]
    hidden: list[NDArray[np.bool_]]
    """Which tokens of each piece are not predicted; see `training.data.masks`."""
    notes: list[int]
    """Number of notes of each piece."""

    @classmethod
    def of(
        cls, corpus: Corpus, tokenizer: Remi, most: int | None = None, tokens: int | None = None
    ) -> MeasuredPieces:
        """Return all pieces, or at most `most`, evenly spaced; all or the first tokens of each."""
        count = min(most or len(corpus), len(corpus))
        indices = [index * len(corpus) // count for index in range(count)]
        ids = [np.asarray(corpus.piece(index, stop=tokens), np.int64) for index in indices]
        flags = [corpus.facts(index).masked for index in indices]
        vocabulary, of_notes = tokenizer.vocabulary, note_ids(tokenizer)
        hidden = [masked_ids(*pair, vocabulary) < 0 for pair in zip(ids, flags, strict=True)]
        return cls(ids, hidden, [int(np.isin(piece[1:], of_notes).sum()) for piece in ids])

    @property
    def num_tokens(self) -> int:
        """Number of all tokens except the first of each piece."""
        return sum(len(piece) - 1 for piece in self.ids)
