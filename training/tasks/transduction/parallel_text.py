"""Parallel text: texts and their translations, in files of several formats."""

from __future__ import annotations

import gettext
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.errors import TrainingError

_CONTEXT = "\x04"


class TextPair(NamedTuple):
    """A text and its translation."""

    source: str
    target: str


def read_parallel(folder: Path, names: Sequence[str]) -> list[TextPair]:
    """Return the pairs of a `.tsv` or `.mo` file, or those of two files with a text per line.

    A line of a `.tsv` file has a source and a target, and perhaps further columns, which are not
    read. A `.mo` file has the messages of a program and their translations. In all of them, pairs
    of which a text is empty are left out. Texts are UTF-8.

    Raises:
        TrainingError: a file is missing, empty or damaged, or the two files have different numbers
            of lines.
    """
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise TrainingError(
                f"{path}: no such file; give the folder of the parallel text with --data"
            )
    if len(paths) == 2:
        pairs = _pairs_of_lines(*paths)
    elif len(paths) == 1 and paths[0].suffix == ".mo":
        pairs = _pairs_of_messages(paths[0])
    elif len(paths) == 1 and paths[0].suffix == ".tsv":
        pairs = _pairs_of_columns(paths[0])
    else:
        raise TrainingError(
            f"{', '.join(names)}: expected a .tsv file, a .mo file, or two files, of which the "
            "first has the sources and the second the targets, line by line"
        )
    texts = [TextPair(source.strip(), target.strip()) for source, target in pairs]
    complete_pairs = [pair for pair in texts if pair.source and pair.target]
    if not complete_pairs:
        raise TrainingError(f"{' and '.join(map(str, paths))}: found no text with a translation")
    return complete_pairs


def _pairs_of_lines(source: Path, target: Path) -> list[tuple[str, str]]:
    lines = [_lines(source), _lines(target)]
    if len(lines[0]) != len(lines[1]):
        raise TrainingError(
            f"{source} has {len(lines[0]):,} lines and {target} has {len(lines[1]):,}; each line "
            "must be the translation of the same line of the other file"
        )
    return list(zip(*lines, strict=True))


def _pairs_of_columns(path: Path) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) < 2:
            raise TrainingError(
                f"{path}: line {number} has no tab, expected a source, a tab and a target"
            )
        pairs.append((cells[0], cells[1]))
    return pairs


def _pairs_of_messages(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open("rb") as stream:
            # it has no public method that lists its messages
            catalogue = gettext.GNUTranslations(stream)._catalog  # pyright: ignore[reportAttributeAccessIssue]
    except (OSError, ValueError, LookupError, struct.error) as error:
        raise TrainingError(f"{path}: the .mo file is damaged ({error})") from error
    # the empty message has facts about the file, and those with plurals are no strings
    named = {key: value for key, value in catalogue.items() if key and isinstance(key, str)}
    return [
        (" ".join(key.rpartition(_CONTEXT)[2].split()), " ".join(value.split()))
        for key, value in named.items()
    ]


def _lines(path: Path) -> list[str]:
    """Return lines of a file without their ends; other characters that separate lines are text."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise TrainingError(
            f"{path}: line {number} is not UTF-8; convert the file, for example with iconv"
        ) from error
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]
