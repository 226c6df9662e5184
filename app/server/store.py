"""Jobs whose files can be asked for, and how much room their raw sound takes on the disk."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.server.job import Job

MOST_JOBS = 400
"""Of all sessions; those go first that were not used for longest, of the one that has most."""
MOST_OF_SESSION = 60
"""More than the results that a page shows: uploads are jobs as well."""
RAW_SECONDS = 300.0
"""How long raw sound stays that is not used: a mute that comes later makes it again."""
MOST_RAW_OF_SESSION = 512 << 20
"""Bytes; a minute of five tracks has 64 MB. The newest stays, whatever its size."""
MOST_RAW = 2 << 30


class KeptJobs:
    """Jobs by their ids, each with the session that it is of."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, tuple[str, Job]] = OrderedDict()  # the last used at the end
        self._lock = threading.Lock()
        self._later: threading.Timer | None = None

    def add(self, session: str, job: Job) -> None:
        """Its files can be asked for from now on."""
        with self._lock:
            self._jobs[job.id] = session, job
            counts = Counter(owner for owner, _ in self._jobs.values())
            if counts[session] > MOST_OF_SESSION:
                self._forget_one_of(session)
            elif len(self._jobs) > MOST_JOBS:
                most = max(counts.values())
                self._forget_one_of(next(o for o, _ in self._jobs.values() if counts[o] == most))

    def get(self, name: str) -> tuple[str, Job]:
        """A job and its session. Raises LookupError where its files are gone."""
        with self._lock:
            session, job = self._jobs.get(name, ("", None))
            if job is not None and job.is_there:
                self._jobs.move_to_end(name)
                return session, job
            self._jobs.pop(name, None)
        if job is not None:
            job.sound.drop()
        raise LookupError("its files are not kept any more; make it again")

    def leave(self, session: str) -> None:
        """The session is over, as far as is known: what it hears later is made again."""
        for owner, job in self._all():
            if owner == session:
                job.sound.drop()

    def close(self) -> None:
        """All is over."""
        with self._lock:
            if self._later is not None:
                self._later.cancel()
        for _, job in self._all():
            job.sound.drop()

    def tidy(self) -> None:
        """Drops raw sound that is too old or too much, now and for as long as there is some."""
        with self._lock:
            raw = [
                (each.used, session, job, variation, each.size)
                for session, job in self._jobs.values()
                for variation, each in job.sound.raw.items()
            ]
            raw.sort(key=lambda each: each[0], reverse=True)
            before, total, of_session = time.monotonic() - RAW_SECONDS, 0, Counter[str]()
            for used, session, job, variation, size in raw:
                total += size
                of_session[session] += size
                too_much = total > max(MOST_RAW, size) or (
                    of_session[session] > max(MOST_RAW_OF_SESSION, size)
                )
                if used < before or too_much:
                    job.sound.drop(variation)
                    total -= size
                    of_session[session] -= size
            if total and self._later is None:
                self._later = threading.Timer(RAW_SECONDS / 2, self._look_again)
                self._later.daemon = True
                self._later.start()

    def done(self, job: Job) -> None:
        """Sound of a job was made: if it is not kept any more, its raw sound is not either."""
        with self._lock:
            is_kept = job.id in self._jobs
        if not is_kept:
            job.sound.drop()
        self.tidy()

    def _look_again(self) -> None:
        with self._lock:
            self._later = None
        self.tidy()

    def _all(self) -> list[tuple[str, Job]]:
        with self._lock:
            return list(self._jobs.values())

    def _forget_one_of(self, session: str) -> None:
        """That of a session that was not used for longest."""
        name = next(name for name, (owner, _) in self._jobs.items() if owner == session)
        _, job = self._jobs.pop(name)
        job.sound.drop()
