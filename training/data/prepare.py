"""Preparation of a corpus: encodes the MIDI files of a mixture in parallel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from relpe.files import atomic_write
from tokenization.errors import MidiError, TokenizerError
from tokenization.presets import load_tokenizer
from tokenization.remi.losses import Losses, losses
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import NUM_STYLES
from tokenization.tokenizer import FILE_NAME
from training.data.card import card
from training.data.copies.melody import melody_runs
from training.data.corpus import FORMAT_VERSION, note_ids
from training.data.corpus_writer import COUNTS, Encoded, Member, join
from training.data.mixtures.listing import Listing
from training.data.mixtures.mixture import UNKNOWN, Mixture
from training.data.reading import Reading, read_piece
from training.data.sources import MemberError, Source
from training.errors import TrainingError, check_range
from training.files import read_json

BATCH_FORMAT = 7
"""Format of encoded batches; a resumed run reuses only batches of the same format."""
BATCH_FILES = 200
"""Files per batch; a run that is stopped loses at most one batch per process."""


def prepare(
    corpora: Path | Sequence[Path],
    output: Path,
    tokenizer: Remi,
    *,
    include: str | Sequence[str] | None = None,
    splits: Path | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """Encode all MIDI files of one or several corpora; return the contents of `data.json`.

    Several corpora are split independently, so that each piece is in the same split as if its
    corpus were alone, unless it has the melody of a piece in another split; the names of files then
    start with the name of their corpus. `include` is a shell pattern for names within a corpus, one
    for all corpora or one for each. `splits` is a JSON file of split -> list of names without
    suffix. Without it, a `splits.json` in the corpus determines the splits; else folders named
    train, validation and test; else a hash of the names, 90 : 5 : 5.

    See `prepare_mixture` for the rest.

    Raises:
        TrainingError: a corpus, the splits or the output folder cannot be used.
    """
    paths = [corpora] if isinstance(corpora, Path) else [*corpora]
    patterns = [include] if include is None or isinstance(include, str) else [*include]
    patterns = patterns * len(paths) if len(patterns) == 1 else patterns
    names = [path.absolute().name for path in paths]
    if len(patterns) != len(paths):
        raise TrainingError(
            f"--include: found {len(patterns)} patterns for {len(paths)} corpora, expected one for "
            "all or one for each"
        )
    if len(set(names)) < len(names):
        raise TrainingError(
            f"--corpus: found corpora named {', '.join(names)}, expected different names; rename "
            "a folder or archive"
        )
    mixture = Mixture.of(paths, patterns)
    return prepare_mixture(
        mixture, output, tokenizer, splits=splits, workers=workers, strict=strict
    )


def prepare_mixture(
    mixture: Mixture,
    output: Path,
    tokenizer: Remi,
    *,
    splits: Path | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """Encode all MIDI files of a mixture; return the contents of `data.json`.

    Unreadable files, damaged files (with `strict`, they are unreadable), copies, pieces that move
    to another split (`place` says why) and files in no split are listed in `refused.txt`,
    `damaged.txt`, `copies.txt`, `moved.txt` and `unassigned.txt`, and the first entries of each
    also in `data.json`. `workers` is the number of processes (None: one per core); results do not
    depend on it. A run that was stopped resumes if no file has changed. Memory holds the names and
    the runs of melody of all files, and the tokens of one batch per process.

    Raises:
        TrainingError: a corpus, the splits or the output folder cannot be used.
    """
    check_range("--workers", workers, 1)
    source = ", ".join(mixture.corpora)
    _check_output(output, tokenizer, source)
    listings = [
        Listing.of(name, config, mixture.folder, splits) for name, config in mixture.corpora.items()
    ]
    styles = _styles(listings)
    if styles:
        tokenizer = replace(tokenizer.config, styles=styles).build()
    batches = plan_batches(listings, output, tokenizer, strict=strict)
    _encode_all(batches, workers or os.cpu_count() or 1)
    joined = _partial(output) / "joined"
    facts = _join_all(batches, listings, styles, joined)
    are_to_train = any(listing.splits["train"] for listing in listings)
    needed = ["train"] if are_to_train else [*facts["splits"]]
    if not any(facts["splits"][split]["tokens"] for split in needed):
        excluded = facts["refused"] | facts["copies"]
        reason = next(iter(excluded.values()), "the split 'train' is empty")
        shutil.rmtree(_partial(output))
        paths = ", ".join(str(listing.source.path) for listing in listings)
        problem = "no music to train on" if are_to_train else "no music"
        raise TrainingError(f"{paths}: {problem}; {reason}")
    includes = [
        config.include if len(listings) == 1 else f"{config.include} of {name}"
        for name, config in mixture.corpora.items()
        if config.include is not None
    ]
    data = {
        "format": FORMAT_VERSION,
        "source": source,
        "include": ", ".join(includes) or None,
        "styles": [*styles],
        "warnings": [
            *(warning for listing in listings for warning in listing.warnings),
            *_empty_splits(facts),
            *_unlicensed(listings),
        ],
        **facts,
    }
    data["corpora"] = [
        corpus | shared
        for corpus, shared in zip(_described(listings, facts), facts["corpora"], strict=True)
    ]
    # what examples are drawn from, besides tokens; a run with other data is not resumed
    drawn = [[*styles], [corpus["weight"] for corpus in data["corpora"]]]
    data["hash"] = hashlib.sha256(f"{facts['hash']}{json.dumps(drawn)}".encode()).hexdigest()
    _publish(data, tokenizer, joined, output)
    return data


def _styles(listings: Sequence[Listing]) -> tuple[str, ...]:
    """Return the names of all styles.

    Raises:
        TrainingError: there are more than a vocabulary has.
    """
    styles = sorted({style for listing in listings for style in listing.styles.values()})
    if len(styles) > NUM_STYLES:
        raise TrainingError(
            f"found {len(styles)} styles, expected at most {NUM_STYLES}; give several values of a "
            "column one name"
        )
    return tuple(styles)


def _empty_splits(facts: dict[str, Any]) -> list[str]:
    """Return the warnings about splits without pieces, and about a validation of a single one."""
    uses = {
        "validation": "relpe-train fit cannot select the best weights",
        "test": "relpe-train evaluate needs --split",
        "train": "relpe-train fit needs another corpus",
    }
    files = {split: facts["splits"][split]["files"] for split in uses}
    single = [
        "the split 'validation' has one piece, by which relpe-train fit selects the best weights: "
        "add pieces"
    ]
    return [
        *(
            f"the split {split!r} is empty: {use}"
            for split, use in uses.items()
            if not files[split]
        ),
        *(single if files["validation"] == 1 else []),
    ]


def _unlicensed(listings: Sequence[Listing]) -> list[str]:
    """Return a warning about corpora without a licence; empty if all have one."""
    names = [listing.name for listing in listings if listing.config.licence == UNKNOWN]
    if not names:
        return []
    return [
        f"no licence is known for {', '.join(names)}: write it into the mixture, or give it to "
        "relpe-train export with --licence before you share a model"
    ]


def _described(listings: Sequence[Listing], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a mixture says about its corpora, for `data.json`. Weights sum to 1."""
    tokens = [corpus["splits"]["train"]["tokens"] for corpus in facts["corpora"]]
    weights = [
        (float(count) if listing.config.weight is None else listing.config.weight) * (count > 0)
        for listing, count in zip(listings, tokens, strict=True)
    ]
    words = ("licence", "attribution", "changes", "address", "train_only", "include", "pieces")
    return [
        {
            "name": listing.name,
            "weight": weight / sum(weights) if weight else 0.0,
            **{word: getattr(listing.config, word) for word in words},
            "filtered": listing.filtered,
        }
        for listing, weight in zip(listings, weights, strict=True)
    ]


