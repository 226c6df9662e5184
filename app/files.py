"""Reads and finds files, writes them atomically, and checks names and folders in advance."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import CommandError

RAW_SOUND = ".stems-"
"""Prefix of the names of the temporary folders of raw sound."""
MIDI_SUFFIXES = (".mid", ".midi")
"""Suffixes of the files that `find_midi` finds."""
MOST_NAME_BYTES = 60
"""Most bytes of a file name that a title may take; file systems allow 255 in all."""


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
    """A title as part of a file name, cut to at most `MOST_NAME_BYTES` between characters."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", title)).strip("-.")
    return plain.encode()[:MOST_NAME_BYTES].decode(errors="ignore") or "music"


def check_writable(path: Path) -> None:
    """Raises OSError if it is clear beforehand that a file cannot be written."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.stat().st_mode):  # follows links; too long a name fails
            raise IsADirectoryError(errno.EISDIR, "it is a folder, expected the name of a file")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raises OSError if files cannot be written in a folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def read_file(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes.

    Raises CommandError if it cannot be read, or is larger; a larger file is not read to its end.
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
    """MIDI files by path, with their names: files as given, and all files of folders, sorted.

    A file of a folder is named by its path in the folder, without suffix. Hidden files, files in
    the folder `besides`, and duplicates are left out.

    Raises CommandError for a place that does not exist, or a folder without MIDI files.
    """
    found: dict[Path, str] = {}
    seen: set[str] = set()
    for place in places:
        if not os.path.exists(place):  # noqa: PTH110 - False for too long a name
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


def size_on_disk(folder: Path) -> int:
    """Bytes that the files below a folder occupy: less than their lengths where they have holes."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed meanwhile
            found = path.stat()
            if stat.S_ISREG(found.st_mode):  # Windows counts no blocks
                size += 512 * found.st_blocks if hasattr(found, "st_blocks") else found.st_size
    return size
