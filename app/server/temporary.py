"""Temporary folders of this process, and what processes that were killed have left behind."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "relpe-"
LOCK = ".running"
"""File in the folder of a process, which is locked while the process runs."""
STARTING_SECONDS = 60.0
"""A folder that is younger may not be locked yet."""
CUT_OFF_SECONDS = 60.0
"""A file that has not grown for this time is not being uploaded any more."""
MAX_UPLOADED = 1 << 30
"""Maximum bytes of all uploaded files; the oldest are removed first."""
MAX_UPLOADS = 2_000


@contextmanager
def private_folder() -> Iterator[Path]:
    """Return a temporary folder that other users cannot read, removed at the end.

    Also removes the folders of processes that were killed.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_mine(path) and (path / LOCK).exists() and not is_running(path):
            shutil.rmtree(path, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with running(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Mark a folder as that of a running process."""
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        with lock.acquire(timeout=0):
            yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)


def is_running(folder: Path) -> bool:
    """Whether the process of a folder is running, or may be starting."""
    try:
        if time.time() - folder.stat().st_mtime < STARTING_SECONDS:
            return True
        if not (folder / LOCK).is_file():
            return False
        with FileLock(folder / LOCK, thread_local=False).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _is_mine(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (os.name != "posix" or status.st_uid == os.getuid())


def make_room(uploads: Path) -> None:
    """Remove the oldest uploaded files while there are too many, or they take too much space.

    Also removes files whose upload was cut off: Gradio moves complete ones to folders.
    """
    for path in uploads.glob("*"):
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime < time.time() - CUT_OFF_SECONDS:
                path.unlink()
    files: list[tuple[float, int, Path]] = []
    # folders and files may be removed in the meantime: `os.walk` leaves such folders out
    for path in (Path(folder) / name for folder, _, names in os.walk(uploads) for name in names):
        with suppress(OSError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                files.append((about.st_mtime, about.st_size, path))
    size = 0
    for number, (_, of_file, path) in enumerate(sorted(files, reverse=True)):
        size += of_file
        if number >= MAX_UPLOADS or size > MAX_UPLOADED:
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()