@dataclass(frozen=True)
class FileBatch:
    """Some files of a split that are encoded together."""

    source: Source
    """The source, restricted to these files so that little data is sent to a worker."""
    corpus: int
    """Index of the corpus in the mixture."""
    split: str
    prefix: str
    """Prefix of names in all output."""
    reading: Reading
    tokenizer: Remi
    path: Path
    strict: bool = False
    """Whether damaged files are refused."""


def plan_batches(
    listings: Sequence[Listing], output: Path, tokenizer: Remi, *, strict: bool = False
) -> list[FileBatch]:
    """Return all batches by corpus and split.

    Batches that a stopped run with the same plan has encoded are kept; all others are removed.
    """
    planned = [
        (number, listing, split, members)
        for number, listing in enumerate(listings)
        for split, members in listing.splits.items()
    ]
    prefixes = _prefixes(listings)
    reader = [BATCH_FORMAT, BATCH_FILES, repr(tokenizer.config), tokenizer.vocabulary.hash, strict]
    digest = hashlib.sha256(repr(reader).encode())
    for number, listing, split, members in planned:
        reading = Reading.of(listing.config)
        row = (str(listing.source.path), split, prefixes[number], *reading)
        digest.update(repr(row).encode())
        digest.update(listing.source.stamp(members))
    folder = _partial(output) / "batches" / digest.hexdigest()[:16]
    if not folder.is_dir():
        shutil.rmtree(_partial(output), ignore_errors=True)
        folder.mkdir(parents=True)
    return [
        FileBatch(
            listing.source.part(members[start : start + BATCH_FILES]),
            number,
            split,
            prefixes[number],
            Reading.of(listing.config),
            tokenizer,
            folder / f"{place}-{start}.npz",
            strict,
        )
        for place, (number, listing, split, members) in enumerate(planned)
        for start in range(
            0, max(len(members), 1), BATCH_FILES
        )  # an empty split has one empty batch
    ]


