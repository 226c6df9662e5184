"""Schedules jobs on shared models."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.compose.continuation import Result, Variations
from app.compose.options import MAX_WAITING
from app.server.admission import NOBODY, POLL_SECONDS, Bounds, Owner, Queue
from app.server.worker import Worker

if TYPE_CHECKING:
    from app.compose.continuation import Steps
    from app.compose.models import MusicModel
    from app.compose.piece import Opening

MAX_ROWS = 16
"""Pieces that a model generates at once; each has a state, 4.7 MB for a window of 2,048 tokens."""
NEWEST_WEIGHT = 0.3
"""Weight of the newest job in running means of speeds."""


@dataclass
class _SharedModel:
    """The jobs of one model."""

    queue: Queue[Variations]
    worker: Worker
    speeds: dict[int, float] = field(default_factory=dict)
    """Running means of the bars per second of each row, by the number of rows of the job."""
    reading_speed: float | None = None
    """Tokens of prompts per second: a running mean."""

    def learn(self, result: Result) -> None:
        """Updates the running means with the speeds of a job."""
        reading, rows = result.reading_seconds, len(result.pieces)
        if result.tokens and result.prompt_tokens and reading:
            newest = result.prompt_tokens / reading
            self.reading_speed = _running_mean(self.reading_speed, newest)
        if result.bars and result.seconds > reading:
            newest = result.bars / (result.seconds - reading)
            self.speeds[rows] = _running_mean(self.speeds.get(rows), newest)

    def bars_per_second(self, rows: int) -> float | None:
        """Speed of each row, from jobs with the most similar number of rows.

        None before the first job.
        """
        speeds = dict(self.speeds)
        if not speeds:
            return None
        return speeds[min(speeds, key=lambda known: (abs(known - rows), known))]

    def seconds_to_read(self, tokens: int) -> float:
        """How long a prompt takes to read; 0 before the first job with a prompt."""
        return tokens / self.reading_speed if self.reading_speed else 0.0

    def seconds_left(self, ahead: list[Variations]) -> float | None:
        """Upper bound of the time that these jobs need; None before the first job has ended."""
        if not (speeds := dict(self.speeds)):
            return None
        bars = sum(len(variations.seeds) * variations.bars_left for variations in ahead)
        unread = sum(variations.tokens_to_read for variations in ahead)
        fastest = max(rows * speed for rows, speed in speeds.items())
        return bars / fastest + self.seconds_to_read(unread)


def _running_mean(before: float | None, newest: float) -> float:
    return newest if before is None else NEWEST_WEIGHT * newest + (1 - NEWEST_WEIGHT) * before


class Scheduler:
    """Runs jobs side by side while there are free rows; other jobs wait in a queue per model.

    A user may have half of the waiting jobs.
    """

    def __init__(self, max_rows: int = MAX_ROWS, max_waiting: int = MAX_WAITING) -> None:
        self.max_rows, self.max_waiting = max_rows, max_waiting
        self._lock = threading.Lock()
        self._models: dict[str, _SharedModel] = {}

    def generate(self, opening: Opening, stop: threading.Event, owner: Owner = NOBODY) -> Steps:
        """Generates variations of an opening: yields Progress, also while waiting, then the Result.

        A seed gives the same bytes regardless of other jobs. `stop` ends the job and keeps the
        music so far; closing the iterator ends it as well.

        Raises:
            BusyError: too many jobs are waiting already, of all users or of this one.
        """
        variations = Variations(opening)
        shared = self._shared(opening.model)
        with shared.queue.enter(variations, len(variations.seeds), owner) as ticket:
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
                    shared.learn(step)
                yield step

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of running and of waiting jobs."""
        counts = [shared.queue.counts for shared in list(self._models.values())]
        return sum(running for running, _ in counts), sum(waiting for _, waiting in counts)

    def bars_per_second(self, model_name: str, variations: int) -> float | None:
        """Measured speed of each row of a job; None before the first job."""
        shared = self._models.get(model_name)
        return shared.bars_per_second(variations) if shared else None

    def seconds_to_read(self, model_name: str, tokens: int) -> float:
        """How long a prompt takes to read; 0 before the first job with a prompt."""
        shared = self._models.get(model_name)
        return shared.seconds_to_read(tokens) if shared else 0.0

    def _shared(self, model: MusicModel) -> _SharedModel:
        with self._lock:
            if model.name not in self._models:
                bounds = Bounds(waiting=self.max_waiting, waiting_of_user=-(-self.max_waiting // 2))
                queue: Queue[Variations] = Queue(f"the {model.name} model", self.max_rows, bounds)
                self._models[model.name] = _SharedModel(queue, Worker(model))
            return self._models[model.name]
