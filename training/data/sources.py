"""Sources of MIDI files (folders and zip archives), and the assignment of files to splits."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import struct
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError

_SUFFIXES = (".mid", ".midi", ".kar")
"""Suffixes of MIDI files; those of karaoke are MIDI files with lyrics."""
_NAMES = {"train": ("train", "training"), "validation": ("validation", "valid", "val")}
_SPLITS = {name: split for split, names in _NAMES.items() for name in names} | {"test": "test"}
_NOT_RENAMED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Source:
    """Files of a folder or a zip archive."""

    path: Path
    names: tuple[str, ...]
    """Names of the files; `open` sorts them."""
    members: NDArray[np.int64] | None = None
    """For an archive, (names, 5): header offset, compressed size, method, CRC-32 and flags of each
    file. With them, workers need not read the archive's directory (half a kilobyte per file)."""

    @classmethod
    def open(cls, path: Path) -> Source:
        """List all files below a folder or in a zip archive.

        Raises:
            TrainingError: the path is neither a folder nor a zip archive.
        """
        if path.is_dir():
            return cls(path, tuple(sorted(_files_below(path))))
        if path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                # of several files with the same name, the last one counts
                infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
            names = tuple(sorted(infos))
            members = np.empty((len(names), 5), np.int64)
            for row, name in enumerate(names):
                info = infos.pop(name)
                members[row, :2] = info.header_offset, info.compress_size
                members[row, 2:] = info.compress_type, info.CRC, info.flag_bits
            return cls(path, names, members)
        kind = "a file of another kind" if path.exists() else "no such file or folder"
        if path.is_file() and path.suffix.lower() == ".zip":
            kind = "an incomplete or damaged zip archive"
        raise TrainingError(f"{path}: found {kind}, expected a folder or a zip archive of MIDI")

    def part(self, names: Sequence[str]) -> Source:
        """Return some of the files, in the given order."""
        if self.members is None:
            return Source(self.path, tuple(names))
        rows = [bisect_left(self.names, name) for name in names]
        return Source(self.path, tuple(names), self.members[rows])

    def read(self) -> Iterator[tuple[str, bytes | MemberError]]:
        """Return name and contents of each file, or the error if an archive cannot return it."""
        if self.members is None:
            yield from ((name, (self.path / name).read_bytes()) for name in self.names)
            return
        with self.path.open("rb") as stream:
            for name, member in zip(self.names, self.members.tolist(), strict=True):
                try:
                    yield name, _read_member(stream, *member)
                except MemberError as error:
                    yield name, error

    def stamp(self, names: Sequence[str]) -> bytes:
        """Hash the files' names, sizes and modification times (for an archive: its own)."""
        digest = hashlib.sha256()
        root = None if self.members is None else os.stat(self.path)  # noqa: PTH116  # see below
        for name in names:
            # a string, since a million Path objects take time
            status = root or os.stat(f"{self.path}/{name}")  # noqa: PTH116
            line = f"{len(name)} {name} {status.st_size} {status.st_mtime_ns}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.digest()

    def midi_names(self, include: str | None = None) -> list[str]:
        """Return the names of the MIDI files that match the pattern.

        Raises:
            TrainingError: there are none.
        """
        names = [name for name in self.names if name.lower().endswith(_SUFFIXES)]
        if include is not None:
            names = [name for name in names if fnmatch.fnmatchcase(name, include)]
        if not names:
            condition = f" that match {include!r}" if include else ""
            raise TrainingError(f"{self.path}: found no .mid, .midi or .kar files{condition}")
        return names


class MemberError(ValueError):
    """A file cannot be read from its archive."""


