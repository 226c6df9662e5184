"""Schedules jobs on shared models."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.compose.continuation import Result, Variations
from app.compose.options import MAX_WAITING
from app.server.admission import NO_OWNER, POLL_SECONDS, Bounds, Owner, Queue, Ticket
from app.server.estimates import ModelSpeed
from app.server.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.compose.continuation import Progress, Steps
    from app.compose.models import MusicModel
    from app.compose.piece import Opening
    from app.compose.prompt.prompt import Prompt

MAX_STUDIES = 2
"""Jobs at once whose model studies the piece; each has a copy of the weights, 35 MB."""
MAX_ROWS = 32
"""Pieces that a model generates at once; each has a state, 1.1 MB with the model `piano`."""


@dataclass
class _SharedModel:
    """The jobs of one model."""

    queue: Queue[Variations]
    worker: Worker
    speed: ModelSpeed = field(default_factory=ModelSpeed)

    def seconds_left(self, ahead: list[Variations]) -> float | None:
        """Return the estimated time that these jobs need; None before the first job has ended."""
        total = 0.0
        for variations in ahead:
            prompt, rows = variations.opening.prompt, variations.rows
            seconds = self.speed.generating(prompt, variations.bars_left, rows)
            if seconds is None:
                return None
            total += seconds + self.speed.reading(variations.tokens_to_read)
        return total


class Scheduler:
    """Runs jobs side by side while there are free rows; other jobs wait in a queue per model.

    A user may have half of the waiting jobs.
    """

    def __init__(self, max_rows: int = MAX_ROWS, max_waiting: int = MAX_WAITING) -> None:
        self.max_rows, self.max_waiting = max_rows, max_waiting
        self._studies: Queue[Variations] = Queue("studies", MAX_STUDIES, self._bounds)
        self._lock = threading.Lock()
        self._studying = 0  # jobs that do not generate yet
        self._models: dict[str, _SharedModel] = {}

    def generate(self, opening: Opening, stop: threading.Event, owner: Owner = NO_OWNER) -> Steps:
        """Generate variations of an opening: yields Progress, also while waiting, then the Result.

        A seed gives the same bytes regardless of other jobs. `stop` ends the job and keeps the
        music so far; closing the iterator ends it as well.

        Raises:
            BusyError: too many jobs are waiting already, of all users or of this one.
        """
        variations = Variations(opening)
        shared = self._shared(opening.model)
        with ExitStack() as studying:
            if variations.studies:  # a copy of a model exists as long as its ticket
                shared.queue.check(variations, variations.rows, owner)
                ticket = studying.enter_context(self._studies.enter(variations, 1, owner))
                yield from self._wait(self._studies, ticket, stop)
                if not stop.is_set():
                    yield from self._study(variations, stop)
            yield from self._generate(variations, shared, stop, owner)

    def _study(self, variations: Variations, stop: threading.Event) -> Iterator[Progress]:
        """Have a copy of the model study the prompt."""
        with self._lock:
            self._studying += 1
        try:
            yield from variations.study(stop.is_set)
        finally:
            with self._lock:
                self._studying -= 1

    def _generate(
        self, variations: Variations, shared: _SharedModel, stop: threading.Event, owner: Owner
    ) -> Steps:
        """Generate variations when the queue of their model admits them."""
        model = variations.opening.model
        rows, checked = variations.rows, variations.studies
        with shared.queue.enter(variations, rows, owner, checked=checked) as ticket:
            yield from self._wait(shared.queue, ticket, stop)
            for _ in () if stop.is_set() else model.preparing():
                yield replace(variations.progress(), preparing=True)
                if stop.is_set():
                    break
            if stop.is_set():
                yield variations.result()
                return
            # a copy that has studied is used by this job only
            worker = Worker(model) if variations.opening.has_copy else shared.worker
            for step in worker.generate(variations, stop):
                if isinstance(step, Result):
                    shared.speed.learn(step)
                yield step

    def _wait(
        self, queue: Queue[Variations], ticket: Ticket[Variations], stop: threading.Event
    ) -> Iterator[Progress]:
        """Yield Progress until a ticket is admitted, or its job is stopped."""
        shared = self._models[ticket.work.opening.model.name]
        while not (ticket.admitted or stop.is_set()):
            ahead = queue.ahead_of(ticket)
            jobs = [other.work for other in ahead]
            is_study = queue is self._studies
            left = self._seconds_of_studies(jobs) if is_study else shared.seconds_left(jobs)
            place = 1 + sum(not other.admitted for other in ahead)
            yield replace(ticket.work.progress(), place=place, seconds_left=left)
            queue.wait(ticket, POLL_SECONDS)

    def _seconds_of_studies(self, ahead: list[Variations]) -> float:
        """Return the estimated time until jobs have studied and generated."""
        seconds = 0.0
        for variations in ahead:
            shared = self._models[variations.opening.model.name]
            seconds += variations.options.study + (shared.seconds_left([variations]) or 0.0)
        return seconds / MAX_STUDIES

    @property
    def _bounds(self) -> Bounds:
        return Bounds(waiting=self.max_waiting, waiting_of_user=-(-self.max_waiting // 2))

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of running and of waiting jobs."""
        counts = [shared.queue.counts for shared in list(self._models.values())]
        waiting = self._studies.counts[1] + sum(waiting for _, waiting in counts)
        return self._studying + sum(running for running, _ in counts), waiting

    def seconds_needed(
        self, model_name: str, prompt: Prompt | None, bars: float, rows: int
    ) -> float | None:
        """Return the estimated time to read a prompt and generate; None before the first job."""
        shared = self._models.get(model_name)
        seconds = shared.speed.generating(prompt, bars, rows) if shared else None
        if shared is None or seconds is None or prompt is None:
            return seconds
        return seconds + shared.speed.reading(prompt.tokens_heard())

    def bar_seconds(self, model_name: str, prompt: Prompt | None) -> float:
        """Return the estimated duration of a bar of new music."""
        shared = self._models.get(model_name)
        return (shared.speed if shared else ModelSpeed()).bar_seconds(prompt)

    def _shared(self, model: MusicModel) -> _SharedModel:
        with self._lock:
            if model.name not in self._models:
                name = f"the {model.name} model"
                queue: Queue[Variations] = Queue(name, self.max_rows, self._bounds)
                self._models[model.name] = _SharedModel(queue, Worker(model))
            return self._models[model.name]
