"""The files that a command reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from app.cli.arguments import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MIDI_SUFFIXES = (".mid", ".midi")


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
