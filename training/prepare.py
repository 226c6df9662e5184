"""Folder or zip of MIDI files to memory-mapped tokens, over all cores."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from tokenization.errors import MidiError
from tokenization.midi import read_midi
from training.corpus import FORMAT_VERSION, note_ids
from training.errors import TrainingError, check_range
from training.files import replacing
from training.source import Source, deal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.tokenizer import Tokenizer

COUNTS = ("dropped", "clipped", "merged", "tempos_clipped")
"""What encoding does to notes and tempos, counted over a split."""
LISTS = ("refused", "damaged")
"""What `data.json` lists by file: those that cannot be read, and those of which a part can."""
BATCH_FORMAT = 2
"""Of what a stopped run leaves behind; one of another format is not taken over."""
BATCH_FILES = 200
"""Files that a process takes at once; what a run that is stopped loses at most for each."""


def prepare(
    source_path: Path,
    output: Path,
    tokenizer: Tokenizer,
    *,
    include: str | None = None,
    splits: Path | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Write the tokens of all MIDI files of a corpus, by split; returns what `data.json` holds.

    `include` is a pattern of names within the source, as a shell writes it; `splits` a JSON file
    of split -> list of file names without suffix. Without one, a `splits.json` in the source is
    used; without that, folders named train, validation and test; without those, names are dealt by
    their hash, 90 : 5 : 5. Files that cannot be read, and those of which only a part can, are
    listed in `data.json`. `workers` processes do the work, one per core where None; the result does
    not depend on them. A run that was stopped goes on where it was, if no file has changed since.

    Raises:
        TrainingError: the source, the splits or the output folder cannot be used.
    """
    check_range("--workers", workers, 1)
    source = Source.open(source_path)
    taken = output.is_file() or (output.is_dir() and any(output.iterdir()))
    if taken and not (output / "data.json").exists():
        raise TrainingError(f"{output}: exists and is no prepared corpus; name a new folder")
    dealt, unassigned = deal(source, source.midi_names(include), splits)
    partial = output.with_name(output.name + ".partial")
    batches = _plan(source, dealt, tokenizer, partial)
    open_batches = [batch for batch in batches if not batch.path.exists()]
    done = sum(len(batch.names) for batch in batches) - sum(len(b.names) for b in open_batches)
    total = sum(map(len, dealt.values()))
    with tqdm(total=total, initial=done, unit="file", disable=not progress) as bar:
        for count in _encode_all(open_batches, workers or os.cpu_count() or 1):
            bar.update(count)
    refused: dict[str, str] = {}
    damaged: dict[str, str] = {}
    digest = hashlib.sha256(tokenizer.vocabulary.hash.encode())
    facts: dict[str, Any] = {}
    for split in dealt:
        members = [batch.path for batch in batches if batch.split == split]
        facts[split] = _join(members, partial / split, refused, damaged, digest.update)
    if not facts["train"]["tokens"]:
        reason = next(iter(refused.values()), "no file is in the split 'train'")
        shutil.rmtree(partial)
        raise TrainingError(f"{source_path}: found no music to train on; {reason}")
    shutil.rmtree(partial / _BATCHES)
    tokenizer.save(partial)
    data = {
        "format": FORMAT_VERSION,
        "source": source_path.name,
        "include": include,
        "vocabulary": tokenizer.vocabulary.hash,
        "hash": digest.hexdigest(),
        "splits": facts,
        "refused": refused,
        "damaged": damaged,
        "unassigned": unassigned,
    }
    card = _card(data, tokenizer)
    (partial / "README.md").write_text(card, encoding="utf-8", errors="backslashreplace")
    (partial / "data.json").write_text(json.dumps(data, indent=1) + "\n")
    if output.exists():
        shutil.rmtree(output)
    partial.rename(output)
    return data


_BATCHES = "batches"


@dataclass(frozen=True)
class _Batch:
    """Some files of a split, and where their tokens go."""

    source: Source
    split: str
    names: tuple[str, ...]
    tokenizer: Tokenizer
    path: Path


def _plan(
    source: Source, dealt: dict[str, list[str]], tokenizer: Tokenizer, partial: Path
) -> list[_Batch]:
    """All batches; those that a stopped run with the same plan has left behind are kept."""
    stamps = {split: source.stamps(members) for split, members in dealt.items()}
    reader = [BATCH_FORMAT, BATCH_FILES, repr(tokenizer.config), tokenizer.vocabulary.hash]
    plan = [str(source.path), *reader, dealt, stamps]
    name = hashlib.sha256(json.dumps(plan).encode()).hexdigest()[:16]
    folder = partial / _BATCHES / name
    if not folder.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        folder.mkdir(parents=True)
    slim = Source(source.path, ())  # workers are told names; all of them would be sent each time
    return [
        _Batch(
            slim,
            split,
            tuple(members[start : start + BATCH_FILES]),
            tokenizer,
            folder / f"{split}-{start}.npz",
        )
        for split, members in dealt.items()
        for start in range(0, len(members), BATCH_FILES)
    ]


