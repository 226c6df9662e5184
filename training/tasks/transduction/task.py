"""Tasks whose pairs are drawn: a dataclass with a `kind` and a method that draws pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from relpe.decoding.transduce import Target, transduce
from relpe.models.encoder_decoder.model import EncoderDecoder
from training.errors import TrainingError, check_range
from training.learning.seeding import Stream, generator
from training.tasks.batches import NewNumbers, Passes, parts_of
from training.tasks.generated import NO_TARGET, DrawnTask, beyond, split_of
from training.tasks.task import Measured, Results, Split, mean_of
from training.tasks.transduction.pair_task import START, PairTask, nats_of, perplexity
from training.tasks.transduction.pairs import Pair, batch_of

_STREAMS: dict[Split, Stream] = {"train": "data", "validation": "validation", "test": "test"}
_ATTEMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class TransductionTask(DrawnTask, PairTask):
    """Prediction of the targets of generated sources."""

    noun = "an encoder-decoder"

    deviation: float
    """Standard deviation of sizes, which are normally distributed around `size` and rounded
    down."""
    train_examples: int | None = None
    """Number of different training examples; None: new ones in each step."""

    def __post_init__(self) -> None:
        check_range("size", self.size, 1)
        check_range("deviation", self.deviation, 0)
        super().__post_init__()

    @property
    @abstractmethod
    def target_tokens(self) -> int:
        """Number of tokens of a target of the mean size, about."""

    @abstractmethod
    def draw(self, draws: np.random.Generator, size: int) -> Pair | None:
        """Draw a pair of a size; None if this draw has none."""

    @abstractmethod
    def target_of(self, pair: Pair) -> Target:
        """Return the empty target of a pair, for generation; it knows the source only."""

    @property
    def tokens_per_step(self) -> int:
        """Target tokens of a step of the mean size; budgets count every step like this."""
        return self.batch_size * self.target_tokens

    def example(self, split: Split, index: int, size: int | None = None) -> Pair:
        """Return an example of a split, always the same for an index.

        `size` is the mean size, `self.size` if it is None. No source belongs to two splits.

        Raises:
            TrainingError: there are too few sources of this size.
        """
        mean = self.size if size is None else size
        draws = generator(mean, index, _STREAMS[split])
        for _ in range(_ATTEMPTS):
            drawn = self.draw(draws, max(1, int(draws.normal(mean, self.deviation))))
            if drawn is not None and split_of(drawn.source) == split:
                return drawn
        raise TrainingError(
            f"there are too few sources of size {mean} for the split {split}; choose another size, "
            "or a larger deviation"
        )

    def test_set(self, size: int) -> list[Pair]:
        """Return the test examples of a mean size, which are the same for all runs."""
        return [self.example("test", index, size) for index in range(self.test_examples)]

    def training_examples(self) -> DrawnPairs:
        """Return the training examples."""
        return DrawnPairs(self, "train", self.train_examples or 0)

    def held_out(self, world: int) -> DrawnPairs:
        """Return the validation examples, and as many more as make them a multiple of `world`."""
        return DrawnPairs(self, "validation", -(-self.validation_examples // world) * world)

    def passes(self, examples: DrawnPairs, seed: int) -> Passes | NewNumbers:
        """Return the numbers of the examples of each step."""
        if self.train_examples is None:
            return NewNumbers(self.batch_size, seed)
        return super().passes(examples, seed)

    def evaluate(self, model: EncoderDecoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the targets of the test examples of each size."""
        batch = batch_of(self.test_set(self.test_sizes[0])[:batch_size])
        batch = batch.to(model.embedding.weight.device)
        by_size = {
            str(size): transduced(model, self, self.test_set(size), batch_size)._asdict()
            for size in self.test_sizes
        }
        results = {"task": self.name, "size": self.size, "transduced": by_size}
        return Measured(
            results, lambda: nats_of(model, batch, model.init_state(len(batch))), len(batch)
        )

    @staticmethod
    def columns(runs: Sequence[Results]) -> list[dict[str, str]]:
        """Return a row for each size."""
        rows: list[dict[str, str]] = []
        for size, first in runs[0]["transduced"].items():
            measured = [results["transduced"][size] for results in runs]
            exact = mean_of([100 * values["exact"] for values in measured], 1)
            rows.append(
                {
                    "task": runs[0]["task"],
                    "size": f"{size}{beyond(size, runs[0])}",
                    "perplexity": mean_of([values["perplexity"] for values in measured], 3),
                    "exact match": f"{exact} %",
                    "examples": f"{first['examples']:,}",
                }
            )
        return rows


@dataclass
class DrawnPairs(Sequence[Pair]):
    """Examples of a split, which are drawn when they are needed."""

    task: TransductionTask
    split: Split
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 - numbers only
        return self.task.example(self.split, number)


class Transduced(NamedTuple):
    """How well targets of one size are predicted."""

    perplexity: float
    """Exponential of the mean negative log-likelihood of target tokens, given those before."""
    exact: float
    """Share of the targets that are generated without an error, from the source alone."""
    examples: int


@torch.inference_mode()
def transduced(
    model: EncoderDecoder, task: TransductionTask, pairs: Sequence[Pair], batch_size: int
) -> Transduced:
    """Return the perplexity and exact match of greedy generation on some pairs.

    Generation sees the source only. It ends with the target, or after as many tokens as the longest
    target of a batch has.
    """
    nats, tokens, exact = 0.0, 0, 0
    ordered = sorted(pairs, key=lambda pair: len(pair.target))
    for part in parts_of(range(len(ordered)), batch_size, f"evaluate {task.name}"):
        some = [ordered[number] for number in part]
        batch = batch_of(some).to(model.embedding.weight.device)
        nats += float(nats_of(model, batch, model.init_state(len(batch))))
        tokens += int((batch.targets != NO_TARGET).sum())
        targets = [task.target_of(pair) for pair in some]
        answers = transduce(model, batch.read_by(model), START, targets, batch.targets.shape[1])
        references = [pair.target[1:, 0].tolist() for pair in some]
        exact += sum(map(list.__eq__, answers, references))
    return Transduced(perplexity(nats, tokens), exact / len(pairs), len(pairs))
