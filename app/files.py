"""Finds and reads files, and checks file names and folders."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import CommandError

if TYPE_CHECKING:
    from tokenization.score import Score

PROMPT_SUFFIXES = (".mid", ".midi", ".kar", ".musicxml", ".mxl")
"""Suffixes of the files that `find_midi` finds in folders; .xml can be anything."""
MOST_NAME_BYTES = 60
"""Maximum length in bytes of a title in a file name; file systems allow 255 in total."""


def safe_name(title: str) -> str:
    """Convert a title to a part of a file name, at most `MOST_NAME_BYTES` long."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", title)).strip("-.")
    return plain.encode()[:MOST_NAME_BYTES].decode(errors="ignore") or "music"


def check_writable(path: Path) -> None:
    """Raise OSError for a file that cannot be written, if this can be found out in advance."""
    with suppress(FileNotFoundError):
        # follows links; raises OSError for a name that is too long
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError(errno.EISDIR, "this is a folder, expected a file name")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raise OSError if no file can be created in a folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def read_file(path: Path, most: int) -> bytes:
    """Read a file of at most `most` bytes.

    Raises CommandError if the file cannot be read or is larger. Larger files are not read in full.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise CommandError(f"{path}: found a folder, expected a file; choose a file in it")
        if not stat.S_ISREG(mode):  # a pipe may never end
            raise CommandError(f"{path}: found a pipe or a device, expected a file; save it first")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError as error:
        raise CommandError(f"{path}: there is no such file; check its name and folder") from error
    except (OSError, ValueError) as error:  # ValueError: its name has a null byte
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > most:
        raise CommandError(
            f"{path}: the file is larger than {most:,} bytes; shorten it or raise --max-file-size"
        )
    return content


def read_music_file(path: Path, most: int, *, strict: bool = False) -> tuple[bytes, Score]:
    """Read a file as a MIDI file, and its score, as `tokenization.midi.musicxml.read_music` does.

    Raises CommandError like `read_file`, and MidiError if the music cannot be read.
    """
    from tokenization.midi.musicxml import read_music

    return read_music(read_file(path, most), path.name, strict=strict)


def find_midi(places: Sequence[Path], besides: Path) -> dict[Path, str]:
    """Find MIDI and MusicXML files; `places` are files, or folders that are searched recursively.

    Returns a dict from paths to names; the files of each folder are sorted by path. A file in a
    folder is named after its path in the folder, without suffix. Hidden files, files in the folder
    `besides` and duplicates are skipped.

    Raises CommandError for a place that does not exist or a folder without MIDI files.
    """
    names: dict[Path, str] = {}
    seen: set[str] = set()
    for place in places:
        if not os.path.exists(place):  # noqa: PTH110 - False if the name is too long
            raise CommandError(f"{place}: no such file or folder; check the prompts")
        files = dict(_in_folder(place, besides)) if place.is_dir() else {place: place.stem}
        if not files:
            raise CommandError(
                f"{place}: found no file that ends with {', '.join(PROMPT_SUFFIXES)}; choose "
                "another folder"
            )
        for path, name in files.items():
            if (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                names[path] = name
    return names


def _in_folder(folder: Path, besides: Path) -> Iterator[tuple[Path, str]]:
    left_out = os.path.realpath(besides)
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if (
            path.suffix.lower() in PROMPT_SUFFIXES
            and not any(part.startswith(".") for part in below.parts)
            and path.is_file()
            and not os.path.realpath(path).startswith(os.path.join(left_out, ""))  # noqa: PTH118
        ):
            yield path, "-".join(below.with_suffix("").parts)


def size_on_disk(folder: Path) -> int:
    """Return the bytes that a folder's files occupy on disk, not counting holes in sparse files."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed in the meantime
            status = path.stat()
            if stat.S_ISREG(status.st_mode):  # Windows does not report blocks
                size += 512 * status.st_blocks if hasattr(status, "st_blocks") else status.st_size
    return size