def _prefixes(listings: Sequence[Listing]) -> list[str]:
    """Return the prefix of the names of each corpus."""
    return [f"{listing.name}/" if len(listings) > 1 else "" for listing in listings]


def _partial(output: Path) -> Path:
    """Return the folder in which a corpus is built."""
    return output.with_name(output.name + ".partial")


def _encode_all(batches: Sequence[FileBatch], workers: int) -> None:
    """Encode all batches except those that a stopped run has already encoded."""
    waiting = [batch for batch in batches if not batch.path.exists()]
    total, left = (sum(len(batch.source.names) for batch in some) for some in (batches, waiting))
    with tqdm(total=total, initial=total - left, unit="file") as bar:
        if workers == 1 or len(waiting) < 2:
            for batch in waiting:
                bar.update(_encode(batch))
            return
        # threads of OpenBLAS in several processes wait for each other in a loop
        with ProcessPoolExecutor(
            min(workers, len(waiting)), initializer=threadpool_limits, initargs=(1, "blas")
        ) as pool:
            futures = [pool.submit(_encode, batch) for batch in waiting]
            try:
                for future in as_completed(futures):
                    bar.update(future.result())
            finally:
                pool.shutdown(cancel_futures=True)


def _encode(batch: FileBatch) -> int:
    """Encode a batch and write its tokens; return the number of files."""
    bar_id, of_notes = batch.tokenizer.vocabulary.ids["Bar"], note_ids(batch.tokenizer)
    names: list[str] = []
    refused: dict[str, str] = {}
    damaged: dict[str, str] = {}
    ids_of: list[NDArray[np.uint16]] = [np.zeros(0, "<u2")]
    bars_of: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    runs_of: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
    counts: list[list[int]] = []
    masked: list[int] = []
    for member, content in batch.source.read():
        name = batch.prefix + member
        if isinstance(content, MemberError):
            refused[name] = str(content)
            continue
        try:
            piece = read_piece(
                content, name, batch.tokenizer, lambda _: batch.reading, strict=batch.strict
            )
        except (MidiError, TokenizerError) as error:
            refused[name] = str(error) if name in str(error) else f"{name}: {error}"
            continue
        ids = np.asarray(piece.sequence.ids).astype("<u2")
        notes = int(np.count_nonzero(np.isin(ids, of_notes)))
        if not notes:
            refused[name] = f"{name}: found drums only, expected notes of pitched instruments"
            continue
        if piece.file.damage:
            damaged[name] = piece.file.damage
        lost = losses(piece.score, piece.ranks)
        counts.append([notes, *(getattr(piece.sequence, key) for key in COUNTS), *lost])
        ids_of.append(ids)
        bars_of.append(np.flatnonzero(ids == bar_id))
        runs_of.append(melody_runs(piece.file))
        masked.append(piece.masked)
        names.append(name)
    with atomic_write(batch.path) as path, path.open("wb") as stream:
        np.savez(
            stream,
            ids=np.concatenate(ids_of),
            lengths=np.array([len(ids) for ids in ids_of[1:]], np.int64),
            bars=np.concatenate(bars_of),
            num_bars=np.array([len(bars) for bars in bars_of[1:]], np.int64),
            runs=np.concatenate(runs_of),
            num_runs=np.array([len(runs) for runs in runs_of[1:]], np.int64),
            masked=np.array(masked, np.uint8),
            counts=np.array(counts, np.int64).reshape(-1, 1 + len(COUNTS) + len(Losses._fields)),
            texts=np.array(json.dumps([names, refused, damaged])),
        )
    return len(batch.source.names)


