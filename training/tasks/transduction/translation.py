"""The task `translation`: parallel text, from files.

The set-up is that of Kogkalidis, Bernardy and Garg (2024): a joint vocabulary of source and target,
label smoothing, and beam search.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.beam import beam_search
from relpe.models.encoder_decoder.model import EncoderDecoder
from training.errors import TrainingError, check_range
from training.tasks.batches import Passes, parts_of
from training.tasks.generated import NO_TARGET, split_of
from training.tasks.task import Measured, Results, Split, mean_of
from training.tasks.transduction.bpe import END, LEAST, Bpe
from training.tasks.transduction.pair_task import START, PairTask, nats_of, perplexity
from training.tasks.transduction.pairs import Pair, batch_of
from training.tasks.transduction.parallel_text import TextPair, read_parallel
from training.tasks.transduction.quality import (
    TABLE,
    quality,
    sacrebleu_metrics,
    write_translations,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TranslationTask(PairTask):
    """Prediction of translations.

    Each part of a split is a `.tsv` or `.mo` file, or two files, of which the first has the sources
    and the second the targets, line by line; see `read_parallel`. The vocabulary has
    `model.vocabulary_size` ids and is learned from the training split.
    """

    noun = "a model of translation"

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
        check_range("beams", self.beams, 1)
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
    def tokens_per_step(self) -> int:
        """Tokens of a step with targets of the largest length; budgets count every step like this.

        This does not depend on the data, which need not be there.
        """
        return self.batch_size * self.longest

    @cached_property
    def tokenizer(self) -> Bpe:  # pyright: ignore[reportIncompatibleVariableOverride] - others: None
        """The vocabulary of the training split; that of a run is stored in its folder."""
        texts = [text for pair in self.texts("train") for text in pair]
        return Bpe.train(texts, self.model.vocabulary_size)

    def texts(self, split: Split) -> list[TextPair]:
        """Return the pairs of a split; no source in the files of `train` belongs to two splits.

        Raises:
            TrainingError: the files cannot be used, or there are no such pairs.
        """
        files = {"train": (), "validation": self.validation, "test": self.test}
        pairs = self._read(files[split] or self.train)
        if not files[split]:  # equal pairs are one pair, in one split
            drawn = [name for name in ("validation", "test") if not files[name]]
            pairs = [
                pair
                for pair in dict.fromkeys(pairs)
                if split == (part if (part := _part_of(pair.source)) in drawn else "train")
            ]
        if not pairs:
            raise TrainingError(
                f"{self.data}: there are no pairs in the split {split}; give more text"
            )
        return pairs

    def pairs(self, split: Split, tokenizer: Bpe) -> EncodedPairs:
        """Return the pairs of a split as ids; training pairs that are too long are left out."""
        pairs = EncodedPairs(self.texts(split), tokenizer)
        if split != "train":
            return pairs
        sizes = pairs.lengths
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
        return pairs.some(np.flatnonzero(kept))

    def most_tokens(self, source: int) -> int:
        """Return the most tokens of the translation of a source with a number of tokens."""
        return math.ceil(self.longest_translation * source) + 10

    def training_examples(self) -> EncodedPairs:
        """Return the training pairs."""
        return self.pairs("train", self.tokenizer)

    def held_out(self, world: int) -> EncodedPairs:
        """Return the validation pairs by length; batches of similar lengths have less padding."""
        pairs = self.pairs("validation", self.tokenizer)
        order = np.argsort(pairs.lengths[: self.validation_examples].max(1), kind="stable")
        return pairs.some(order)

    def content(self, examples: EncodedPairs) -> list[bytes]:
        """Return all training pairs."""
        return [examples.digest().encode()]

    def passes(self, examples: EncodedPairs, seed: int) -> Passes:
        """Return the numbers of pairs of similar lengths."""
        return Passes(len(examples), self.batch_size, seed, examples.lengths.max(1))

    def evaluate(self, model: EncoderDecoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the translations of a split, with the vocabulary of the run."""
        metrics, tokenizer = sacrebleu_metrics(), Bpe.load(run)
        texts = self.texts(split)[: self.test_examples]
        pairs = EncodedPairs(texts, tokenizer)
        nats, tokens = likelihood(model, pairs, batch_size)
        references = [pair.target for pair in texts]
        translations = {
            label: [
                tokenizer.decode(ids)
                for ids in translated(model, replace(self, beams=beams), pairs, batch_size)
            ]
            for label, beams in {"greedy": 1, "beam": self.beams}.items()
        }
        sources = [pair.source for pair in texts]
        results = {
            "task": self.kind,
            "split": split,
            "pairs": len(pairs),
            "tokens": tokens,
            "perplexity": perplexity(nats, tokens),
            "translated": {
                label: quality(metrics, lines, references)._asdict()
                for label, lines in (*translations.items(), ("source", sources))
            },
        }
        results["signatures"] = {
            key: str(metric.get_signature()) for key, metric in metrics.items()
        }
        batch = batch_of(pairs[:batch_size]).to(model.embedding.weight.device)
        return Measured(
            results,
            lambda: nats_of(model, batch, model.init_state(len(batch))),
            len(batch),
            lambda folder: write_translations(folder / TABLE, texts, *translations.values()),
        )

    @staticmethod
    def columns(runs: Sequence[Results]) -> list[dict[str, str]]:
        """Return a row for each way to search, and one for the source."""
        first, rows = runs[0], []
        beams = first["settings"]["task"]["beams"]
        searches = {"greedy": "greedy", "beam": f"{beams} beams", "source": "none: the source"}
        for key, search in searches.items():
            measured = [results["translated"][key] for results in runs]
            means = {
                name: mean_of([values[name] for values in measured], 1)
                for name in ("bleu", "chrf", "exact")
            }
            rows.append(
                {
                    "task": f"{first['task']}, {first['split']}",
                    "perplexity": mean_of([results["perplexity"] for results in runs], 2),
                    "search": search,
                    "BLEU": means["bleu"],
                    "chrF": means["chrf"],
                    "exact match": f"{means['exact']} %",
                    "pairs": f"{first['pairs']:,}",
                }
            )
        return rows

    @staticmethod
    def notes(entries: Sequence[Results]) -> list[str]:
        """Return what the source is, and how sacrebleu measures."""
        signatures = sorted({text for of in entries for text in of["signatures"].values()})
        (means,) = PairTask.notes(entries)
        return [
            f"{means} The source is what the measures are if nothing is translated.",
            f"sacrebleu: {'; '.join(signatures)}.",
        ]

    def _read(self, parts: Sequence[Sequence[str]]) -> list[TextPair]:
        pairs = [pair for names in parts for pair in read_parallel(self.data, names)]
        return [pair for pair in pairs if not (self.drop_equal and pair.source == pair.target)]


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
        """Return the pairs with these numbers."""
        pairs = EncodedPairs.__new__(EncodedPairs)
        pairs._sources = [self._sources[number] for number in numbers]
        pairs._targets = [self._targets[number] for number in numbers]
        return pairs

    def digest(self) -> str:
        """Return the SHA-256 of all ids."""
        hasher = hashlib.sha256()
        for text in (*self._sources, *self._targets):
            hasher.update(text.tobytes())
        return hasher.hexdigest()

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a pair, or a list of them
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        source, target = self._sources[index], self._targets[index]
        return Pair(source[:, None].astype(np.int64), target[:, None].astype(np.int64))


