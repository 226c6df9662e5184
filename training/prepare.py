"""Folder or zip of MIDI files to memory-mapped tokens."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import logging
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from tokenization.errors import MidiError
from tokenization.midi import read_midi
from training.corpus import FORMAT_VERSION, pitch_ids
from training.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from tokenization.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

COUNTS = ("dropped", "clipped", "merged", "tempos_clipped")
"""What encoding does to notes and tempos, counted over a split."""


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

    def read(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        """Name and content of each of `names`."""
        if self.path.is_dir():
            yield from ((name, (self.path / name).read_bytes()) for name in names)
            return
        with zipfile.ZipFile(self.path) as archive:
            yield from ((name, archive.read(name)) for name in names)


def prepare(
    source_path: Path,
    output: Path,
    tokenizer: Tokenizer,
    *,
    include: str | None = None,
    splits: Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Write the tokens of all MIDI files of a corpus, by split; returns what `data.json` holds.

    `include` is a pattern of names within the source, as a shell writes it; `splits` a JSON file
    of split -> list of file names without suffix. Without one, a `splits.json` in the source is
    used; without that, names are dealt by their hash, 90 : 5 : 5. Files that cannot be read are
    listed in `data.json`.

    Raises:
        TrainingError: the source, the splits or the output folder cannot be used.
    """
    source = Source.open(source_path)
    taken = output.is_file() or (output.is_dir() and any(output.iterdir()))
    if taken and not (output / "data.json").exists():
        raise TrainingError(f"{output}: exists and is no prepared corpus; name a new folder")
    names = [name for name in source.names if name.lower().endswith((".mid", ".midi"))]
    if include is not None:
        names = [name for name in names if fnmatch.fnmatchcase(name, include)]
    if not names:
        wanted = f" that fit {include!r}" if include else ""
        raise TrainingError(f"{source_path}: found no .mid or .midi files{wanted}")
    dealt, unassigned = _deal(names, _read_splits(source, splits))
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    refused: dict[str, str] = {}
    digest = hashlib.sha256(tokenizer.vocabulary.hash.encode())
    facts: dict[str, Any] = {}
    with tqdm(total=sum(map(len, dealt.values())), unit="file", disable=not progress) as bar:
        for split, members in dealt.items():
            bar.set_description(split)
            facts[split] = _write_split(
                source.read(members), partial / split, tokenizer, refused, digest.update, bar.update
            )
    if not facts.get("train", {}).get("tokens"):
        reason = next(iter(refused.values()), "no file is in the split 'train'")
        shutil.rmtree(partial)
        raise TrainingError(f"{source_path}: found no music to train on; {reason}")
    tokenizer.save(partial)
    data = {
        "format": FORMAT_VERSION,
        "source": source_path.name,
        "include": include,
        "vocabulary": tokenizer.vocabulary.hash,
        "hash": digest.hexdigest(),
        "splits": facts,
        "refused": refused,
        "unassigned": unassigned,
    }
    (partial / "data.json").write_text(json.dumps(data, indent=1) + "\n")
    if output.exists():
        shutil.rmtree(output)
    partial.rename(output)
    return data


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


def _deal(
    names: list[str], splits: Mapping[str, list[str]] | None
) -> tuple[dict[str, list[str]], list[str]]:
    """Files of each split, and those that are in none."""
    dealt: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    if splits is None:
        for name in names:
            share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
            split = "train" if share < 0.9 else "validation" if share < 0.95 else "test"
            dealt[split].append(name)
        return dealt, []
    split_of = {member: split for split, members in splits.items() for member in members}
    unassigned: list[str] = []
    for name in names:
        split = split_of.get(name) or split_of.get(PurePosixPath(name).stem)
        (dealt.setdefault(split, []) if split else unassigned).append(name)
    return dealt, unassigned


def _write_split(
    files: Iterator[tuple[str, bytes]],
    folder: Path,
    tokenizer: Tokenizer,
    refused: dict[str, str],
    hash_update: Callable[[bytes], None],
    advance: Callable[[], object],
) -> dict[str, Any]:
    folder.mkdir()
    bar_id = tokenizer.vocabulary.ids["Bar"]
    pitches = pitch_ids(tokenizer)
    names: list[str] = []
    lengths: list[int] = []
    bars: list[NDArray[np.int64]] = []
    counts = dict.fromkeys(COUNTS, 0)
    notes = 0
    with (folder / "tokens.uint16").open("wb") as stream:
        for name, content in files:
            advance()
            try:
                sequence = tokenizer.encode(read_midi(content, name=name))
            except MidiError as error:
                refused[name] = str(error)
                logger.debug("refused: %s", error)
                continue
            ids = np.asarray(sequence.ids).astype("<u2")
            for key in COUNTS:
                counts[key] += int(getattr(sequence, key))
            notes += int(np.isin(ids, pitches).sum())
            stream.write(ids.tobytes())
            hash_update(ids.tobytes())
            bars.append(np.flatnonzero(ids == bar_id))
            names.append(name)
            lengths.append(len(ids))
    np.save(folder / "offsets.npy", np.cumsum([0, *lengths], dtype=np.int64))
    np.save(folder / "bars.npy", np.concatenate([np.zeros(0, np.int64), *bars]))
    np.save(folder / "bar_offsets.npy", np.cumsum([0, *map(len, bars)], dtype=np.int64))
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in names))
    facts = {"files": len(names), "tokens": sum(lengths), "notes": notes}
    return facts | {"bars": sum(map(len, bars))} | counts