def _encode_all(batches: Sequence[_Batch], workers: int) -> Iterator[int]:
    """Encode batches; yields how many files each had."""
    if workers == 1 or len(batches) < 2:
        yield from map(_encode, batches)
        return
    with ProcessPoolExecutor(min(workers, len(batches))) as pool:
        futures = [pool.submit(_encode, batch) for batch in batches]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _encode(batch: _Batch) -> int:
    """Write the tokens of a batch; returns how many files it had."""
    bar_id, of_notes = batch.tokenizer.vocabulary.ids["Bar"], note_ids(batch.tokenizer)
    names: list[str] = []
    refused: dict[str, str] = {}
    damaged: dict[str, str] = {}
    ids_of: list[NDArray[np.uint16]] = [np.zeros(0, "<u2")]
    bars_of: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    counts = np.zeros(len(COUNTS) + 1, np.int64)
    for name, content in batch.source.read(batch.names):
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
    return len(batch.names)


def _join(
    batches: Sequence[Path],
    folder: Path,
    refused: dict[str, str],
    damaged: dict[str, str],
    hash_update: Callable[[bytes], None],
) -> dict[str, Any]:
    """All batches of a split as one corpus; returns its facts."""
    folder.mkdir(exist_ok=True)
    tables: dict[str, list[NDArray[np.int64]]] = {
        key: [np.zeros(0, np.int64)] for key in ("lengths", "bars", "num_bars")
    }
    counts = np.zeros(len(COUNTS) + 1, np.int64)
    names: list[str] = []
    with (folder / "tokens.uint16").open("wb") as stream:
        for path in batches:
            with np.load(path) as batch:
                content = batch["ids"].tobytes()
                for key, parts in tables.items():
                    parts.append(batch[key])
                counts += batch["counts"]
                members, bad, broken = json.loads(str(batch["texts"]))
            stream.write(content)
            hash_update(content)
            names += members
            refused |= bad
            damaged |= broken
    lengths, bars, num_bars = (np.concatenate(parts) for parts in tables.values())
    np.save(folder / "offsets.npy", np.append(0, np.cumsum(lengths)))
    np.save(folder / "bars.npy", bars)
    np.save(folder / "bar_offsets.npy", np.append(0, np.cumsum(num_bars)))
    listed = "".join(f"{name}\n" for name in names)
    (folder / "names.txt").write_text(listed, encoding="utf-8", errors="surrogateescape")
    notes, *others = counts.tolist()
    facts = {"files": len(names), "tokens": int(lengths.sum()), "notes": notes}
    return facts | {"bars": int(num_bars.sum())} | dict(zip(COUNTS, others, strict=True))


def _card(data: dict[str, Any], tokenizer: Tokenizer) -> str:
    """What people want to know of a corpus, in Markdown."""
    columns = ("files", "bars", "notes", "tokens", *COUNTS)
    rows = [
        f"| {split} | "
        + " | ".join(f"{facts[key]:,}" for key in columns)
        + f" | {facts['tokens'] / max(facts['notes'], 1):.2f} |"
        for split, facts in data["splits"].items()
    ]
    refused, damaged = (
        "".join(f"- {name}: {reason}\n" for name, reason in data[key].items()) for key in LISTS
    )
    taken = f", files {data['include']}" if data["include"] else ""
    return "\n".join(
        [
            f"# {data['source']} as tokens",
            "",
            f"Made by `relpe-train prepare` from {data['source']}{taken}, with the tokenizer "
            f"`{tokenizer.config.kind}` of {len(tokenizer.vocabulary)} ids. Hash of all tokens: "
            f"`{data['hash']}`.",
            "",
            f"| split | {' | '.join(key.replace('_', ' ') for key in columns)} | tokens per note |",
            "|---|" + "---|" * (len(columns) + 1),
            *rows,
            "",
            "Dropped: notes outside the range. Clipped: notes cut to the longest duration. Merged: "
            "notes left out since another stands at the same pitch and position. Tempos clipped: "
            "moved to 30 or 240.",
            "",
            f"{len(data['refused'])} files refused, {len(data['unassigned'])} in no split.",
            "",
            refused,
            f"{len(data['damaged'])} files read in part.",
            "",
            damaged,
        ]
    )
