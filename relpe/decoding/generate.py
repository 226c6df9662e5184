"""Generation from prompts to token ids: the one loop that reads prompts and samples tokens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.base import TokenSteps
from relpe.decoding.batch import ContinuousBatch, Row, RuleT
from relpe.decoding.eager import prefill_steps
from relpe.decoding.sampling import SamplingOptions
from relpe.models.decoder import Decoder, DecoderState


@dataclass(frozen=True, eq=False)
class Request(Generic[RuleT]):
    """Sequences to generate from one prompt, one for each seed."""

    prompt: NDArray[np.integer]
    """Ids (l,), at least one."""
    rule: RuleT
    """What may follow the prompt."""
    seeds: Sequence[int] = (0,)
    options: SamplingOptions = field(default_factory=SamplingOptions)


@dataclass(eq=False)
class Sample(Generic[RuleT]):
    """One sequence while it is generated."""

    seed: int
    rule: RuleT
    """What may follow now."""
    tokens: list[int] = field(default_factory=list)
    """Ids generated so far, without the one that ended the sequence."""
    done: bool = False
    error: Exception | None = None
    """Why the prompt could not be read; None if it could."""


@dataclass(eq=False)
class _Reading(Generic[RuleT]):
    """A request whose prompt is being read, or whose samples wait for rows."""

    request: Request[RuleT]
    waiting: deque[Sample[RuleT]]
    """Samples that have no row yet."""
    states: Iterator[tuple[int, DecoderState]] | None = None
    state: DecoderState | None = None
    """After the tokens read so far."""


class Generation(Generic[RuleT]):
    """Generates sequences side by side by continuous batching; requests may come at any time.

    Prompts are read in chunks between the steps of the rows, for about as long as those take, so
    that neither holds the other up. A sequence depends on its prompt, rule, options and seed alone.
    """

    def __init__(self, decoder: Decoder, steps: TokenSteps, max_rows: int | None = None) -> None:
        """At most `max_rows` sequences are generated at once; None for no limit."""
        self._decoder = decoder
        self._batch: ContinuousBatch[RuleT] = ContinuousBatch(steps)
        self._max_rows = max_rows
        self._rows: dict[Row[RuleT], Sample[RuleT]] = {}
        self._queue: deque[_Reading[RuleT]] = deque()
        self._owed = 0.0  # seconds of reading that the rows have not made up for

    def __len__(self) -> int:
        """Number of samples that are not done."""
        return len(self._rows) + sum(len(reading.waiting) for reading in self._queue)

    @property
    def has_room(self) -> bool:
        """Whether one more request would begin at once."""
        return self._max_rows is None or len(self) < self._max_rows

    def add(self, request: Request[RuleT]) -> list[Sample[RuleT]]:
        """Queues a request and returns its samples, which grow with the steps."""
        samples = [Sample(seed, request.rule) for seed in request.seeds]
        if samples:
            self._queue.append(_Reading(request, deque(samples)))
        return samples

    def remove(self, sample: Sample[RuleT]) -> None:
        """Ends a sample early; nothing happens if it is done."""
        sample.done = True
        for row in [row for row, own in self._rows.items() if own is sample]:
            del self._rows[row]
            self._batch.leave(row)
        for reading in list(self._queue):
            if sample in reading.waiting:
                reading.waiting.remove(sample)
                if not reading.waiting:
                    self._queue.remove(reading)

    def step(self) -> list[Sample[RuleT]]:
        """Reads a chunk of one prompt, or generates a token of every row.

        Returns the samples that are done with it. A prompt that cannot be read ends its own samples
        with an `error`; an error of the model's step is raised, and nothing can follow it.
        """
        began = time.monotonic()
        if self._can_read and (self._owed <= 0 or not self._rows):
            done = self._read()
            self._owed = time.monotonic() - began
        else:
            done = self._generate()
            self._owed -= time.monotonic() - began
        return done

    @property
    def _can_read(self) -> bool:
        """Whether a prompt waits, and there is a row for at least one of its samples."""
        return bool(self._queue) and (self._max_rows is None or len(self._rows) < self._max_rows)

    def _read(self) -> list[Sample[RuleT]]:
        """Reads the next chunk of the first prompt; after the last one its samples enter."""
        reading = self._queue[0]
        samples = list(reading.waiting)
        try:
            if self._is_read(reading):
                return self._enter(reading)
        except Exception as error:  # noqa: BLE001 - handed on with its samples; others continue
            with suppress(ValueError):  # it may have entered already
                self._queue.remove(reading)
            for sample in samples:
                sample.error, sample.done = error, True
            return samples
        if self._max_rows is None:
            self._queue.rotate(-1)  # prompts are read in turns
        return []

    def _is_read(self, reading: _Reading[RuleT]) -> bool:
        """Whether a prompt is read to its end, after one more chunk of it."""
        prompt = np.asarray(reading.request.prompt[:-1], np.int64)  # a step reads the last token
        if reading.state is None:
            reading.state = self._decoder.init_state(1)
            tokens = torch.from_numpy(prompt)[None].to(self._decoder.embedding.weight.device)
            reading.states = prefill_steps(self._decoder, reading.state, tokens)
        if reading.states is not None:
            read, reading.state = next(reading.states, (len(prompt), reading.state))
            if read < len(prompt):
                return False
            reading.states = None
        return True

    def _enter(self, reading: _Reading[RuleT]) -> list[Sample[RuleT]]:
        """Gives rows to samples, as far as there are any; returns those that end at once."""
        request, waiting = reading.request, reading.waiting
        room = len(waiting) if self._max_rows is None else self._max_rows - len(self._rows)
        entering = [waiting.popleft() for _ in range(min(room, len(waiting)))]
        if not waiting:
            self._queue.remove(reading)
        assert reading.state is not None
        rows = self._batch.enter(
            reading.state,
            len(request.prompt) - 1,
            int(request.prompt[-1]),
            request.rule,
            request.options,
            [sample.seed for sample in entering],
        )
        for row, sample in zip(rows, entering, strict=True):
            sample.done = row.ended
            if not sample.done:
                self._rows[row] = sample
        return [sample for sample in entering if sample.done]

    def _generate(self) -> list[Sample[RuleT]]:
        """One more token of every row."""
        done: list[Sample[RuleT]] = []
        for row, token in self._batch.step():
            sample = self._rows[row]
            sample.rule = row.rule
            if row.ended:
                del self._rows[row]
                sample.done = True
                done.append(sample)
            else:
                sample.tokens.append(token)
        return done
