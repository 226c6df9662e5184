"""Keeps the jobs of sessions and their files, within limits of number, time and space."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import secrets
import shutil
import threading
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from app.errors import DiskError
from app.files import size_on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.server.job import Job

MOST_JOBS = 400
"""Maximum for all sessions; beyond it, the session with most jobs drops its least recent one."""
MOST_OF_SESSION = 60
"""Maximum for one session; a page shows fewer results, but uploads are also jobs."""
MOST_BYTES = 512 << 20
"""Memory of the music of all jobs."""
MOST_BYTES_OF_SESSION = 64 << 20
"""Memory of the music of a session's jobs; the newest one is always kept."""
KEPT_SECONDS = 24 * 3600.0
"""How long the files of a job are kept."""
UNUSED_SECONDS = 3600.0
"""How long an empty folder of a start of the page is kept, which may still be running."""


class _KeptJob(NamedTuple):
    """A job of a session; `size` is the memory of its music, in bytes."""

    session: str
    job: Job
    size: int


class KeptJobs:
    """Maps ids to jobs and their sessions, as long as the files of the job can be requested."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _KeptJob] = OrderedDict()  # last used at the end
        self._lock = threading.Lock()

    def add(self, session: str, job: Job) -> None:
        """Register a job, so that its files can be requested."""
        with self._lock:
            self._jobs[job.id] = _KeptJob(session, job, job.size)
            while crowded := self._crowded(session):
                self._forget_one_of(crowded)

    def get(self, name: str) -> tuple[str, Job]:
        """Return a job and its session. Raises LookupError if its files are gone."""
        with self._lock:
            kept = self._jobs.get(name)
            if kept is not None and kept.job.is_available:
                self._jobs.move_to_end(name)
                return kept.session, kept.job
            self._jobs.pop(name, None)
        raise LookupError("its files were removed; generate the music again")

    def _crowded(self, newest: str) -> set[str]:
        """Return the sessions, one of which must drop a job; empty if all jobs fit.

        `newest` is the session of the newest job.
        """
        counts, sizes = Counter[str](), Counter[str]()
        for kept in self._jobs.values():
            counts[kept.session] += 1
            sizes[kept.session] += kept.size
        if counts[newest] > MOST_OF_SESSION:
            return {newest}
        if sizes[newest] > MOST_BYTES_OF_SESSION and counts[newest] > 1:
            return {newest}
        for amounts, most in ((counts, MOST_JOBS), (sizes, MOST_BYTES)):
            if amounts.total() > most and len(self._jobs) > 1:
                older = {kept.session for kept in list(self._jobs.values())[:-1]}
                largest = max(amounts[session] for session in older)
                return {session for session in older if amounts[session] == largest}
        return set()

    def _forget_one_of(self, sessions: set[str]) -> None:
        """Drop the least recently used job of some sessions."""
        name = next(name for name, kept in self._jobs.items() if kept.session in sessions)
        del self._jobs[name]


class SessionFolders:
    """Folders of jobs: each session has a folder with a name that cannot be guessed.

    Unless `keep` is set, files are removed a day after they were made.
    """

    def __init__(self, root: Path, *, keep: bool) -> None:
        self.root = root.resolve()
        self.keep = keep
        self._made: dict[Path, float] = {}  # times of folders to be removed later
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(16)
        self._numbers = itertools.count(1)

    def new(self, session: str) -> Path:
        """Return an empty folder for a job. Raises DiskError if it cannot be made."""
        with self._lock:
            self._prune()
            folder = self._of(session) / f"{next(self._numbers):03d}"
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise DiskError(error) from error
            if not self.keep:
                self._made[folder] = time.time()
        return folder

    def remove(self, session: str) -> None:
        """Remove the files of a session, unless all are kept."""
        if not self.keep:
            shutil.rmtree(self._of(session), ignore_errors=True)

    def _of(self, session: str) -> Path:
        name = hashlib.blake2b(session.encode(), key=self._secret, digest_size=8).hexdigest()
        return self.root / name

    def _prune(self) -> None:
        """Remove expired folders; called for each new one."""
        for folder, time_made in list(self._made.items()):
            if time_made < time.time() - KEPT_SECONDS:
                del self._made[folder]
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # the session has newer folders
                    folder.parent.rmdir()


def prune(kept: Path, days: float | None, most_bytes: int | None) -> list[Path]:
    """Remove old jobs from a folder of kept music, and return their folders.

    Jobs older than `days` are removed, and the oldest ones until the rest takes at most
    `most_bytes` on disk. The newest job is always kept. Only folders made by the page are touched.
    """
    jobs: list[tuple[float, int, Path]] = []  # time, size and folder
    for folder in _folders_of_page(kept):
        with suppress(FileNotFoundError):  # removed by another process
            newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
            jobs.append((newest, size_on_disk(folder), folder))
    size, before = 0, time.time() - 86_400 * (math.inf if days is None else days)
    removed: list[Path] = []
    for number, (newest, of_job, folder) in enumerate(sorted(jobs, reverse=True)):
        size += of_job
        if number and (newest < before or (most_bytes is not None and size > most_bytes)):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    changed = {folder.parents[1]: folder.parents[1].stat().st_mtime for folder in removed}
    unused = [run for run, when in changed.items() if time.time() - when > UNUSED_SECONDS]
    for empty in (*{folder.parent for folder in removed}, *unused):
        with suppress(OSError):  # it has other jobs
            empty.rmdir()
    return removed


def _folders_of_page(kept: Path) -> Iterator[Path]:
    for folder in kept.glob("*/*/*"):
        if _OF_PAGE.fullmatch(folder.relative_to(kept).as_posix()) and folder.is_dir():
            yield folder


_OF_PAGE = re.compile(r"\d{4}-\d\d-\d\d-\w+/[0-9a-f]{16}/\d{3,}")
"""Path of a job's folder below the folder of kept music: start of the server, session, number."""
