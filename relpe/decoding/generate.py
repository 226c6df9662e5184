"""Generation of token ids from prompts: reads prompts and samples tokens in one loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.base import Coordinates, TokenSteps
from relpe.decoding.batch import ContinuousBatch, Row, RuleT
from relpe.decoding.eager import prefill_steps
from relpe.decoding.sampling import SamplingOptions
from relpe.forks import use_threads
from relpe.models.decoder import Decoder, DecoderState
from relpe.models.pointer.pointer import Pointer


@dataclass(frozen=True, eq=False)
class Request(Generic[RuleT]):
    """Sequences to generate from one prompt, one for each seed."""

    prompt: NDArray[np.integer]
    """Token ids (l,), at least one."""
    rule: RuleT
    """What may follow the prompt."""
    seeds: Sequence[int] = (0,)
    options: SamplingOptions = field(default_factory=SamplingOptions)
    coordinates: Coordinates | None = None
    """Further axes of positions, for a model that reads them; has not read the prompt yet."""


@dataclass(eq=False)
class Sample(Generic[RuleT]):
    """One sequence while it is generated."""

    seed: int
    rule: RuleT
    """What may follow now."""
    tokens: list[int] = field(default_factory=list)
    """Ids generated so far, without the token that ended the sequence."""
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
    pointer: Pointer | None = None
    """Has read as much; None for a model without one, or if it is not used."""
    coordinates: Coordinates | None = None
    """Has read the whole prompt but its last token; None for a model with one axis."""


class Generation(Generic[RuleT]):
    """Generates many sequences by continuous batching; requests may be added at any time.

    Reading of prompts alternates with steps of the rows, and takes about half of the time, so that
    neither delays the other for long. A sequence depends only on its prompt, rule, options and
    seed.
    """

    def __init__(self, decoder: Decoder, steps: TokenSteps, max_rows: int | None = None) -> None:
        """Generate at most `max_rows` sequences at once; None for no limit."""
        self._decoder = decoder
        self._batch: ContinuousBatch[RuleT] = ContinuousBatch(steps)
        self._max_rows = max_rows
        self._rows: dict[Row[RuleT], Sample[RuleT]] = {}
        self._queue: deque[_Reading[RuleT]] = deque()
        self._owed = 0.0  # seconds by which reading is ahead of the steps

    def __len__(self) -> int:
        """Return the number of samples that are not done."""
        return len(self._rows) + sum(len(reading.waiting) for reading in self._queue)

    @property
    def has_room(self) -> bool:
        """Whether another request would start at once."""
        return self._max_rows is None or len(self) < self._max_rows

    def add(self, request: Request[RuleT]) -> list[Sample[RuleT]]:
        """Queue a request and return its samples, to which `step` adds tokens."""
        samples = [Sample(seed, request.rule) for seed in request.seeds]
        if samples:
            self._queue.append(_Reading(request, deque(samples)))
        return samples

    def remove(self, sample: Sample[RuleT]) -> None:
        """End a sample early; nothing happens if it is done."""
        sample.done = True
        for row in [row for row, other in self._rows.items() if other is sample]:
            del self._rows[row]
            self._batch.leave(row)
        for reading in list(self._queue):
            if sample in reading.waiting:
                reading.waiting.remove(sample)
                if not reading.waiting:
                    self._queue.remove(reading)

    def pause(self, sample: Sample[RuleT]) -> None:
        """Keep a sample that has begun from growing until `go_on`; it keeps its row."""
        self._row(sample).paused = True

    def go_on(self, samples: Iterable[Sample[RuleT]], leader: Sample[RuleT]) -> None:
        """Let paused samples go on with the tokens of one of them, each with its own seed."""
        first = self._row(leader)
        for sample in samples:
            row = self._row(sample)
            if sample is not leader:
                self._batch.follow(row, first)
                sample.tokens[:], sample.rule = leader.tokens, leader.rule
            row.paused = False

    def follow(self, sample: Sample[RuleT], rule: RuleT) -> None:
        """Have a sample that has begun go on under another rule."""
        self._row(sample).rule = sample.rule = rule

    def _row(self, sample: Sample[RuleT]) -> Row[RuleT]:
        return next(row for row, other in self._rows.items() if other is sample)

    def step(self) -> list[Sample[RuleT]]:
        """Read a chunk of one prompt, or generate one token for every row.

        Returns the samples that this finished. If a prompt cannot be read, its samples end with an
        `error`. An error in a step of the model is raised, and generation cannot continue.

        Raises:
            RuntimeError: this process was forked from one that had loaded a model.
        """
        use_threads()
        began = time.monotonic()
        if self._can_read and (self._owed <= 0 or not self._rows):
            delays = bool(self._rows)  # else nothing waits for the prompt, and nothing is owed
            done = self._read()
            self._owed = time.monotonic() - began if delays else 0.0
        else:
            done = self._generate()
            self._owed -= time.monotonic() - began
        return done

    @property
    def _can_read(self) -> bool:
        """Whether a prompt is queued and at least one of its samples can have a row."""
        return bool(self._queue) and (self._max_rows is None or len(self._rows) < self._max_rows)

    def _read(self) -> list[Sample[RuleT]]:
        """Read the next chunk of the first prompt; after the last chunk its samples enter."""
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
        """Read one more chunk of a prompt; return whether the whole prompt has been read."""
        # the first step reads the last token
        prompt = np.asarray(reading.request.prompt[:-1], np.int64)
        if reading.state is None:
            reading.state = self._decoder.init_state(1)
            tokens = torch.from_numpy(prompt)[None].to(self._decoder.embedding.weight.device)
            places = None
            if reading.request.coordinates is not None and self._decoder.num_axes > 1:
                further_axes, reading.coordinates = reading.request.coordinates.read(prompt)
                places = torch.from_numpy(further_axes)[None].to(tokens.device)
            reading.states = prefill_steps(self._decoder, reading.state, tokens, coordinates=places)
            config = self._decoder.config.pointer
            used = config and (reading.request.options.memory or config.balance.temperature)
            if config is not None and used:
                reading.pointer = Pointer(config)
        if reading.states is not None:
            read, reading.state = next(reading.states, (len(prompt), reading.state))
            if reading.pointer is not None:
                reading.pointer.extend(prompt[reading.pointer.count : read])
            if read < len(prompt):
                return False
            reading.states = None
            if reading.pointer is not None:
                reading.pointer.extend(reading.request.prompt[-1:])
                reading.pointer.end_prompt()
        return True

    def _enter(self, reading: _Reading[RuleT]) -> list[Sample[RuleT]]:
        """Give samples the rows that are free; return the samples that end at once."""
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
            reading.pointer,
            reading.coordinates,
        )
        for row, sample in zip(rows, entering, strict=True):
            sample.done = row.ended
            if not sample.done:
                self._rows[row] = sample
        return [sample for sample in entering if sample.done]

    def _generate(self) -> list[Sample[RuleT]]:
        """Generate one more token for every row."""
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
