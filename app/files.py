"""Writes files atomically, and checks names and folders before work begins."""

from __future__ import annotations

import errno
import re
import secrets
import stat
import tempfile
import unicodedata
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RAW_SOUND = ".stems-"
"""Prefix of the names of folders of raw sound, which are temporary."""
MOST_NAME_BYTES = 60
"""Longest part of a file name that a title takes; file systems allow 255 bytes in all."""


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`, with its suffix, for writing a file atomically.

    It is renamed to `path` at the end, or removed after an error. Its name is random, so that
    concurrent writers of one file do not interfere.
    """
    beside = path.with_name(f".{secrets.token_hex(8)}.part{path.suffix}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Removes temporary files of `appearing` that a killed process has left in a folder."""
    for path in folder.glob(".*.part*"):
        if re.fullmatch(r"\.[0-9a-f]{16}\.part(\.\w+)?", path.name):
            path.unlink(missing_ok=True)


def safe_name(title: str) -> str:
    """A title as part of a file name, cut after `MOST_NAME_BYTES` between characters."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", title)).strip("-.")
    return plain.encode()[:MOST_NAME_BYTES].decode(errors="ignore") or "music"


def check_writable(path: Path) -> None:
    """Raises OSError where it is clear beforehand that a file cannot be written."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.stat().st_mode):  # follows links; too long a name fails
            raise IsADirectoryError(errno.EISDIR, "it is a folder, expected the name of a file")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raises OSError where files cannot be written in a folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def size_on_disk(folder: Path) -> int:
    """Bytes that the files below a folder occupy: less than their lengths where they have holes."""
    size = 0
    with suppress(FileNotFoundError):  # removed meanwhile
        for path in folder.rglob("*"):
            found = path.stat()
            if stat.S_ISREG(found.st_mode):  # Windows counts no blocks
                size += 512 * found.st_blocks if hasattr(found, "st_blocks") else found.st_size
    return size
