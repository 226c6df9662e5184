"""The task `translation`: parallel text, from files.

The set-up is that of Kogkalidis, Bernardy and Garg (2024): a joint vocabulary of source and target,
label smoothing, and beam search.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relpe.models.config import to_plain
from training.config import TrainerConfig
from training.errors import TrainingError, check_range
from training.learning.distributed import ALONE, Processes, rows_of
from training.tasks.batches import Passes
from training.tasks.generated import Split, split_of
from training.tasks.transduction.bpe import LEAST, Bpe
from training.tasks.transduction.pair_task import PairData, PairTask
from training.tasks.transduction.pairs import Pair, PairBatch, batch_of
from training.tasks.transduction.parallel_text import TextPair, read_parallel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TranslationTask(PairTask):
    """Prediction of translations.

    Each part of a split is a `.tsv` or `.mo` file, or two files, of which the first has the sources
    and the second the targets, line by line; see `read_parallel`. The vocabulary has
    `model.vocabulary_size` ids and is learned from the training split.
    """

    kind: Literal["translation"] = "translation"
    data: Path
    """Folder of the files."""
    train: tuple[tuple[str, ...], ...]
    """Names of the files of each part of the training split."""
    validation: tuple[tuple[str, ...], ...] = ()
    """Those of the validation split; none: a 16th of the sources in `train`."""
    test: tuple[tuple[str, ...], ...] = ()
    """Those of the test split; none: another 16th of the sources in `train`."""
    drop_equal: bool = False
    """Whether to leave out pairs of equal texts, such as names that are not translated."""
    longest: int = 100
    """Largest number of tokens of a training text, with start and end."""
    largest_ratio: float | None = None
    """Largest ratio of the numbers of tokens of the texts of a training pair; None: any."""
    validation_examples: int = 1000
    """Largest number of pairs of a validation."""
    test_examples: int | None = None
    """Largest number of pairs that `relpe-train evaluate` measures; None: all."""
    beams: int = 4
    """Number of translations that beam search keeps."""
    length_penalty: float = 0.6
    """Strength of the length penalty in beam search (Wu et al., 2016); 0: none."""
    longest_translation: float = 1.5
    """Largest number of tokens of a translation per token of its source; ten more are allowed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train:
            raise TrainingError("train names no files, expected at least one part")
        for name in ("test_examples", "beams"):
            check_range(name, getattr(self, name), 1)
        check_range("longest", self.longest, 3)
        check_range("largest_ratio", self.largest_ratio, 1)
        check_range("length_penalty", self.length_penalty, 0)
        check_range("longest_translation", self.longest_translation, 0)
        if self.model.vocabulary_size < LEAST:
            raise TrainingError(
                f"model.vocabulary_size is {self.model.vocabulary_size}, expected at least "
                f"{LEAST}: start, end and all bytes"
            )

    @property
    def name(self) -> str:
        """The kind."""
        return self.kind

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step with targets of the largest length; budgets count every step like this.

        This does not depend on the data, which need not be there.
        """
        return self.batch_size * self.longest

    @cached_property
    def tokenizer(self) -> Bpe:
        """The vocabulary of the training split; that of a run is stored in its folder."""
        texts = [text for pair in self.texts("train") for text in pair]
        return Bpe.train(texts, self.model.vocabulary_size)

    def texts(self, split: Split) -> list[TextPair]:
        """The pairs of a split; no source in the files of `train` belongs to two splits.

        Raises:
            TrainingError: the files cannot be used, or there are no such pairs.
        """
        own = {"train": (), "validation": self.validation, "test": self.test}
        found = self._read(own[split] or self.train)
        if not own[split]:  # equal pairs are one pair, in one split
            drawn = [name for name in ("validation", "test") if not own[name]]
            found = [
                pair
                for pair in dict.fromkeys(found)
                if split == (part if (part := _part_of(pair.source)) in drawn else "train")
            ]
        if not found:
            raise TrainingError(
                f"{self.data}: there are no pairs in the split {split}; give more text"
            )
        return found

    def pairs(self, split: Split, tokenizer: Bpe) -> EncodedPairs:
        """The pairs of a split as ids; training pairs that are too long are left out."""
        found = EncodedPairs(self.texts(split), tokenizer)
        if split != "train":
            return found
        sizes = found.lengths
        longer, shorter = sizes.max(1), sizes.min(1)
        kept = longer <= self.longest
        if self.largest_ratio is not None:
            kept &= longer <= self.largest_ratio * shorter
        if not kept.all():
            logger.info(
                "%s: left out %d of %d training pairs by their numbers of tokens",
                *(self.data, len(kept) - kept.sum(), len(kept)),
            )
        if not kept.any():
            raise TrainingError(
                f"{self.data}: no training pair has at most {self.longest} tokens; set task.longest"
            )
        return found.some(np.flatnonzero(kept))

    def most_tokens(self, source: int) -> int:
        """Largest number of tokens of the translation of a source with a number of tokens."""
        return math.ceil(self.longest_translation * source) + 10

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> TranslationData:
        """Build the data module of one process.

        Raises:
            TrainingError: the data cannot be used, or the batch cannot be divided among the
                processes.
        """
        return TranslationData(self, trainer, processes)

    def _read(self, parts: Sequence[Sequence[str]]) -> list[TextPair]:
        found = [pair for names in parts for pair in read_parallel(self.data, names)]
        return [pair for pair in found if not (self.drop_equal and pair.source == pair.target)]


def _part_of(source: str) -> Split:
    return split_of(np.frombuffer(source.encode(), np.uint8))


class EncodedPairs(Sequence[Pair]):
    """Pairs of texts as ids."""

    def __init__(self, texts: Sequence[TextPair], tokenizer: Bpe) -> None:
        self._sources = tokenizer.encode([pair.source for pair in texts])
        self._targets = tokenizer.encode([pair.target for pair in texts])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Numbers of tokens (n, 2) of sources and targets, with start and end."""
        both = [list(map(len, texts)) for texts in (self._sources, self._targets)]
        return np.array(both, np.int64).T

    def some(self, numbers: Sequence[int] | NDArray[np.int64]) -> EncodedPairs:
        """The pairs with these numbers."""
        found = EncodedPairs.__new__(EncodedPairs)
        found._sources = [self._sources[number] for number in numbers]
        found._targets = [self._targets[number] for number in numbers]
        return found

    def digest(self) -> str:
        """SHA-256 of all ids."""
        found = hashlib.sha256()
        for text in (*self._sources, *self._targets):
            found.update(text.tobytes())
        return found.hexdigest()

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a pair, or a list of them
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        source, target = self._sources[index], self._targets[index]
        return Pair(source[:, None].astype(np.int64), target[:, None].astype(np.int64))