def _join_all(
    batches: Sequence[FileBatch], listings: Sequence[Listing], styles: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Write all batches as one corpus; return its entries for `data.json`."""
    shutil.rmtree(folder, ignore_errors=True)  # from a run that was stopped at this point
    folder.mkdir()
    index_of = {style: index for index, style in enumerate(styles)}
    named = [*zip(_prefixes(listings), listings, strict=True)]
    members = [
        Member(
            listing.config.train_only,
            {prefix + name: index_of[style] for name, style in listing.styles.items()},
        )
        for prefix, listing in named
    ]
    encoded = [Encoded(batch.path, batch.corpus, batch.split) for batch in batches]
    unassigned = [prefix + name for prefix, listing in named for name in listing.unassigned]
    vocabulary = batches[0].tokenizer.vocabulary
    return join(encoded, members, unassigned, folder, vocabulary.hash)


def _publish(data: dict[str, Any], tokenizer: Remi, folder: Path, output: Path) -> None:
    """Complete a corpus with its tokenizer, card and data.json, and move it to `output`."""
    tokenizer.save(folder)
    text = card(data, tokenizer)
    (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    (folder / "data.json").write_text(json.dumps(data, indent=1) + "\n")
    if output.exists():
        shutil.rmtree(output)
    folder.rename(output)
    shutil.rmtree(_partial(output))


def _check_output(output: Path, tokenizer: Remi, source: str) -> None:
    """Raise TrainingError unless a folder is empty, or a corpus of this source and tokenizer."""
    if not output.is_file() and not (output.is_dir() and any(output.iterdir())):
        return
    if not (output / "data.json").exists():
        raise TrainingError(f"{output}: exists and is not a prepared corpus; choose a new folder")
    held = read_json(output / "data.json", (), "remove it")
    try:
        kind = load_tokenizer(output).config.kind if (output / FILE_NAME).is_file() else None
    except TokenizerError:  # of an earlier version; its advice is to prepare the data again
        kind = ""
    if kind not in (None, tokenizer.config.kind):
        raise TrainingError(
            f"{output}: is a corpus of another tokenizer; choose a new folder, or remove this one"
        )
    if held.get("source", source) != source:
        raise TrainingError(
            f"{output}: is a corpus made from {held['source']}, not from {source}; choose a new "
            "folder, or remove this one"
        )
