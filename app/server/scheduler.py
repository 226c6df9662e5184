"""What lets many share the models of one page: who writes now, who waits, and how fast it goes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.compose.continuation import Result, Variations
from app.compose.options import MAX_WAITING, with_seed
from app.compose.piece import Opening
from app.server.line import SECONDS_BETWEEN_LOOKS, Line
from app.server.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.compose.continuation import Steps
    from app.compose.models import MusicModel
    from app.compose.options import MusicOptions
    from app.compose.prompt import Prompt

MAX_ROWS = 16
"""Pieces that a model writes at once; each has a state, 4.7 MB of a window of 2,048 tokens."""
NEWEST_COUNTS = 0.3
"""Share of the newest job in the running mean of the speed."""


class Desk:
    """Lets jobs write side by side as far as there are rows; others wait their turn, first come."""

    def __init__(self, max_rows: int = MAX_ROWS, max_waiting: int = MAX_WAITING) -> None:
        self.max_rows, self.max_waiting = max_rows, max_waiting
        self._lock = threading.Lock()
        self._lines: dict[str, Line[Variations]] = {}
        self._writers: dict[str, Worker] = {}
        self._speeds: dict[str, dict[int, float]] = {}  # bars a second of one row, by rows of a job

    def continue_prompt(
        self, model: MusicModel, prompt: Prompt, options: MusicOptions, stop: threading.Event
    ) -> Steps:
        """As `continuation.continue_prompt`, beside others."""
        yield from self.write(model, Opening.after(model, prompt, with_seed(options)), stop)

    def generate_piece(
        self, model: MusicModel, options: MusicOptions, stop: threading.Event
    ) -> Steps:
        """As `continuation.generate_piece`, beside others."""
        yield from self.write(model, Opening.of_nothing(model, with_seed(options)), stop)

    def write(
        self,
        model: MusicModel,
        opening: Opening,
        stop: threading.Event,
        seeds: Sequence[int] | None = None,
    ) -> Steps:
        """Writes one piece for each seed: Progress, with the place in line first; the Result last.

        The same seed gives the same bytes, whoever is beside. `stop` ends it and keeps what is
        there; closing this iterator ends it as well.

        Raises:
            BusyError: too many wait already.
        """
        written = Variations(opening, seeds)
        line, worker = self._of(model)
        rows = len(written.seeds)
        with line.enter(written, rows) as turn:
            while not (turn.at_work or stop.is_set()):
                left = self._seconds_to(model.name, line.before(turn))
                yield written.progress(place=line.place(turn), seconds_left=left)
                line.wait(turn, SECONDS_BETWEEN_LOOKS)
            for _ in () if stop.is_set() else model.preparing():
                yield written.progress(preparing=True)
                if stop.is_set():
                    break
            if stop.is_set():
                yield written.result()
                return
            for step in worker.generate(written, stop):
                if isinstance(step, Result):
                    self._learn(model.name, rows, step)
                yield step

    @property
    def counts(self) -> tuple[int, int]:
        """How many jobs are at work, and how many wait."""
        counts = [line.counts for line in list(self._lines.values())]
        return sum(at_work for at_work, _ in counts), sum(waiting for _, waiting in counts)

    def bars_per_second(self, model_name: str, variations: int) -> float | None:
        """By which each of so many variations grows: running mean of jobs, others beside or not.

        None: there were none yet.
        """
        speeds = dict(self._speeds.get(model_name, {}))
        if not speeds:
            return None
        return speeds[min(speeds, key=lambda rows: (abs(rows - variations), rows))]

    def _of(self, model: MusicModel) -> tuple[Line[Variations], Worker]:
        """Line and writer of a model."""
        name = model.name
        with self._lock:
            if name not in self._lines:
                self._lines[name] = Line(f"the {name} model", self.max_rows, self.max_waiting)
                self._writers[name] = Worker(model)
            return self._lines[name], self._writers[name]

    def _learn(self, model_name: str, rows: int, result: Result) -> None:
        if not (result.bars and result.seconds):
            return
        newest = result.bars / result.seconds
        with self._lock:
            speeds = self._speeds.setdefault(model_name, {})
            speeds[rows] = NEWEST_COUNTS * newest + (1 - NEWEST_COUNTS) * speeds.get(rows, newest)

    def _seconds_to(self, model_name: str, before: list[Variations]) -> float | None:
        """Until those before have ended, at the most; None where no speed is known."""
        speeds = dict(self._speeds.get(model_name, {}))
        if not speeds:
            return None
        bars = (len(written.seeds) * written.bars_left for written in before)
        return sum(bars) / max(rows * speed for rows, speed in speeds.items())
