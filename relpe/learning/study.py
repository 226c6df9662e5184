"""Study of one sequence: a decoder is tuned to its beginning before it continues it.

Some steps with corrections of low rank are taken on parts of the sequence. What is held back of it
tells how many of them help. Source: Krause et al. (2018), *Dynamic evaluation of neural sequence
models*, with corrections of low rank that are merged at the end.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from relpe.learning.low_rank import LowRankLinear, add_corrections, merge_corrections
from relpe.models.decoder import Decoder

NOT_PREDICTED = -1
"""Target of a token that is only read."""


class Passage(NamedTuple):
    """Parts of the sequence, each from an empty state."""

    tokens: Tensor
    """Ids (b, l) that the model reads."""
    targets: Tensor
    """Ids (b, l) of the tokens after them, or NOT_PREDICTED."""
    positions: Tensor
    """Positions (1 or b, l, p)."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """How a sequence is studied."""

    learning_rate: float = 2e-4
    """Of the corrections of low rank."""
    small_learning_rate: float = 2e-3
    """Of the small parameters."""
    usual_length: int = 2500
    """Length in tokens of a sequence with these learning rates. They grow with the square root of
    the length, from a quarter to twice of them: of little, little can be learned."""
    warm_up: int = 3
    """Steps until the learning rates are reached."""
    every: int = 3
    """Steps between two looks at what is held back."""
    patience: int = 3
    """Looks without a better result after which the study ends."""

    def for_length(self, length: int) -> StudyConfig:
        """Return the settings for a sequence of `length` tokens."""
        share = min(max((length / self.usual_length) ** 0.5, 0.25), 2.0)
        return replace(
            self,
            learning_rate=self.learning_rate * share,
            small_learning_rate=self.small_learning_rate * share,
        )


class Studied(NamedTuple):
    """The result of a study."""

    decoder: Decoder | None
    """A decoder of its own with the weights of `steps`; None if no step helped."""
    steps: int
    before: float
    """Nats per token of what is held back; NaN if it was not measured."""
    after: float


class _OneThread:
    """While code is in it, PyTorch computes with one thread.

    Sums in other orders round differently, and steps enlarge such differences.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside, self._usual = 0, 1

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)  # also of this thread, if another one is inside

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_num_threads(self._usual)


_ONE_THREAD = _OneThread()


class _Learner:
    """A copy of a decoder that learns.

    Its weights are averages over all steps, the released weights included, which draws them back.
    """

    def __init__(self, decoder: Decoder, config: StudyConfig) -> None:
        self.steps = 0
        self._decoder, self._config = copy.deepcopy(decoder), config
        self._parameters = add_corrections(self._decoder, torch.Generator().manual_seed(0))
        self._sums = [one.detach().clone() for one in self._parameters]
        corrections = {
            id(one)
            for module in self._decoder.modules()
            if isinstance(module, LowRankLinear)
            for one in (module.down, module.up)
        }
        groups = [
            {"params": [one for one in self._parameters if (id(one) in corrections) == is_low]}
            for is_low in (True, False)
        ]
        self._optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, passage: Passage) -> bool:
        """Take one step on a passage; return whether gradients were finite."""
        with _ONE_THREAD:
            return self._step(passage)

    def _step(self, passage: Passage) -> bool:
        self._decoder.train()
        self._optimizer.zero_grad(set_to_none=True)
        _nats(self._decoder, passage).backward()
        if not math.isfinite(nn.utils.clip_grad_norm_(self._parameters, 1.0)):
            return False
        self.steps += 1
        share = min(1.0, self.steps / self._config.warm_up)
        rates = self._config.learning_rate, self._config.small_learning_rate
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        self._optimizer.step()
        with torch.no_grad():
            for total, one in zip(self._sums, self._parameters, strict=True):
                total.add_(one)
        return True

    def averages(self) -> list[Tensor]:
        """Return what was learned so far."""
        return [total / (self.steps + 1) for total in self._sums]

    def nats(self, passage: Passage) -> float:
        """Return the nats per token of a passage by the averages."""
        now = [one.detach().clone() for one in self._parameters]
        self._set(self.averages())
        self._decoder.eval()
        with _ONE_THREAD, torch.inference_mode():
            nats = float(_nats(self._decoder, passage))
        self._set(now)
        return nats

    def finished(self, parameters: list[Tensor]) -> Decoder:
        """Return the decoder with these parameters, as an ordinary one.

        Nothing can be learned then.
        """
        with _ONE_THREAD:
            self._set(parameters)
            merge_corrections(self._decoder)
        return self._decoder.eval()

    def _set(self, parameters: list[Tensor]) -> None:
        with torch.no_grad():
            for one, value in zip(self._parameters, parameters, strict=True):
                one.copy_(value)


def study(
    decoder: Decoder,
    passage: Callable[[int], Passage],
    held: Passage,
    seconds: float,
    config: StudyConfig | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[float | Studied]:
    """Study a sequence for at most `seconds`; yield the share of the time, then the result.

    The decoder itself does not change. The study ends early when what is held back becomes no more
    likely, and when gradients are not finite. Closing the generator ends it too. The steps do not
    depend on the time that they take: `study_again` takes the same ones.

    Args:
        decoder: the model.
        passage: what is learned in each step, from 0 on.
        held: what is held back.
        seconds: when no further step begins.
        config: how it is studied.
        now: the clock.
    """
    config = config or StudyConfig()
    began = now()
    learner = _Learner(decoder, config)
    before = best = learner.nats(held)
    kept: tuple[int, list[Tensor]] = 0, []
    failures, slowest = 0, 0.0
    while failures < config.patience and math.isfinite(best):
        step_began = now()
        if not learner.step(passage(learner.steps)):
            break
        slowest = max(slowest, now() - step_began)
        spent = now() - began
        is_last = spent + slowest > seconds
        if is_last or learner.steps % config.every == 0:
            after = learner.nats(held)
            if after < best:
                best, failures = after, 0
                kept = learner.steps, learner.averages()
            else:
                failures += 1
        yield min(spent / seconds, 1.0)
        if is_last:
            break
    steps, parameters = kept
    yield Studied(learner.finished(parameters) if steps else None, steps, before, best)


def study_again(
    decoder: Decoder,
    passage: Callable[[int], Passage],
    steps: int,
    config: StudyConfig | None = None,
) -> Iterator[float | Studied]:
    """Take a known number of steps, the same as `study`: yields their share, then the result."""
    learner = _Learner(decoder, config or StudyConfig())
    while learner.steps < steps and learner.step(passage(learner.steps)):
        yield learner.steps / steps
    learned = learner.finished(learner.averages()) if learner.steps == steps else None
    yield Studied(learned, learner.steps, math.nan, math.nan)


def _nats(decoder: Decoder, passage: Passage) -> Tensor:
    """Return the mean nats of the tokens that are predicted."""
    logits, _ = decoder(passage.tokens, passage.positions, decoder.init_state(len(passage.tokens)))
    logits = logits.flatten(0, 1).float()
    return cross_entropy(logits, passage.targets.flatten(), ignore_index=NOT_PREDICTED)
