"""Preparation of a corpus: encodes folders or zips of MIDI files in parallel."""

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
from tokenization.midi import read_midi
from tokenization.remi.losses import Losses, losses
from tokenization.tokenizer import Tokenizer
from training.data.corpus import FORMAT_VERSION, note_ids
from training.data.corpus_writer import COUNTS, card, join
from training.data.sources import MemberError, Source, deal
from training.errors import TrainingError, check_range
from training.files import read_json, replacing

BATCH_FORMAT = 5
"""Format of encoded batches; a resumed run reuses only batches of the same format."""
BATCH_FILES = 200
"""Files per batch; a run that is stopped loses at most one batch per process."""


def prepare(
    corpora: Path | Sequence[Path],
    output: Path,
    tokenizer: Tokenizer,
    *,
    include: str | Sequence[str] | None = None,
    splits: Path | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """Encode all MIDI files of one or several corpora; return the contents of `data.json`.

    Several corpora are split independently, so that each piece is in the same split as if its
    corpus were alone; the names of files then start with the name of their corpus. `include` is a
    shell pattern for names within a corpus, one for all corpora or one for each. `splits` is a JSON
    file of split -> list of names without suffix. Without it, a `splits.json` in the corpus
    determines the splits; else folders named train, validation and test; else a hash of the names,
    90 : 5 : 5.

    Unreadable files, damaged files (with `strict`, they are unreadable) and files in no split are
    listed in
    `refused.txt`, `damaged.txt` and `unassigned.txt`, and the first entries of each also in
    `data.json`. `workers` is the number of processes (None: one per core); results do not depend on
    it. A run that was stopped resumes if no file has changed. Memory holds the names of all files,
    and the tokens of one batch per process.

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
            "expected one pattern for all or one for each, and corpora with different names"
        )
    _check_output(output, tokenizer, ", ".join(names))
    batches, unassigned = plan_batches(paths, patterns, output, tokenizer, splits, strict=strict)
    _encode_all(batches, workers or os.cpu_count() or 1)
    joined = _partial(output) / "joined"
    facts = _join_all(batches, unassigned, joined)
    if not facts["splits"]["train"]["tokens"]:
        excluded = facts["refused"] | facts["copies"]
        reason = next(iter(excluded.values()), "the split 'train' is empty")
        shutil.rmtree(_partial(output))
        found = ", ".join(map(str, paths))
        raise TrainingError(f"{found}: no music to train on; {reason}")
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
    """Some files of a split that are encoded together."""

    source: Source
    """The source, restricted to these files so that little data is sent to a worker."""
    split: str
    prefix: str
    """Prefix of names in all output."""
    tokenizer: Tokenizer
    path: Path
    strict: bool = False
    """Whether damaged files are refused."""


def plan_batches(
    corpora: Sequence[Path],
    patterns: Sequence[str | None],
    output: Path,
    tokenizer: Tokenizer,
    splits: Path | None,
    *,
    strict: bool = False,
) -> tuple[list[Batch], list[str]]:
    """All batches by corpus and split, and the files in no split.

    Batches that a stopped run with the same plan has encoded are kept; all others are removed.
    """
    planned: list[tuple[Source, str, str, list[str]]] = []
    unassigned: list[str] = []
    for path, pattern in zip(corpora, patterns, strict=True):
        source = Source.open(path)
        prefix = f"{path.absolute().name}/" if len(corpora) > 1 else ""
        dealt, others = deal(source, source.midi_names(pattern), splits)
        planned += [(source, split, prefix, members) for split, members in dealt.items()]
        unassigned += [prefix + other for other in others]
    reader = [BATCH_FORMAT, BATCH_FILES, repr(tokenizer.config), tokenizer.vocabulary.hash, strict]
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
            strict,
        )
        for number, (source, split, prefix, members) in enumerate(planned)
        for start in range(
            0, max(len(members), 1), BATCH_FILES
        )  # an empty split has one empty batch
    ], unassigned


def _partial(output: Path) -> Path:
    """Folder in which a corpus is built."""
    return output.with_name(output.name + ".partial")


def _encode_all(batches: Sequence[Batch], workers: int) -> None:
    """Encode all batches except those that a stopped run has already encoded."""
    waiting = [batch for batch in batches if not batch.path.exists()]
    total, left = (sum(len(batch.source.names) for batch in some) for some in (batches, waiting))
    with tqdm(total=total, initial=total - left, unit="file") as bar:
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
    """Encode a batch and write its tokens; return the number of files."""
    bar_id, of_notes = batch.tokenizer.vocabulary.ids["Bar"], note_ids(batch.tokenizer)
    names: list[str] = []
    refused: dict[str, str] = {}
    damaged: dict[str, str] = {}
    ids_of: list[NDArray[np.uint16]] = [np.zeros(0, "<u2")]
    bars_of: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    counts: list[list[int]] = []
    for member, content in batch.source.read():
        name = batch.prefix + member
        if isinstance(content, MemberError):
            refused[name] = str(content)
            continue
        try:
            score = read_midi(content, name=name, strict=batch.strict)
            sequence = batch.tokenizer.encode(score)
        except MidiError as error:
            refused[name] = str(error)
            continue
        if score.damage:
            damaged[name] = score.damage
        ids = np.asarray(sequence.ids).astype("<u2")
        notes = int(np.count_nonzero(np.isin(ids, of_notes)))
        lost = losses(score, batch.tokenizer.track_ranks(score.tracks))
        counts.append([notes, *(getattr(sequence, key) for key in COUNTS), *lost])
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
            counts=np.array(counts, np.int64).reshape(-1, 1 + len(COUNTS) + len(Losses._fields)),
            texts=np.array(json.dumps([names, refused, damaged])),
        )
    return len(batch.source.names)


def _join_all(batches: Sequence[Batch], unassigned: Sequence[str], folder: Path) -> dict[str, Any]:
    """Write all batches as one corpus; return its entries for `data.json`."""
    shutil.rmtree(folder, ignore_errors=True)  # from a run that was stopped at this point
    folder.mkdir()
    of_split: dict[str, list[Path]] = {}
    for batch in batches:
        of_split.setdefault(batch.split, []).append(batch.path)
    vocabulary = batches[0].tokenizer.vocabulary
    return join(of_split, unassigned, folder, vocabulary.hash)


def _publish(data: dict[str, Any], tokenizer: Tokenizer, folder: Path, output: Path) -> None:
    """Complete a corpus with its tokenizer, card and data.json, and move it to `output`."""
    tokenizer.save(folder)
    text = card(data, tokenizer)
    (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    (folder / "data.json").write_text(json.dumps(data, indent=1) + "\n")
    if output.exists():
        shutil.rmtree(output)
    folder.rename(output)
    shutil.rmtree(_partial(output))


def _check_output(output: Path, tokenizer: Tokenizer, source: str) -> None:
    """Raise TrainingError unless a folder is empty, or a corpus of this source and tokenizer."""
    if not output.is_file() and not (output.is_dir() and any(output.iterdir())):
        return
    if not (output / "data.json").exists():
        raise TrainingError(f"{output}: exists and is not a prepared corpus; choose a new folder")
    held = read_json(output / "data.json", (), "remove it")
    if held.get("vocabulary", tokenizer.vocabulary.hash) != tokenizer.vocabulary.hash:
        raise TrainingError(
            f"{output}: is a corpus of another tokenizer; choose a new folder, or remove this one"
        )
    if held.get("source", source) != source:
        raise TrainingError(
            f"{output}: is a corpus made from {held['source']}, not from {source}; choose a new "
            "folder, or remove this one"
        )
