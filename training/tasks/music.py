"""The task `music`: next-token prediction with a decoder."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import Families, closing_ids
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus, read_facts, windows
from training.data.documents import Documents, DocumentShares
from training.errors import TrainingError, check_range
from training.learning.chunked_loss import negative_log_likelihoods, num_predicted
from training.learning.positions import AXES
from training.tasks.module import TaskModule
from training.tasks.task import Task

logger = logging.getLogger(__name__)


class MusicModule(TaskModule[Decoder]):
    """A decoder that predicts the next token of music."""

    @cached_property
    def _families(self) -> Families:
        return self._task.tokenizer.families

    def losses(self, batch: Tensor, state: DecoderState) -> Iterator[Tensor]:
        """Return the sums of the negative log-likelihood of tokens.

        See `negative_log_likelihoods`.
        """
        return negative_log_likelihoods(
            self.decoder,
            batch,
            state,
            self._task.chunk,
            truncated=self._task.truncated,
            families=self._families,
        )

    def num_losses(self, batch: Tensor) -> int:
        """Yield one sum, or one per chunk if gradients stop at its boundaries."""
        cut = self._task.chunk if self._task.truncated else None
        return math.ceil((batch.shape[1] - 1) / (cut or batch.shape[1]))

    def num_targets(self, batch: Tensor) -> Tensor:
        """Return the number of tokens that are predicted; the first of a row is not."""
        return num_predicted(batch)


@dataclass(frozen=True, kw_only=True)
class MusicTask(Task):
    """Next-token prediction on randomly transposed parts of pieces."""

    module = MusicModule

    kind: Literal["music"] = "music"
    data: Path
    """Folder of a corpus written by `relpe-train prepare`."""
    corpora: tuple[str, ...] = ()
    """Names of the corpora of a mixture that are used; []: all."""
    model: DecoderConfig
    length: int = 1024
    """Tokens per example."""
    batch_size: int = 4
    chunk: int | None = None
    """Tokens of an example that pass through the model at a time, which bounds the memory of
    activations; the state is kept between chunks. None: all tokens at once."""
    truncated: bool = False
    """Whether gradients stop at chunk boundaries; if not, chunks do not change the results."""
    beginnings: float = 0.1
    """Share of accompaniments that are the beginning of a piece."""
    transposition: tuple[int, int] = (-5, 6)
    """Minimum and maximum transposition of an example in semitones."""
    augmentation: Augmentation = NOTHING
    """Further random changes to examples with several instruments."""
    documents: DocumentShares = field(default_factory=DocumentShares)
    """Kinds of documents."""
    validation_windows: int = 64
    """Number of windows of `length` tokens in a validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("length", "validation_windows"):
            check_range(name, getattr(self, name), 1)
        check_range("chunk", self.chunk, 1)
        if self.truncated and self.chunk is None:
            raise TrainingError("truncated is true without a chunk; set the chunk too")
        check_range("beginnings", self.beginnings, 0, 1)
        low, high = self.transposition
        if not -127 <= low <= high <= 127:
            raise TrainingError(
                f"transposition is {self.transposition}, expected a minimum and a maximum between "
                "-127 and 127"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step, padding included."""
        return self.batch_size * self.length

    @property
    def axes(self) -> int:
        """The index, and the coordinates of a token."""
        return 1 + len(AXES)

    def training_examples(self) -> Corpus:
        """Return the pieces for training.

        Raises:
            TrainingError: the corpus does not match the model or the tokenizer.
        """
        if self.facts()["vocabulary"] != self.tokenizer.vocabulary.hash:
            raise TrainingError(
                f"{self.data}: the vocabularies of the corpus and of its tokenizer differ; prepare "
                "the corpus again"
            )
        vocabulary_size, used = self.model.vocabulary_size, len(self.tokenizer.vocabulary)
        sizes = (
            f"task.model.vocabulary_size is {vocabulary_size}, but the tokenizer of {self.data} "
            f"has {used} ids"
        )
        if vocabulary_size < used:
            raise TrainingError(f"{sizes}; set task.model.vocabulary_size={used}")
        if vocabulary_size > used:
            logger.warning(
                "%s; the other ids are unused. Check that the config is meant for this data", sizes
            )
        corpus = Corpus.load(self.data, "train", self.corpora)
        longest = corpus.longest
        if longest and self.length > 2 * longest:
            raise TrainingError(
                f"task.length is {self.length}, but the longest piece of {self.data} has {longest} "
                f"tokens, so examples would be mostly padding; use --set task.length={longest}"
            )
        return corpus

    def batches(self, examples: Corpus, seed: int, rows: range) -> Documents:
        """Return the documents of a process by step; they depend on the seed and the step only."""
        return Documents(
            corpus=examples,
            tokenizer=self.tokenizer,
            length=self.length,
            batch_size=len(rows),
            first_row=rows.start,
            seed=seed,
            beginnings=self.beginnings,
            transposition=self.transposition,
            augmentation=self.augmentation,
            shares=self.documents,
        )

    def held_out(self, world: int) -> NDArray[np.int64]:
        """Return the windows for validation; those that fill the share of a process are padding."""
        corpus = Corpus.load(self.data, "validation", self.corpora)
        rows = windows(corpus, self.tokenizer, self.length, self.validation_windows)
        padding = np.zeros((-len(rows) % world, *rows.shape[1:]), np.int64)
        return np.concatenate([rows, padding])

    def batch(self, examples: NDArray[np.int64], numbers: Sequence[int]) -> Tensor:
        """Return the windows (b, l + 1)."""
        return torch.from_numpy(examples[numbers])

    def facts(self, examples: object = None) -> dict[str, Any]:
        """Return the facts about the corpus."""
        return read_facts(self.data)

    def decoder_config(self, folder: Path) -> DecoderConfig:
        """Return the configuration of the decoder.

        If the config does not state which tokens close an event, these are taken from the tokenizer
        in `folder`, which is that of the data or of a run.
        """
        events = self.model.events
        if events is None or events.closing:
            return self.model
        ids = closing_ids(load_tokenizer(folder).vocabulary)
        return replace(self.model, events=replace(events, closing=events.ranges(ids)))

    @property
    def tokenizer(self) -> Remi:  # pyright: ignore[reportIncompatibleVariableOverride] - others: None
        """The tokenizer of the data."""
        return load_tokenizer(self.data)