@torch.inference_mode()
def likelihood(model: EncoderDecoder, pairs: Sequence[Pair], batch_size: int) -> tuple[float, int]:
    """Return negative log-likelihoods of the targets, in nats, and the number of tokens."""
    nats, tokens = 0.0, 0
    for part in parts_of(by_length(pairs), batch_size, "likelihood"):
        batch = batch_of([pairs[number] for number in part]).to(model.embedding.weight.device)
        nats += float(nats_of(model, batch, model.init_state(len(batch))))
        tokens += int((batch.targets != NO_TARGET).sum())
    return nats, tokens


@torch.inference_mode()
def translated(
    model: EncoderDecoder, task: TranslationTask, pairs: Sequence[Pair], batch_size: int
) -> list[list[int]]:
    """Return the best translation of each source by beam search, as ids after the start."""
    translations: list[list[int]] = [[] for _ in pairs]
    label = f"translate, {task.beams} at a time"
    for part in parts_of(by_length(pairs), batch_size, label):
        batch = batch_of([pairs[number] for number in part]).to(model.embedding.weight.device)
        most = [task.most_tokens(len(pairs[number].source)) for number in part]
        best = beam_search(
            *(model, batch.read_by(model), START, END, most),
            beams=task.beams,
            strength=task.length_penalty,
        )
        for number, (first, *_) in zip(part, best, strict=True):
            translations[number] = first.tokens
    return translations


def by_length(pairs: Sequence[Pair]) -> list[int]:
    """Return the numbers of pairs, those with short sources first."""
    return sorted(range(len(pairs)), key=lambda number: len(pairs[number].source))
