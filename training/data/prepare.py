"""Folders or zips of MIDI files to memory-mapped tokens, over all cores."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.errors import MidiError
from tokenization.midi.reader import read_midi
from tokenization.tokenizer import Tokenizer
from training.data.corpus import FORMAT_VERSION, note_ids
from training.data.corpus_writer import COUNTS, card, join
from training.data.sources import MemberError, Source, deal
from training.errors import TrainingError, check_range
from training.files import read_json, replacing

BATCH_FORMAT = 3
"""Of what a stopped run leaves behind; one of another format is not taken over."""
BATCH_FILES = 200
"""Files that a process takes at once; what a run that is stopped loses at most for each."""


def prepare(
    corpora: Path | Sequence[Path],
    output: Path,
    tokenizer: Tokenizer,
    *,
    include: str | Sequence[str] | None = None,
    splits: Path | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Write the tokens of all MIDI files of a corpus, by split; returns what `data.json` holds.

    Of several corpora each is dealt on its own, so that a piece is in the split it would be in
    alone, and names begin with that of its corpus. `include` is a pattern of names within a corpus,
    as a shell writes it, one for all or one for each; `splits` a JSON file of split -> list of file
    names without suffix. Without one, a `splits.json` in a corpus is used; without that, folders
    named train, validation and test; without those, names are dealt by their hash, 90 : 5 : 5.
    Files that cannot be read, those of which only a part can, and those in no split stand in
    `refused.txt`, `damaged.txt` and `unassigned.txt`, the first of them in `data.json`. `workers`
    processes do the work, one per core where None; the result does not depend on them. A run that
    was stopped goes on where it was, if no file has changed since. Memory holds names of files and
    the tokens of one batch of them for each process, whatever the size of a corpus.

    Raises:
        TrainingError: a corpus, the splits or the output folder cannot be used.
    """
    check_range("--workers", workers, 1)
    paths = [corpora] if isinstance(corpora, Path) else [*corpora]
    patterns = [include] if include is None or isinstance(include, str) else [*include]
    patterns = patterns * len(paths) if len(patterns) == 1 else patterns
    names = [path.absolute().name for path in paths]
    if len(patterns) != len(paths) or len(set(names)) < len(names):
        raise TrainingError(
            f"found {len(patterns)} patterns for {len(paths)} corpora named {', '.join(names)}; "
            "expected one pattern for all or one for each, and no two corpora of one name"
        )
    _check_output(output, tokenizer, ", ".join(names))
    batches, unassigned = plan_batches(paths, patterns, output, tokenizer, splits)
    _encode_all(batches, workers or os.cpu_count() or 1, progress=progress)
    joined = _partial(output) / "joined"
    facts = _join_all(batches, unassigned, joined, progress=progress)
    if not facts["splits"]["train"]["tokens"]:
        reason = next(iter(facts["refused"].values()), "no file is in the split 'train'")
        shutil.rmtree(_partial(output))
        found = ", ".join(map(str, paths))
        raise TrainingError(f"{found}: found no music to train on; {reason}")
    several = len(set(patterns)) > 1
    data = {
        "format": FORMAT_VERSION,
        "source": ", ".join(names),
        "include": ", ".join(p or "*" for p in patterns) if several else patterns[0],
        **facts,
    }
    _publish(data, tokenizer, joined, output)
    return data


@dataclass(frozen=True)
class Batch:
    """Some files of a split, and where their tokens go."""

    source: Source
    """Of these files alone, since a process is told of one batch after the other."""
    split: str
    prefix: str
    """What stands before names in all that is written."""
    tokenizer: Tokenizer
    path: Path


def plan_batches(
    corpora: Sequence[Path],
    patterns: Sequence[str | None],
    output: Path,
    tokenizer: Tokenizer,
    splits: Path | None,
) -> tuple[list[Batch], list[str]]:
    """All batches, by corpus and split, and the files in none.

    Those that a stopped run with the same plan has left behind are kept, others removed.
    """
    planned: list[tuple[Source, str, str, list[str]]] = []
    unassigned: list[str] = []
    for path, pattern in zip(corpora, patterns, strict=True):
        source = Source.open(path)
        prefix = f"{path.absolute().name}/" if len(corpora) > 1 else ""
        dealt, others = deal(source, source.midi_names(pattern), splits)
        planned += [(source, split, prefix, members) for split, members in dealt.items()]
        unassigned += [prefix + other for other in others]
    reader = [BATCH_FORMAT, BATCH_FILES, repr(tokenizer.config), tokenizer.vocabulary.hash]
    digest = hashlib.sha256(repr(reader).encode())
    for source, split, prefix, members in planned:
        digest.update(repr((str(source.path), split, prefix)).encode())
        digest.update(source.stamp(members))
    folder = _partial(output) / "batches" / digest.hexdigest()[:16]
    if not folder.is_dir():
        shutil.rmtree(_partial(output), ignore_errors=True)
        folder.mkdir(parents=True)
    return [
        Batch(
            source.part(members[start : start + BATCH_FILES]),
            split,
            prefix,
            tokenizer,
            folder / f"{number}-{start}.npz",
        )
        for number, (source, split, prefix, members) in enumerate(planned)
        for start in range(0, max(len(members), 1), BATCH_FILES)  # an empty split is a split too
    ], unassigned


