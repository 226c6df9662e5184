"""One thread that writes for all who want music of one model, rows of all jobs side by side."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from app.compose.piece import Drafts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.compose.continuation import Steps, Variations
    from app.compose.models import MusicModel
    from app.compose.piece import Draft
    from relpe.models.decoder import DecoderState

SECONDS_BETWEEN_REPORTS = 0.1


class Writer:
    """Writes for many at once by continuous batching: each step is a token of every row.

    What a job becomes hangs on its opening and seeds alone. The thread and the memory of its rows
    are there while there is work.
    """

    def __init__(self, model: MusicModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._coming: list[_Job] = []
        self._running = False

    def write(self, written: Variations, stop: threading.Event) -> Steps:
        """Progress now and then, and the Result last; `stop` ends it, and keeps what is there.

        Closing this iterator ends the work as well, and waits for that.
        """
        job = _Job(written, stop)
        with self._lock:
            if not self._running:  # a thread that cannot be started leaves nobody waiting for it
                threading.Thread(
                    target=self._run, name=f"writer of {self._model.name}", daemon=True
                ).start()
                self._running = True
            self._coming.append(job)
        try:
            while not job.over.wait(SECONDS_BETWEEN_REPORTS):
                yield job.look().progress()
            if job.error is not None:
                raise job.error
            yield written.progress()
            yield written.result()
        finally:
            job.left = True
            job.over.wait()

    def _run(self) -> None:
        """The thread: goes on until nobody is left."""
        jobs: list[_Job] = []
        try:
            drafts = Drafts(self._model)
            while True:
                with self._lock:
                    jobs += self._coming
                    self._coming.clear()
                    if not jobs:
                        self._running = False
                        return
                self._round(drafts, jobs)
                jobs = [job for job in jobs if not job.over.is_set()]
        except BaseException as error:  # noqa: BLE001 - all who wait for it get it
            with self._lock:
                jobs += self._coming
                self._coming.clear()
                self._running = False
            for job in jobs:
                job.end(error)

    def _round(self, drafts: Drafts, jobs: list[_Job]) -> None:
        """Reads a piece of one prompt, then writes for as long as that took: both go on."""
        began = time.monotonic()
        reader = next((job for job in jobs if job.reads), None)
        if reader is not None:
            reader.read_on(drafts)
            jobs.remove(reader)  # the next one's turn
            jobs.append(reader)
        until = 2 * time.monotonic() - began
        going = True
        while going:
            ended = drafts.step()
            for job in jobs:
                job.after_step(ended, drafts)
            going = len(drafts) > 0 and not self._coming and time.monotonic() < until


class _Job:
    """One user's music while it is written; all but `look` belongs to the writing thread."""

    def __init__(self, written: Variations, stop: threading.Event) -> None:
        self.written, self.stop = written, stop
        self.left = False
        """Nobody waits for it any more."""
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._reading: Iterator[DecoderState] | None = None
        self._state: DecoderState | None = None
        self._going: set[Draft] | None = None  # None: not entered yet
        self._began = 0.0
        self._changed = threading.Condition()
        self._asked = False
        self._seen = written

    @property
    def reads(self) -> bool:
        """Whether its prompt is not read to its end."""
        return self._going is None and not self.over.is_set()

    def look(self) -> Variations:
        """What it has come to, taken between two steps; for the thread of the user."""
        with self._changed:
            self._asked = True
            # what has ended since it was waited for is shown to nobody any more
            self._changed.wait_for(lambda: not self._asked or self.over.is_set())
            return self._seen

    def read_on(self, drafts: Drafts) -> None:
        """Reads the next piece of the prompt; after the last one its rows enter."""
        opening = self.written.opening
        try:
            if self._reading is None:
                self._began = time.monotonic()
                self._state = opening.unread()
                self._reading = opening.read(self._state)
            newest = next(self._reading, None)
            if newest is not None:
                self._state = newest
                return
            assert self._state is not None
            self.written.drafts = drafts.enter(opening, self._state, self.written.seeds)
            self._going = set(self.written.drafts)
            self._state = self._reading = None
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it; others go on
            self.end(error)

    def after_step(self, ended: list[Draft], drafts: Drafts) -> None:
        """Takes note of rows that have ended, of who wants to see it, and of a stop."""
        if self.over.is_set():
            return
        if self._going is not None:
            self._going.difference_update(ended)
            self.written.seconds = time.monotonic() - self._began
        if self.left or self.stop.is_set():
            for draft in self._going or ():
                drafts.leave(draft)
            self.end()
        elif self._going is not None and not self._going:
            self.end()
        elif self._asked:
            self._show(self.written.now())

    def end(self, error: BaseException | None = None) -> None:
        """No more comes."""
        if self.over.is_set():
            return
        self.error = error
        self.over.set()
        self._show(self.written)

    def _show(self, seen: Variations) -> None:
        with self._changed:
            self._seen, self._asked = seen, False
            self._changed.notify_all()