class TranslationData(PairData):
    """Training pairs, starting at the trainer's current step, and validation pairs."""

    def __init__(self, task: TranslationTask, trainer: TrainerConfig, processes: Processes) -> None:
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        self._task, self._train = task, task.pairs("train", task.tokenizer)
        held_out = task.pairs("validation", task.tokenizer)
        # batches of similar lengths have less padding
        order = np.argsort(held_out.lengths[: task.validation_examples].max(1), kind="stable")
        self._held_out = held_out.some(order)
        super().__init__(Batches(task, self._train, trainer.seed, rows), rows, trainer, processes)

    def identity(self) -> tuple[str, str]:
        """The settings of the task and all training pairs."""
        settings = {k: v for k, v in to_plain(self._task).items() if k not in ("model", "data")}
        content = repr(sorted(settings.items())) + self._train.digest()
        return content, f"translation: {self._task.data}"

    def held_out(self, processes: Processes) -> Sequence[Pair]:
        """The validation pairs of a process; the last ones may be left out."""
        last = len(self._held_out) // processes.world * processes.world
        return self._held_out[processes.rank : last : processes.world]


class Batches:
    """Training batches of pairs of similar lengths; that of a step depends on (seed, step)."""

    def __init__(self, task: TranslationTask, pairs: EncodedPairs, seed: int, rows: range) -> None:
        self._pairs, self._rows = pairs, rows
        self._passes = Passes(len(pairs), task.batch_size, seed, pairs.lengths.max(1))

    def __getitem__(self, step: int) -> PairBatch:
        """The rows of this process."""
        chosen = self._passes[step][self._rows.start : self._rows.stop]
        return batch_of([self._pairs[number] for number in chosen.tolist()])
