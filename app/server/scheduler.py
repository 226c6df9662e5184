"""Schedules jobs on shared models."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.compose.continuation import Result, Variations
from app.compose.options import MAX_WAITING
from app.server.admission import NO_OWNER, POLL_SECONDS, Bounds, Owner, Queue
from app.server.estimates import ModelSpeed
from app.server.worker import Worker

if TYPE_CHECKING:
    from app.compose.continuation import Steps
    from app.compose.models import MusicModel
    from app.compose.piece import Opening
    from app.compose.prompt import Prompt

MAX_ROWS = 32
"""Pieces that a model generates at once; each has a state, 1.1 MB with the model `piano`."""


@dataclass
class _SharedModel:
    """The jobs of one model."""

    queue: Queue[Variations]
    worker: Worker
    speed: ModelSpeed = field(default_factory=ModelSpeed)

    def seconds_left(self, ahead: list[Variations]) -> float | None:
        """Estimated time that these jobs need; None before the first job has ended."""
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
        self._lock = threading.Lock()
        self._models: dict[str, _SharedModel] = {}

    def generate(self, opening: Opening, stop: threading.Event, owner: Owner = NO_OWNER) -> Steps:
        """Generates variations of an opening: yields Progress, also while waiting, then the Result.

        A seed gives the same bytes regardless of other jobs. `stop` ends the job and keeps the
        music so far; closing the iterator ends it as well.

        Raises:
            BusyError: too many jobs are waiting already, of all users or of this one.
        """
        variations = Variations(opening)
        shared = self._shared(opening.model)
        with shared.queue.enter(variations, variations.rows, owner) as ticket:
            while not (ticket.admitted or stop.is_set()):
                ahead = shared.queue.ahead_of(ticket)
                yield variations.progress(
                    place=1 + sum(not other.admitted for other in ahead),
                    seconds_left=shared.seconds_left([other.work for other in ahead]),
                )
                shared.queue.wait(ticket, POLL_SECONDS)
            for _ in () if stop.is_set() else opening.model.preparing():
                yield variations.progress(preparing=True)
                if stop.is_set():
                    break
            if stop.is_set():
                yield variations.result()
                return
            for step in shared.worker.generate(variations, stop):
                if isinstance(step, Result):
                    shared.speed.learn(step)
                yield step

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of running and of waiting jobs."""
        counts = [shared.queue.counts for shared in list(self._models.values())]
        return sum(running for running, _ in counts), sum(waiting for _, waiting in counts)

    def seconds_needed(
        self, model_name: str, prompt: Prompt | None, bars: float, rows: int
    ) -> float | None:
        """Estimated time to read a prompt and generate; None before the first job."""
        shared = self._models.get(model_name)
        seconds = shared.speed.generating(prompt, bars, rows) if shared else None
        if shared is None or seconds is None or prompt is None:
            return seconds
        return seconds + shared.speed.reading(prompt.tokens_heard())

    def bar_seconds(self, model_name: str, prompt: Prompt | None) -> float:
        """Estimated duration of a bar of new music."""
        shared = self._models.get(model_name)
        return (shared.speed if shared else ModelSpeed()).bar_seconds(prompt)

    def _shared(self, model: MusicModel) -> _SharedModel:
        with self._lock:
            if model.name not in self._models:
                bounds = Bounds(waiting=self.max_waiting, waiting_of_user=-(-self.max_waiting // 2))
                queue: Queue[Variations] = Queue(f"the {model.name} model", self.max_rows, bounds)
                self._models[model.name] = _SharedModel(queue, Worker(model))
            return self._models[model.name]
