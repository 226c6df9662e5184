"""The task `music`: next-token prediction with a decoder."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from torch.utils.data import DataLoader

from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import Families, closing_ids
from training.config import OptimizerConfig, TrainerConfig
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus, read_facts, windows
from training.data.documents import Documents, DocumentShares
from training.errors import TrainingError, check_range
from training.learning.chunked_loss import negative_log_likelihoods, num_predicted
from training.learning.distributed import ALONE, Processes, rows_of
from training.learning.positions import AXES
from training.tasks.batches import StepData
from training.tasks.module import TaskModule, new_model

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MusicTask:
    """Next-token prediction on randomly transposed parts of pieces."""

    kind: Literal["music"] = "music"
    data: Path
    """Folder of a corpus written by `relpe-train prepare`."""
    corpora: tuple[str, ...] = ()
    """Names of the corpora of a mixture that are used; []: all."""
    model: DecoderConfig
    """Configuration of the model."""
    length: int = 1024
    """Tokens per example."""
    batch_size: int = 4
    """Examples per step, in all processes and micro-batches together."""
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
        for name in ("length", "batch_size", "validation_windows"):
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

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> MusicData:
        """Build the data of one process.

        Raises:
            TrainingError: the corpus does not match the model or the tokenizer, or the batch cannot
                be divided among the processes.
        """
        return MusicData(self, trainer, processes)

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
    def tokenizer(self) -> Remi:
        """The tokenizer of the data."""
        return load_tokenizer(self.data)

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> MusicModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        axes = 1 + len(AXES)
        decoder = new_model(self.decoder_config(self.data), trainer.seed, axes)
        families = load_tokenizer(self.data).families
        return MusicModule(decoder, self, optimizer, trainer, families)


class MusicData(StepData):
    """Training examples and validation windows."""

    def __init__(
        self, task: MusicTask, trainer: TrainerConfig, processes: Processes = ALONE
    ) -> None:
        facts = read_facts(task.data)
        tokenizer = load_tokenizer(task.data)
        if facts["vocabulary"] != tokenizer.vocabulary.hash:
            raise TrainingError(
                f"{task.data}: the vocabularies of the corpus and of its tokenizer differ; prepare "
                "the corpus again"
            )
        vocabulary_size, used = task.model.vocabulary_size, len(tokenizer.vocabulary)
        sizes = (
            f"task.model.vocabulary_size is {vocabulary_size}, but the tokenizer of {task.data} "
            f"has {used} ids"
        )
        if vocabulary_size < used:
            raise TrainingError(f"{sizes}; set task.model.vocabulary_size={used}")
        if vocabulary_size > used and not processes.rank:
            logger.warning(
                "%s; the other ids are unused. Check that the config is meant for this data", sizes
            )
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        examples = _examples(task, tokenizer, rows, trainer.seed)
        longest = examples.corpus.longest
        if task.length > 2 * longest:
            raise TrainingError(
                f"task.length is {task.length}, but the longest piece of {task.data} has {longest} "
                f"tokens, so examples would be mostly padding; use --set task.length={longest}"
            )
        super().__init__(examples, rows, trainer, processes)
        self.facts = facts
        validation = Corpus.load(task.data, "validation", task.corpora)
        self.held_out = windows(validation, tokenizer, task.length, task.validation_windows)

    @property
    def validates(self) -> bool:
        """Whether there are validation windows."""
        return len(self.held_out) > 0

    def val_dataloader(self) -> DataLoader[Tensor]:
        """Return the validation windows of this process."""
        return self.validation_loader(self.held_out)


def _examples(task: MusicTask, tokenizer: Remi, rows: range, seed: int) -> Documents:
    """Return the training examples of one process. Raises TrainingError."""
    settings: dict[str, Any] = {
        "corpus": Corpus.load(task.data, "train", task.corpora),
        "tokenizer": tokenizer,
        "length": task.length,
        "batch_size": len(rows),
        "first_row": rows.start,
        "seed": seed,
        "beginnings": task.beginnings,
        "transposition": task.transposition,
        "augmentation": task.augmentation,
    }
    return Documents(**settings, shares=task.documents)


class MusicModule(TaskModule[Decoder]):
    """A decoder that predicts the next token of music."""

    def __init__(
        self,
        decoder: Decoder,
        task: MusicTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
        families: Families,
    ) -> None:
        super().__init__(decoder, task, optimizer, trainer)
        self._families = families

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
