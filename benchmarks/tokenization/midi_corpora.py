"""MIDI files of corpora, of which benchmarks measure some."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.score import Score

ItemT = TypeVar("ItemT")


def midi_files(corpus: str) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and contents of a corpus, in the order of paths."""
    path, _, part = corpus.partition("#")
    if Path(path).is_dir():
        for file in sorted(Path(path).rglob("*.mid")):
            if part in file.as_posix():
                yield str(file), file.read_bytes()
        return
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".mid") and part in name:
                yield name, archive.read(name)


def spread(items: list[ItemT], at_most: int) -> list[ItemT]:
    """Return at most `at_most` items, evenly spread, and at least one if there are any."""
    return items[:: max(1, -(-len(items) // max(1, at_most)))]


def scores_of(corpus: str, at_most: int | None) -> list[Score]:
    """Return the scores of a corpus: of `at_most` files, evenly spread, or of all if it is None.

    Files that cannot be read are named on standard error.
    """
    files = list(midi_files(corpus))
    scores: list[Score] = []
    for name, content in spread(files, at_most or len(files)):
        try:
            scores.append(read_midi(content, name=name))
        except MidiError as error:
            sys.stderr.write(f"left out: {error}\n")
    return scores
