"""Files that can be written, and are whole or not there; the folders of the page's sessions."""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
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

from app.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEPT_SECONDS = 24 * 3600.0
"""How long the files of a job stay while its session lasts."""
LEFT_SECONDS = 3600.0
"""How long the files of a session stay after it: a lost connection looks like a closed tab."""
RAW_SOUND = ".stems-"
"""How the names of folders of raw sound begin: they are there for a while, and no music."""
MIDI_SUFFIXES = (".mid", ".midi")
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


def read_file(path: Path, most: int) -> bytes:
    """Content of a file of at most `most` bytes; nothing more is read.

    Raises CommandError where it cannot be read, or is larger.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    if len(content) > most:
        raise CommandError(
            f"{path}: larger than {most:,} bytes; shorten it or raise --max-file-size"
        )
    return content


def find_midi(places: Sequence[Path], besides: Path) -> dict[Path, str]:
    """MIDI files by path, with their names: files as given, and all in folders in sorted order.

    A file of a folder is called by the way to it, without suffix. Files that are hidden or lie in
    the folder `besides` are none of a folder's, and a file that is found again is left out. Raises
    CommandError for a place that is not there, or a folder without any.
    """
    found: dict[Path, str] = {}
    seen: set[str] = set()
    for place in places:
        if not os.path.exists(place):  # noqa: PTH110 - of a name that is too long it is False
            raise CommandError(f"{place}: no such file or folder; --prompts takes what is there")
        files = dict(_in_folder(place, besides)) if place.is_dir() else {place: place.stem}
        if not files:
            raise CommandError(f"{place}: found no MIDI file (.mid or .midi) in this folder")
        for path, name in files.items():
            if (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                found[path] = name
    return found


def _in_folder(folder: Path, besides: Path) -> Iterator[tuple[Path, str]]:
    left_out = os.path.realpath(besides)
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if (
            path.suffix.lower() in MIDI_SUFFIXES
            and not any(part.startswith(".") for part in below.parts)
            and path.is_file()
            and not os.path.realpath(path).startswith(os.path.join(left_out, ""))  # noqa: PTH118
        ):
            yield path, "-".join(below.with_suffix("").parts)


def prune(kept: Path, days: float | None, most_bytes: int | None) -> list[Path]:
    """Removes the oldest jobs below a folder of kept music, and gives their folders.

    Those older than so many days, and as many as it takes for the rest to be no larger than so many
    bytes on the disk; the newest job stays. Nothing that the page has not made is touched.
    """
    jobs: list[tuple[float, int, Path]] = []
    for folder in _folders_of_page(kept):
        with suppress(FileNotFoundError):  # of others, who clean as well
            files = [path.stat() for path in folder.rglob("*")]
            made = max([folder.stat().st_mtime, *(file.st_mtime for file in files)])
            jobs.append((made, sum(map(_room, files)), folder))
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


def remove_raw(kept: Path, run: str = "*", untouched_seconds: float = 0.0) -> None:
    """Removes raw sound below a folder of kept music, of a run that ends or of those killed."""
    for folder in _folders_of_page(kept, run):
        for raw in folder.glob(f"{RAW_SOUND}*"):
            with suppress(FileNotFoundError):
                if time.time() - raw.stat().st_mtime >= untouched_seconds:
                    shutil.rmtree(raw, ignore_errors=True)


def size_on_disk(folder: Path) -> int:
    """Bytes that the files below a folder take: less than their lengths where they have holes."""
    with suppress(FileNotFoundError):
        return sum(_room(path.stat()) for path in folder.rglob("*"))
    return 0


def _folders_of_page(kept: Path, run: str = "*") -> Iterator[Path]:
    for folder in kept.glob(f"{run}/*/*"):
        if _OF_PAGE.fullmatch(folder.relative_to(kept).as_posix()) and folder.is_dir():
            yield folder


def _room(found: os.stat_result) -> int:
    if not stat.S_ISREG(found.st_mode):
        return 0
    return 512 * found.st_blocks if hasattr(found, "st_blocks") else found.st_size  # not on Windows


_OF_PAGE = re.compile(r"\d{4}-\d\d-\d\d-\w+/[0-9a-f]{16}/\d{3,}")
"""Folder of a job below that of all runs: day, session, number."""


class SessionFolders:
    """A folder for each job in one for its session, whose name nobody else can guess.

    Unless they are to `keep`, files go a day after they were made, or an hour after their session,
    if it has not come back.
    """

    def __init__(self, root: Path, *, keep: bool) -> None:
        self.root = root.resolve()
        self.keep = keep
        self._made: dict[Path, float] = {}  # of those that will be removed
        self._left: dict[Path, float] = {}  # when the sessions of some of them were over
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(16)
        self._numbers = itertools.count(1)

    def new(self, session: str) -> Path:
        """An empty folder for a job."""
        with self._lock:
            self._prune()
            folder = self._of(session) / f"{next(self._numbers):03d}"
            folder.mkdir(parents=True)
            if not self.keep:
                self._made[folder] = time.time()
                self._left.pop(folder.parent, None)
        return folder

    def leave(self, session: str) -> None:
        """The session is over, as far as is known."""
        with self._lock:
            left = self._of(session)
            if any(folder.parent == left for folder in self._made):
                self._left[left] = time.time()

    def back(self, session: str) -> None:
        """It goes on: its folders stay as if it had not been left."""
        with self._lock:
            self._left.pop(self._of(session), None)

    def _of(self, session: str) -> Path:
        name = hashlib.blake2b(session.encode(), key=self._secret, digest_size=8).hexdigest()
        return self.root / name

    def _prune(self) -> None:
        """Removes what has had its time; only new files make that necessary."""
        made_before, left_before = time.time() - KEPT_SECONDS, time.time() - LEFT_SECONDS
        for folder, made in list(self._made.items()):
            left = self._left.get(folder.parent)
            if made < made_before or (left is not None and left < left_before):
                del self._made[folder]
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # the session has newer ones
                    folder.parent.rmdir()
        going_on = {folder.parent for folder in self._made}
        self._left = {folder: left for folder, left in self._left.items() if folder in going_on}