def _partial(output: Path) -> Path:
    """Where a corpus is made."""
    return output.with_name(output.name + ".partial")


def _encode_all(batches: Sequence[Batch], workers: int, *, progress: bool) -> None:
    """Encode the batches that a stopped run has not."""
    waiting = [batch for batch in batches if not batch.path.exists()]
    total, left = (sum(len(batch.source.names) for batch in some) for some in (batches, waiting))
    with tqdm(total=total, initial=total - left, unit="file", disable=not progress) as bar:
        if workers == 1 or len(waiting) < 2:
            for batch in waiting:
                bar.update(_encode(batch))
            return
        with ProcessPoolExecutor(min(workers, len(waiting))) as pool:
            futures = [pool.submit(_encode, batch) for batch in waiting]
            try:
                for future in as_completed(futures):
                    bar.update(future.result())
            finally:
                pool.shutdown(cancel_futures=True)


def _encode(batch: Batch) -> int:
    """Write the tokens of a batch; returns how many files it had."""
    bar_id, of_notes = batch.tokenizer.vocabulary.ids["Bar"], note_ids(batch.tokenizer)
    names: list[str] = []
    refused: dict[str, str] = {}
    damaged: dict[str, str] = {}
    ids_of: list[NDArray[np.uint16]] = [np.zeros(0, "<u2")]
    bars_of: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    counts = np.zeros(len(COUNTS) + 1, np.int64)
    for member, content in batch.source.read():
        name = batch.prefix + member
        if isinstance(content, MemberError):
            refused[name] = str(content)
            continue
        try:
            score = read_midi(content, name=name)
            sequence = batch.tokenizer.encode(score)
        except MidiError as error:
            refused[name] = str(error)
            continue
        if score.damage:
            damaged[name] = score.damage
        ids = np.asarray(sequence.ids).astype("<u2")
        notes = np.count_nonzero(np.isin(ids, of_notes))
        counts += [notes, *(getattr(sequence, key) for key in COUNTS)]
        ids_of.append(ids)
        bars_of.append(np.flatnonzero(ids == bar_id))
        names.append(name)
    with replacing(batch.path) as path, path.open("wb") as stream:
        np.savez(
            stream,
            ids=np.concatenate(ids_of),
            lengths=np.array([len(ids) for ids in ids_of[1:]], np.int64),
            bars=np.concatenate(bars_of),
            num_bars=np.array([len(bars) for bars in bars_of[1:]], np.int64),
            counts=counts,
            texts=np.array(json.dumps([names, refused, damaged])),
        )
    return len(batch.source.names)


def _join_all(
    batches: Sequence[Batch], unassigned: Sequence[str], folder: Path, *, progress: bool
) -> dict[str, Any]:
    """Write all batches as one corpus; returns its facts."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped while it joined
    folder.mkdir()
    of_split: dict[str, list[Path]] = {}
    for batch in batches:
        of_split.setdefault(batch.split, []).append(batch.path)
    vocabulary = batches[0].tokenizer.vocabulary
    return join(of_split, unassigned, folder, vocabulary.hash, progress=progress)


def _publish(data: dict[str, Any], tokenizer: Tokenizer, folder: Path, output: Path) -> None:
    """Add tokenizer, card and data.json to a corpus, and put it in its place."""
    tokenizer.save(folder)
    text = card(data, tokenizer)
    (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    (folder / "data.json").write_text(json.dumps(data, indent=1) + "\n")
    if output.exists():
        shutil.rmtree(output)
    folder.rename(output)
    shutil.rmtree(_partial(output))


def _check_output(output: Path, tokenizer: Tokenizer, source: str) -> None:
    """Raises TrainingError for a folder that holds anything but this corpus."""
    if not output.is_file() and not (output.is_dir() and any(output.iterdir())):
        return
    if not (output / "data.json").exists():
        raise TrainingError(f"{output}: exists and is no prepared corpus; name a new folder")
    held = read_json(output / "data.json", (), "remove it")
    if held.get("vocabulary", tokenizer.vocabulary.hash) != tokenizer.vocabulary.hash:
        raise TrainingError(
            f"{output}: holds a corpus of another tokenizer; name a new folder, or remove it"
        )
    if held.get("source", source) != source:
        raise TrainingError(
            f"{output}: holds a corpus made from {held['source']}, not from {source}; name a new "
            "folder, or remove it"
        )
