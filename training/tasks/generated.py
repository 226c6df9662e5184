"""Tasks whose sequences are generated: what a model can recall, copy and track.

A sequence has inputs, and at some of its positions a target, which is a function of the inputs up
to that position. A task is a dataclass with a `kind` and one method that draws sequences; this file
has everything else.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from relpe.models.pointer.config import BalanceConfig, PointerConfig
from relpe.models.pointer.pointer import Pointer
from training.errors import TrainingError, check_range
from training.files import markdown
from training.learning.positions import positions_of
from training.learning.seeding import generator
from training.tasks.module import TaskModule
from training.tasks.task import Measured, Results, Split, Task, check_vocabulary

NO_TARGET = -1
"""Target of a position at which nothing is asked."""
VALIDATION_EXAMPLES = 128
_ATTEMPTS = 64


class GeneratedModule(TaskModule[Decoder]):
    """A decoder that predicts targets at some positions of sequences."""

    def positions(self, tokens: Tensor) -> Tensor:
        """Return the positions (1 or b, l, p) of tokens (b, l)."""
        return positions_of(tokens, self.decoder.num_axes)

    def losses(self, batch: Tensor, state: DecoderState) -> Iterator[Tensor]:
        """Return the negative log-likelihood of the targets, in nats."""
        tokens, targets = batch.unbind(-1)
        logits, _ = self.decoder(tokens, self.positions(tokens), state)
        logits = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
        yield cross_entropy(logits, targets.flatten(), ignore_index=NO_TARGET, reduction="sum")

    def num_targets(self, batch: Tensor) -> Tensor:
        """Return the number of positions that have a target."""
        return (batch[..., 1] != NO_TARGET).sum()


@dataclass(frozen=True, kw_only=True)
class DrawnTask(Task):
    """A task whose examples are drawn, and are tested at several sizes."""

    has_splits = False

    data: None = None
    """Examples that are drawn are read from no data."""
    size: int
    """Size of training examples, which is a largest or a mean one; what it counts depends on the
    task."""
    test_sizes: tuple[int, ...]
    """Sizes of the examples that `relpe-train evaluate` measures."""
    test_examples: int = 256
    """Number of test examples of each size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.test_sizes or min(self.test_sizes) < 1:
            raise TrainingError(
                f"test_sizes are {list(self.test_sizes)}, expected at least one positive size"
            )
        check_vocabulary(self.model.vocabulary_size, self.num_tokens)

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Number of different tokens."""

    @property
    def name(self) -> str:
        """Name of the task for tables."""
        return self.kind

    @property
    def source(self) -> str:
        """The name of the task."""
        return f"generated: {self.name}"


@dataclass(frozen=True, kw_only=True)
class GeneratedTask(DrawnTask):
    """Prediction of the targets of generated sequences, in steps of one size each."""

    module = GeneratedModule
    evaluated_at_once = 64

    model: DecoderConfig
    smallest: int = 8
    """Smallest size of training examples; each step has one size, drawn at random."""
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_range("smallest", self.smallest, 1)
        check_range("size", self.size, self.smallest)
        super().__post_init__()
        if self.model.events is not None:
            raise TrainingError("model.events: generated sequences have no events; leave it out")

    @property
    @abstractmethod
    def chance(self) -> float:
        """Expected accuracy of an answer that does not depend on the inputs."""

    @abstractmethod
    def length_of(self, size: int) -> int:
        """Return the tokens of an example of a size."""

    @abstractmethod
    def examples(self, draws: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
        """Draw examples (count, l, 2): inputs, and targets or NO_TARGET."""

    @property
    def length(self) -> int:
        """Tokens of the longest training examples."""
        return self.length_of(self.size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step of the largest size; budgets count every step like this."""
        return self.batch_size * self.length

    def draw(
        self, draws: np.random.Generator, count: int, size: int, split: Split
    ) -> NDArray[np.int64]:
        """Draw examples (count, l, 2) of a split. No sequence of inputs belongs to two splits.

        Raises:
            TrainingError: there are too few sequences of this size.
        """
        examples = np.empty((0, self.length_of(size), 2), np.int64)
        for _ in range(_ATTEMPTS):
            more = self.examples(draws, 2 * count, size)
            mine = [split_of(row[:, 0]) == split for row in more]
            examples = np.concatenate([examples, more[mine]])
            if len(examples) >= count:
                return examples[:count]
        raise TrainingError(
            f"there are too few sequences of size {size} for the split {split}; use larger sizes"
        )

    def test_set(self, size: int) -> Tensor:
        """Return the test examples (n, l, 2) of a size, which are the same for all runs."""
        draws = generator(0, size, "test")
        return torch.from_numpy(self.draw(draws, self.test_examples, size, "test"))

    def training_examples(self) -> None:
        """Return None: the examples of a step have a size that is drawn."""

    def held_out(self, world: int) -> NDArray[np.int64]:
        """Return the examples of the largest size in training."""
        count = -(-VALIDATION_EXAMPLES // world) * world
        return self.draw(generator(0, self.size, "validation"), count, self.size, "validation")

    def batch(self, examples: NDArray[np.int64], numbers: Sequence[int]) -> Tensor:
        """Return the rows (b, l, 2)."""
        return torch.from_numpy(examples[numbers])

    def batches(self, examples: None, seed: int, rows: range) -> GeneratedBatches:
        """Return the batches of a size that depends on the step."""
        return GeneratedBatches(self, seed, rows)

    def evaluate(self, model: Decoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the answers to the test examples of each size."""
        tokens = self.test_set(self.size)[:batch_size, :, 0].to(model.embedding.weight.device)
        positions, state = positions_of(tokens, model.num_axes), model.init_state(len(tokens))
        by_size = {
            str(size): answers(model, self.test_set(size), batch_size)._asdict()
            for size in self.test_sizes
        }
        results = {
            "task": self.kind,
            "size": self.size,
            "chance": self.chance,
            "answers": by_size,
        }
        return Measured(results, lambda: model(tokens, positions, state), len(tokens))

    def summary(self, results: Results) -> list[str]:
        """Return a Markdown table."""
        rows = [
            (f"{size}{beyond(size, results)}", f"{of['tokens']:.1%}", f"{of['examples']:.1%}")
            for size, of in results["answers"].items()
        ]
        chance = "chance", f"{results['chance']:.1%}", ""
        return [*markdown([("size", "token accuracy", "exact match"), *rows, chance]), ""]


def beyond(size: str, results: Results) -> str:
    """Return a note behind a size that is larger than those in training."""
    return "" if int(size) <= results["size"] else ", beyond training"


def split_of(inputs: NDArray[np.integer[Any]]) -> Split:
    """Return the split of a sequence of inputs (l,), by a hash of its content."""
    part = hashlib.blake2b(inputs.tobytes(), digest_size=1).digest()[0] % 16
    return "train" if part > 1 else ("validation", "test")[part]


class GeneratedBatches:
    """Training batches; that of a step depends only on (seed, step)."""

    def __init__(self, task: GeneratedTask, seed: int, rows: range) -> None:
        self._task, self._seed, self._rows = task, seed, rows

    def __getitem__(self, step: int) -> Tensor:
        """Return the rows (b, l, 2) of this process."""
        task, draws = self._task, generator(self._seed, step, "data")
        size = int(draws.integers(task.smallest, task.size + 1))
        batch = task.draw(draws, task.batch_size, size, "train")
        return torch.from_numpy(batch[self._rows.start : self._rows.stop])


class Answers(NamedTuple):
    """Share of right answers to examples of one size."""

    tokens: float
    """Of all targets: token accuracy."""
    examples: float
    """Of all examples, those whose targets are all right: exact match."""


def answers(decoder: Decoder, examples: Tensor, batch_size: int) -> Answers:
    """Return share of right answers to examples (n, l, 2), by the most likely token at each target.

    If the model has a pointer, it is that of the mixture with its proposals.
    """
    device = decoder.embedding.weight.device
    right = asked = exact = 0
    with torch.inference_mode():
        for batch in examples.split(batch_size):
            tokens, targets = batch.to(device).unbind(-1)
            state = decoder.init_state(len(batch))
            logits, _ = decoder(tokens, positions_of(tokens, decoder.num_axes), state)
            if decoder.config.pointer is not None:
                logits = with_pointer(decoder.config.pointer, tokens, logits)
            is_target = targets != NO_TARGET
            hits = (logits.argmax(-1) == targets) & is_target
            right, asked = right + int(hits.sum()), asked + int(is_target.sum())
            exact += int((hits == is_target).all(-1).sum())
    return Answers(right / asked, exact / len(examples))


def with_pointer(config: PointerConfig, tokens: Tensor, logits: Tensor) -> Tensor:
    """Return log-probabilities (b, l, v) of a decoder mixed with a pointer, up to a constant.

    See `relpe.models.pointer`. The balance of generation is left out.
    """
    ids, mixed = np.arange(logits.shape[-1]), np.empty(logits.shape)
    scores = logits.float().cpu().numpy()
    for row, given in enumerate(tokens.tolist()):
        pointer = Pointer(replace(config, balance=BalanceConfig()))
        for place, token in enumerate(given):
            pointer.extend([token])
            mixed[row, place] = pointer.mix(scores[row, place], ids)
    return torch.from_numpy(mixed).to(logits.device)
