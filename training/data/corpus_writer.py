"""Writing of a corpus from batches of tokens: shards, counts, and lists of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.remi.losses import Losses
from training.data.copies import near_copies
from training.data.copies.placement import Pieces, place
from training.data.shards import MASKED_TEMPOS, MASKED_VELOCITIES, PIECE, ShardWriter

COUNTS = ("clipped", "merged", "tempos_scaled", "tempos_clipped")
"""Changes to notes and tempos by the encoding, counted per split. `Losses` has others."""
LISTS = ("refused", "damaged", "copies", "moved")
"""Lists of files in `data.json`: those that cannot be read, those read only in part, those left out
as copies of other pieces, and those in another split because of their melody."""
_COUNTED = ("files", "tokens", "notes", "bars", *COUNTS, "one_velocity", "default_tempo")
LISTED = 100
"""Maximum entries of a list in `data.json` and on the card; `<list>.txt` has all of them."""


class Encoded(NamedTuple):
    """A batch of encoded pieces of one corpus and split.

    The npz file has the `ids` of all pieces and their `lengths`, the `bars` of all pieces and their
    numbers `num_bars`, the `runs` of all melodies and their numbers `num_runs`, of each piece what
    is `masked` and the `counts` of notes, of `COUNTS` and of `Losses`, and `texts`: names, refused
    files and damaged files as JSON.
    """

    path: Path
    corpus: int
    split: str


class Member(NamedTuple):
    """A corpus of a mixture, as far as joining depends on it."""

    train_only: bool = False
    styles: Mapping[str, int] = MappingProxyType({})
    """Index of the style of each piece that has one."""


def join(
    batches: Sequence[Encoded],
    corpora: Sequence[Member],
    unassigned: Sequence[str],
    folder: Path,
    vocabulary_hash: str,
) -> dict[str, Any]:
    """Write all batches as one corpus; return its entries for `data.json`.

    `place` determines the split of each piece. The hash covers the vocabulary, all tokens and the
    facts of all pieces, and does not depend on shards and batches.
    """
    lists = {name: _List(folder / f"{name}.txt") for name in (*LISTS, "unassigned")}
    lists["unassigned"].add(dict.fromkeys(unassigned, ""))
    digest, of_facts = hashlib.sha256(vocabulary_hash.encode()), hashlib.sha256()
    facts: dict[str, Any] = {}
    of_corpora: list[dict[str, Any]] = [
        {"refused": 0, "copies": 0, "moved": 0, "splits": {}} for _ in corpora
    ]
    splits = [*dict.fromkeys(batch.split for batch in batches)]
    with tqdm(total=2 * len(batches), desc="joining", unit="batch", delay=2) as bar:
        pieces, firsts = _read_pieces(batches, corpora, lists, of_corpora, bar)
        placement = place(pieces)
        for name in ("copies", "moved"):
            reasons: dict[int, str] = getattr(placement, name)
            lists[name].add({pieces.names[index]: why for index, why in reasons.items()})
            for index in reasons:
                of_corpora[pieces.corpora[index]][name] += 1
        placed = np.array([split or "" for split in placement.splits], object)
        for split in splits:
            writer = ShardWriter(folder / split)
            counts = [_Counts() for _ in corpora]
            for batch, first, end in zip(batches, firsts[:-1], firsts[1:], strict=True):
                is_in_split = placed[first:end] == split
                if is_in_split.any():
                    added = _add(writer, batch, corpora[batch.corpus], is_in_split)
                    counts[batch.corpus].add(*added)
                    digest.update(added[0].tobytes())
                    of_facts.update(added[3].tobytes())
                bar.update(batch.split == split)
            facts[split] = _Counts.summed(counts) | {"shards": writer.close()}
            for of_corpus, counted in zip(of_corpora, counts, strict=True):
                of_corpus["splits"][split] = counted.facts
    digest.update(of_facts.digest())
    return {
        "vocabulary": vocabulary_hash,
        "hash": digest.hexdigest(),
        "splits": facts,
        "corpora": of_corpora,
        "listed": {name: some.count for name, some in lists.items()},
        **{name: lists[name].first for name in LISTS},
        "unassigned": [*lists["unassigned"].first],
    }


def _read_pieces(
    batches: Sequence[Encoded],
    corpora: Sequence[Member],
    lists: Mapping[str, _List],
    of_corpora: Sequence[dict[str, Any]],
    bar: tqdm,
) -> tuple[Pieces, list[int]]:
    """Return all pieces of the batches, the index of the first of each batch, and their number.

    Lists and counts refused and damaged files.
    """
    total = 0
    for batch in batches:
        with np.load(batch.path) as content:
            total += int(content["num_runs"].sum())
    pieces, firsts = Pieces(step=max(-(-total // near_copies.MOST_RUNS), 1)), [0]
    for batch in batches:
        with np.load(batch.path) as content:
            names, refused, damaged = json.loads(str(content["texts"]))
            pieces.hashes.extend(_hashes(content["ids"], content["lengths"]))
            runs = near_copies.sampled(content["runs"], content["num_runs"], pieces.step)
        pieces.runs.append(runs[0])
        pieces.num_runs.append(runs[1])
        lists["refused"].add(refused)
        lists["damaged"].add(damaged)
        of_corpora[batch.corpus]["refused"] += len(refused)
        pieces.names.extend(names)
        pieces.splits.extend([batch.split] * len(names))
        pieces.corpora.extend([batch.corpus] * len(names))
        pieces.train_only.extend([corpora[batch.corpus].train_only] * len(names))
        firsts.append(len(pieces.names))
        bar.update()
    return pieces, firsts


def _hashes(ids: NDArray[np.uint16], lengths: NDArray[np.int64]) -> list[bytes]:
    """Return a hash of the tokens of each piece."""
    ends = np.cumsum(lengths).tolist()
    content, starts = ids.tobytes(), [0, *ends][:-1]
    return [
        hashlib.blake2b(content[2 * start : 2 * end], digest_size=16).digest()
        for start, end in zip(starts, ends, strict=True)
    ]


def _add(
    writer: ShardWriter, batch: Encoded, corpus: Member, kept: NDArray[np.bool_]
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64], NDArray[np.void]]:
    """Write the chosen pieces of a batch; return their tokens, bars, counts and facts."""
    with np.load(batch.path) as content:
        ids, lengths, bars, num_bars, counts, masked = (
            content[key] for key in ("ids", "lengths", "bars", "num_bars", "counts", "masked")
        )
        names = json.loads(str(content["texts"]))[0]
    ids, bars = ids[np.repeat(kept, lengths)], bars[np.repeat(kept, num_bars)]
    names = [name for name, is_chosen in zip(names, kept, strict=True) if is_chosen]
    pieces = np.zeros(len(names), PIECE)
    pieces["corpus"], pieces["masked"] = batch.corpus, masked[kept]
    pieces["style"] = [corpus.styles.get(name, -1) for name in names]
    writer.add(ids, lengths[kept], bars, num_bars[kept], names, pieces)
    return ids, bars, counts[kept], pieces


class _Counts:
    """Counts of the pieces of a corpus in one split."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = dict.fromkeys(_COUNTED, 0)
        self.facts["losses"] = dict.fromkeys(Losses._fields, 0)

    def add(
        self,
        ids: NDArray[np.uint16],
        bars: NDArray[np.int64],
        counts: NDArray[np.int64],
        pieces: NDArray[np.void],
    ) -> None:
        """Count some pieces."""
        notes = counts[:, 0]
        numbers = {"files": len(pieces), "tokens": len(ids), "bars": len(bars)}
        for flag, key in ((MASKED_VELOCITIES, "one_velocity"), (MASKED_TEMPOS, "default_tempo")):
            numbers[key] = int(notes[(pieces["masked"] & flag) > 0].sum())
        sums = iter(counts.sum(0).tolist())
        numbers |= dict(zip(("notes", *COUNTS), sums, strict=False))
        for key, number in numbers.items():
            self.facts[key] += number
        for key, number in zip(Losses._fields, sums, strict=True):
            self.facts["losses"][key] += number

    @staticmethod
    def summed(counts: Sequence[_Counts]) -> dict[str, Any]:
        """Return the sums over all corpora."""
        lost = {key: sum(one.facts["losses"][key] for one in counts) for key in Losses._fields}
        return {key: sum(one.facts[key] for one in counts) for key in _COUNTED} | {"losses": lost}


class _List:
    """A list of files with reasons: the first entries in memory, all entries in a text file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.first: dict[str, str] = {}
        self.count = 0

    def add(self, reasons: Mapping[str, str]) -> None:
        """Append files; a list without entries has no text file."""
        for name in [*reasons][: LISTED - len(self.first)]:
            self.first[name] = reasons[name]
        self.count += len(reasons)
        if reasons:
            lines = (f"{name}: {why}" if why else name for name, why in reasons.items())
            text = "".join(line.replace("\n", "\\n") + "\n" for line in lines)
            with self._path.open("ab") as stream:
                stream.write(text.encode("utf-8", "surrogateescape"))
