"""A thread that generates music for all users of one model."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.compose.engine import Engine

if TYPE_CHECKING:
    from app.compose.continuation import Steps, Variations
    from app.compose.models import MusicModel

SECONDS_BETWEEN_REPORTS = 0.1


class Worker:
    """Generates for many users at once on one engine.

    The music of a job depends only on its opening and seeds. The thread and the memory of its rows
    exist only while there is work.
    """

    def __init__(self, model: MusicModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._added: list[_Job] = []
        self._running = False

    def generate(self, variations: Variations, stop: threading.Event) -> Steps:
        """Yield Progress, and the Result last; `stop` ends it and keeps the music so far.

        Closing this iterator ends the job as well, and waits until it has ended.
        """
        job = _Job(variations, stop)
        with self._lock:
            if not self._running:  # if the thread cannot be started, no job waits for it
                threading.Thread(
                    target=self._run, name=f"worker of {self._model.name}", daemon=True
                ).start()
                self._running = True
            self._added.append(job)
        try:
            while not job.over.wait(SECONDS_BETWEEN_REPORTS):
                yield job.snapshot().progress()
            if job.error is not None:
                raise job.error
            yield variations.progress()
            yield variations.result()
        finally:
            job.abandoned = True
            job.over.wait()

    def _run(self) -> None:
        """Generate until there are no jobs left: the function of the thread."""
        jobs: list[_Job] = []
        try:
            engine = Engine(self._model)
            while True:
                with self._lock:
                    added, self._added = self._added, []
                    jobs += added
                    if not jobs:
                        self._running = False
                        return
                for job in added:
                    job.variations.start(engine)
                engine.step()
                for job in jobs:
                    job.after_step(engine)
                jobs = [job for job in jobs if not job.over.is_set()]
        except BaseException as error:  # noqa: BLE001 - handed to all waiting jobs
            with self._lock:
                jobs += self._added
                self._added.clear()
                self._running = False
            for job in jobs:
                job.end(error)


class _Job:
    """A job in progress; threads other than the worker may only read it and call `snapshot`."""

    def __init__(self, variations: Variations, stop: threading.Event) -> None:
        self.variations, self.stop = variations, stop
        self.abandoned = False
        """Whether its iterator was closed."""
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        self._is_requested = False  # a snapshot
        self._latest = variations

    def snapshot(self) -> Variations:
        """Return the state of the music between two steps; called in the thread of the user."""
        with self._changed:
            self._is_requested = True
            self._changed.wait_for(lambda: not self._is_requested or self.over.is_set())
            return self._latest

    def after_step(self, engine: Engine) -> None:
        """End the job if it is done or was stopped; else take a snapshot if one is requested."""
        self.variations.tick()
        if self.abandoned or self.stop.is_set():
            engine.remove(self.variations.drafts)
            self.end()
        elif self.variations.done:
            self.end(self.variations.error)
        elif self._is_requested:
            self._show(self.variations.snapshot())

    def end(self, error: BaseException | None = None) -> None:
        """Mark the job as ended; `error` is raised in the thread of the user."""
        if self.over.is_set():
            return
        self.error = error
        self.over.set()
        self._show(self.variations)

    def _show(self, snapshot: Variations) -> None:
        with self._changed:
            self._latest, self._is_requested = snapshot, False
            self._changed.notify_all()