def _files_below(folder: Path) -> Iterator[str]:
    """Return the names of all files below a folder; follows links to files but not to folders."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(f"{folder}/{inside}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{inside}{entry.name}/")
                elif entry.is_file():
                    yield f"{inside}{entry.name}"


def _read_member(
    stream: BinaryIO, start: int, size: int, method: int, crc: int, flags: int
) -> bytes:
    """Return the contents of the file in a zip archive whose header starts at `start`."""
    encrypted = flags & 1
    if encrypted or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        kind = "encrypted" if encrypted else f"compressed with method {method}"
        raise MemberError(f"{kind} in the archive; unpack the archive and use the folder")
    stream.seek(start)
    header = stream.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise MemberError("damaged in the archive (its header is missing)")
    # only the lengths of the name and of the extra field are needed
    stream.seek(sum(struct.unpack("<2H", header[26:])), 1)
    content = stream.read(size)
    if method == zipfile.ZIP_DEFLATED:
        try:
            content = zlib.decompress(content, -zlib.MAX_WBITS)
        except zlib.error as error:
            raise MemberError(f"damaged in the archive ({error})") from error
    if zlib.crc32(content) != crc:
        raise MemberError("damaged in the archive (its CRC-32 differs from the directory's)")
    return content


class Dealt(NamedTuple):
    """Files by split."""

    splits: dict[str, list[str]]
    unassigned: list[str]
    """Files in no split."""
    missing: list[str]
    """Names in the table of splits without a file."""


def deal(
    source: Source,
    names: Sequence[str],
    splits: Path | None,
    renamed: Mapping[str, str] = _NOT_RENAMED,
) -> Dealt:
    """Assign files to splits.

    Splits come from a table, given or inside the source; else from folders with names such as train
    and test; else from a hash of each name, 90 : 5 : 5. If the source has three files or more, each
    split has at least one. `val` and `valid` mean `validation`; `training` means `train`; `renamed`
    has further names.

    Raises:
        TrainingError: the table cannot be read, or a name is in two splits.
    """
    table, depth = _read_splits(source, splits), _depth_of_splits(names)
    missing: list[str] = []
    if table is not None:
        split_of = {name: split for split, members in table.items() for name in members}
        split_names = (
            split_of.get(name) or split_of.get(PurePosixPath(name).stem) for name in names
        )
        every = source.names if splits is None else names
        files = {*every, *(PurePosixPath(name).stem for name in every)}
        missing = [name for name in split_of if name not in files]
    elif depth is not None:
        split_names = (PurePosixPath(name).parts[depth] for name in names)
    else:
        return Dealt(_deal_by_hash(names), [], [])
    dealt, unassigned = _no_files(), []
    renamings = {**_SPLITS, **renamed}
    for name, split in zip(names, split_names, strict=True):
        members = dealt.setdefault(renamings.get(split, split), []) if split else unassigned
        members.append(name)
    return Dealt(dealt, unassigned, missing)


def _no_files() -> dict[str, list[str]]:
    return {"train": [], "validation": [], "test": []}


def _deal_by_hash(names: Sequence[str]) -> dict[str, list[str]]:
    def share(name: str) -> float:
        # names that are not UTF-8 contain surrogates
        content = name.encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.sha256(content).digest()[:4]) / 2**32

    dealt = _no_files()
    for name in names:
        split = "train" if share(name) < 0.9 else "validation" if share(name) < 0.95 else "test"
        dealt[split].append(name)
    for split, members in dealt.items():
        if not members and len(names) >= len(dealt):
            fullest = max(dealt.values(), key=len)
            moved = (min if split == "train" else max)(fullest, key=share)
            fullest.remove(moved)
            members.append(moved)
    return dealt


def _depth_of_splits(names: Sequence[str]) -> int | None:
    """Return the depth of the folders named after splits; None if there are no such folders.

    They are train and another one beside any others, or all folders at a depth.
    """
    # check folders, since there are fewer of them than files
    parents = {name.rpartition("/")[0] for name in names}
    folders = [PurePosixPath(parent).parts for parent in parents]
    for depth in range(min(map(len, folders), default=0)):
        here = {_SPLITS.get(parts[depth]) for parts in folders}
        if None not in here or ("train" in here and len(here - {None}) > 1):
            return depth
    return None


def _read_splits(source: Source, path: Path | None) -> dict[str, list[str]] | None:
    if path is not None:
        if not path.is_file():
            raise TrainingError(f"{path}: no such file, expected JSON of split -> names")
        text = path.read_bytes()
    else:
        inside = [name for name in source.names if f"/{name}".endswith("/splits.json")]
        if not inside:
            return None
        [(_, text)] = source.part(inside[:1]).read()
        if isinstance(text, MemberError):
            raise TrainingError(f"{source.path}: splits.json is {text}")
    where = path or source.path
    try:
        splits = json.loads(text)
        names_by_split = {
            str(split): [str(name) for name in names] for split, names in splits.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise TrainingError(f"{where}: splits.json is invalid, expected split -> names") from error
    split_of: dict[str, str] = {}
    for split, names in names_by_split.items():
        for name in names:
            other = split_of.setdefault(name, split)
            if other != split:
                raise TrainingError(
                    f"{where}: {name!r} is in the splits {other} and {split}, expected each name "
                    "in one split; remove it from one of them"
                )
    return names_by_split
