"""Where MIDI files come from, and which split each belongs to."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from training.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
}


@dataclass(frozen=True)
class Source:
    """MIDI files of a folder or a zip archive, by name, and texts that stand beside them."""

    path: Path
    names: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> Source:
        """All files below a folder or in a zip archive.

        Raises:
            TrainingError: there is no such folder or zip archive.
        """
        if path.is_dir():
            files = (item for item in path.rglob("*") if item.is_file())
            return cls(path, tuple(sorted(item.relative_to(path).as_posix() for item in files)))
        if path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return cls(path, tuple(sorted(n for n in archive.namelist() if n[-1:] != "/")))
        found = "a file of another kind" if path.exists() else "nothing"
        raise TrainingError(f"{path}: found {found}, expected a folder or a zip archive of MIDI")

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Name and content of each of `names`."""
        if self.path.is_dir():
            yield from ((name, (self.path / name).read_bytes()) for name in names)
            return
        with zipfile.ZipFile(self.path) as archive:
            yield from ((name, archive.read(name)) for name in names)

    def stamps(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Size and time of change of each file; of the archive, which holds them all."""
        paths = [self.path / name for name in names] if self.path.is_dir() else [self.path]
        return [(status.st_size, status.st_mtime_ns) for status in map(Path.stat, paths)]

    def midi_names(self, include: str | None = None) -> list[str]:
        """Names of the MIDI files that fit the pattern.

        Raises:
            TrainingError: there are none.
        """
        names = [name for name in self.names if name.lower().endswith((".mid", ".midi"))]
        if include is not None:
            names = [name for name in names if fnmatch.fnmatchcase(name, include)]
        if not names:
            wanted = f" that fit {include!r}" if include else ""
            raise TrainingError(f"{self.path}: found no .mid or .midi files{wanted}")
        return names


def deal(
    source: Source, names: Sequence[str], splits: Path | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Files of each split, and those that are in none.

    By the table of splits, given or inside the source; else by folders named train and test or the
    like; else by the hash of each name, 90 : 5 : 5, and of three files or more at least one in
    each. `val` and `valid` are names of `validation`, `training` of `train`.

    Raises:
        TrainingError: the table cannot be read.
    """
    table = _read_splits(source, splits)
    if table is not None:
        return _deal_by_table(names, table)
    depth = _depth_of_splits(names)
    if depth is None:
        return _deal_by_hash(names), []
    dealt = _no_files()
    for name in names:
        folder = PurePosixPath(name).parts[depth]
        dealt.setdefault(_SPLITS.get(folder, folder), []).append(name)
    return dealt, []


def _no_files() -> dict[str, list[str]]:
    return {"train": [], "validation": [], "test": []}


def _deal_by_hash(names: Sequence[str]) -> dict[str, list[str]]:
    def share(name: str) -> float:
        # a name of other bytes than UTF-8 holds them as surrogates
        content = name.encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.sha256(content).digest()[:4]) / 2**32

    dealt = _no_files()
    for name in names:
        split = "train" if share(name) < 0.9 else "validation" if share(name) < 0.95 else "test"
        dealt[split].append(name)
    if len(names) >= len(dealt):
        for split, members in dealt.items():
            if not members:
                fullest = max(dealt.values(), key=len)
                moved = (min if split == "train" else max)(fullest, key=share)
                fullest.remove(moved)
                members.append(moved)
    return dealt


def _depth_of_splits(names: Sequence[str]) -> int | None:
    """Level of the folders that are named after splits, where all files lie below such ones."""
    folders = [PurePosixPath(name).parts[:-1] for name in names]
    for depth in range(min(map(len, folders), default=0)):
        here = {_SPLITS.get(parts[depth]) for parts in folders}
        if "train" in here and len(here - {None}) > 1:
            return depth
    return None


def _read_splits(source: Source, path: Path | None) -> dict[str, list[str]] | None:
    if path is not None:
        if not path.is_file():
            raise TrainingError(f"{path}: found no such file, expected JSON of split -> names")
        text = path.read_bytes()
    else:
        inside = [name for name in source.names if PurePosixPath(name).name == "splits.json"]
        if not inside:
            return None
        [(_, text)] = source.read(inside[:1])
    try:
        splits = json.loads(text)
        return {str(split): [str(name) for name in names] for split, names in splits.items()}
    except (ValueError, AttributeError, TypeError) as error:
        where = path or source.path
        raise TrainingError(f"{where}: splits.json is not JSON of split -> names") from error


def _deal_by_table(
    names: Sequence[str], splits: Mapping[str, list[str]]
) -> tuple[dict[str, list[str]], list[str]]:
    dealt = _no_files()
    split_of = {name: _SPLITS.get(split, split) for split in splits for name in splits[split]}
    unassigned: list[str] = []
    for name in names:
        split = split_of.get(name) or split_of.get(PurePosixPath(name).stem)
        (dealt.setdefault(split, []) if split else unassigned).append(name)
    return dealt, unassigned
