"""Pieces of the corpora that benchmarks of the application measure."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def held_back(path: Path, split: str = "test") -> Iterator[tuple[str, bytes]]:
    """Yield names and MIDI files of a split of a corpus, in an order spread over its names."""
    corpus = path.stem
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".mid"))
        if f"{corpus}/splits.json" in archive.namelist():
            held = {*json.loads(archive.read(f"{corpus}/splits.json"))[split]}
            names = [n for n in names if PurePosixPath(n).stem in held and "/original/" not in n]
        else:
            names = [name for name in names if f"/{split}/" in name]
        for name in dict.fromkeys((*names[:: len(names) // 32 or 1], *names)):
            yield PurePosixPath(name).stem, archive.read(name)
