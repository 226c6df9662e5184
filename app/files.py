"""Files that can be written, and are whole or not there; the folders of the page's sessions."""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
import unicodedata
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT_SECONDS = 24 * 3600.0
"""How long the files of a job stay while its session lasts."""
LEFT_SECONDS = 3600.0
"""How long the files of a session stay after it: a lost connection looks like a closed tab."""
MOST_NAME_BYTES = 60
"""What a title takes of a file name at most; file systems allow 255 for all."""


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A path beside `path` with its suffix, to write to: renamed at the end, removed on an error.

    It is another one each time, so that two who write the same file never meet.
    """
    beside = path.with_name(f".{secrets.token_hex(8)}.part{path.suffix}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Removes what `appearing` has left in a folder, of a process that was killed."""
    for path in folder.glob(".*.part*"):
        if re.fullmatch(r"\.[0-9a-f]{16}\.part(\.\w+)?", path.name):
            path.unlink(missing_ok=True)


def safe_name(title: str) -> str:
    """A title as a part of a file name; cut between letters, of which some take four bytes."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", title)).strip("-.")
    return plain.encode()[:MOST_NAME_BYTES].decode(errors="ignore") or "music"


def check_writable(path: Path) -> None:
    """Raises OSError where a file of this name cannot be written, as far as can be known before."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.stat().st_mode):  # also follows links, and sees how long the name is
            raise IsADirectoryError(errno.EISDIR, "it is a folder, expected the name of a file")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raises OSError where no file can be written in a folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def prune(kept: Path, days: float | None, most_bytes: int | None) -> list[Path]:
    """Removes the oldest jobs below a folder of kept music, and gives their folders.

    Those older than so many days, and as many as it takes for the rest to be no larger than so many
    bytes; the newest job stays. Nothing that the page has not made is touched.
    """
    jobs: list[tuple[float, int, Path]] = []
    for folder in kept.glob("*/*/*"):
        if not (_OF_PAGE.fullmatch(folder.relative_to(kept).as_posix()) and folder.is_dir()):
            continue
        with suppress(FileNotFoundError):  # of others, who clean as well
            files = [path.stat() for path in folder.iterdir()]
            made = max([folder.stat().st_mtime, *(file.st_mtime for file in files)])
            jobs.append((made, sum(file.st_size for file in files), folder))
    size, before = 0, time.time() - 86_400 * (math.inf if days is None else days)
    removed: list[Path] = []
    for number, (made, of_job, folder) in enumerate(sorted(jobs, reverse=True)):
        size += of_job
        if number and (made < before or (most_bytes is not None and size > most_bytes)):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    runs = {folder.parents[1]: folder.parents[1].stat().st_mtime for folder in removed}
    for session in {folder.parent for folder in removed}:
        with suppress(OSError):  # it has other jobs
            session.rmdir()
    for run, changed in runs.items():
        with suppress(OSError):
            if time.time() - changed > LEFT_SECONDS:  # else it may be in use
                run.rmdir()
    return removed


_OF_PAGE = re.compile(r"\d{4}-\d\d-\d\d-\w+/[0-9a-f]{16}/\d{3,}")
"""Folder of a job below that of all runs: day, session, number."""


class SessionFolders:
    """A folder for each job in one for its session, whose name nobody else can guess.

    Unless they are to `keep`, files go a day after they were made, or an hour after their session.
    """

    def __init__(self, root: Path, *, keep: bool) -> None:
        self.root = root.resolve()
        self.keep = keep
        self._ends: dict[Path, float] = {}  # when each folder has had its time
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(16)
        self._numbers = itertools.count(1)

    def new(self, session: str) -> Path:
        """An empty folder for a job."""
        with self._lock:
            self._prune()
            folder = self._of(session) / f"{next(self._numbers):03d}"
            folder.mkdir(parents=True)
            self._ends[folder] = time.time() + KEPT_SECONDS
        return folder

    def leave(self, session: str) -> None:
        """The session is over."""
        with self._lock:
            for folder, end in self._ends.items():
                if folder.parent == self._of(session):
                    self._ends[folder] = min(end, time.time() + LEFT_SECONDS)

    def _of(self, session: str) -> Path:
        name = hashlib.blake2b(session.encode(), key=self._secret, digest_size=8).hexdigest()
        return self.root / name

    def _prune(self) -> None:
        """Removes what has had its time; only new files make that necessary."""
        if self.keep:
            return
        for folder in [folder for folder, end in self._ends.items() if end < time.time()]:
            del self._ends[folder]
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # the session has newer ones
                folder.parent.rmdir()
