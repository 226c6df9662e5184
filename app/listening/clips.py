"""The clips of a study, as its listeners and its report need them.

Nothing here loads PyTorch: the rating page would take three times the memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from app.batch.complete import STUDY_NAME
from app.batch.manifest import KEY_NAME, NAME, Row, read_manifest
from app.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

_ANCHORS = ("shuffled_bars", "shuffled_notes")


class JudgedClip(NamedTuple):
    """What a clip is, and how long."""

    file: str
    prompt: str
    """Of pieces from nothing, their number: the clips of a number are compared like those of a
    prompt."""
    condition: str
    seconds: float
    new_seconds: float = 0.0
    """Where the new music begins."""


class ListeningStudy(NamedTuple):
    """The clips of a listening test, with what is kept from listeners."""

    title: str
    seed: int
    rows: dict[str, Row]
    """Of the manifest and the key, by their `file`."""
    clips: dict[str, JudgedClip]
    conditions: tuple[str, ...]
    """Their names, in the order of the configuration; empty if it is missing."""
    anchors: tuple[str, ...]
    """Names of the low anchors."""
    listening: Any
    """The section `listening` of the configuration, as it was read."""


def read_study(folder: Path) -> ListeningStudy:
    """Read the clips of a study and their conditions.

    Raises CommandError if a file of the study is missing or cannot be read.
    """
    if not folder.is_dir():
        raise CommandError(f"{folder}: there is no such folder; give the folder of a study")
    for name in (NAME, KEY_NAME):
        if not (folder / name).is_file():
            raise CommandError(
                f"{folder / name}: this file is missing, expected the clips of the study and their "
                "conditions; restore it from the folder that relpe batch made"
            )
    rows = read_manifest(folder / NAME)
    clips = {
        file: JudgedClip(
            *(file, row.prompt or f"piece {row.repetition}", row.condition),
            seconds=_seconds(folder, row, "clip_seconds"),
            new_seconds=_seconds(folder, row, "new_seconds", empty="0"),
        )
        for file, row in rows.items()
    }
    try:
        said = yaml.safe_load((folder / STUDY_NAME).read_text("utf-8"))
        kinds = {
            str(one.get("name") or one["kind"].replace("_", " ")): one["kind"]
            for one in said["conditions"]
        }
        return ListeningStudy(
            title=str(said["name"]),
            seed=int(said.get("seed", 0)),
            rows=rows,
            clips=clips,
            conditions=tuple(kinds),
            anchors=tuple(name for name, kind in kinds.items() if kind in _ANCHORS),
            listening=said.get("listening", {}),
        )
    except FileNotFoundError:
        return ListeningStudy(folder.resolve().name, 0, rows, clips, (), (), {})
    except (
        *(OSError, UnicodeDecodeError, yaml.YAMLError),
        *(KeyError, TypeError, AttributeError, ValueError),
    ) as error:
        raise CommandError(
            f"{folder / STUDY_NAME}: this is not the study of relpe batch; restore it from the "
            "folder that relpe batch made"
        ) from error


def _seconds(folder: Path, row: Row, column: str, empty: str = "") -> float:
    """Return the number in a column; `empty` is read where there is none."""
    text = getattr(row, column)
    try:
        seconds = float(text or empty)
    except ValueError:
        seconds = math.inf
    if not 0 <= seconds < math.inf:
        raise CommandError(
            f"{folder / NAME}: {row.file} has {column} {text!r}, expected seconds; restore the "
            "file that relpe batch made"
        )
    return seconds
