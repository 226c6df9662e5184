"""A prepared corpus: memory-mapped pieces, and validation windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.remi import Remi
from training.data.masks import masked_ids
from training.data.shards import PieceFacts, Shard, shard_folders
from training.errors import TrainingError
from training.files import read_json

FORMAT_VERSION = 2
"""Version of `data.json` and of the files of the splits."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Pieces of one split, indexed across its shards.

    Memory holds only the offsets of pieces, 16 bytes per piece. Tokens are memory-mapped: a process
    loads only the pages that it reads, and processes on the same machine share them.
    """

    shards: tuple[Shard, ...]
    corpora: tuple[Mapping[str, Any], ...]
    """The corpora of which it was made, as in data.json: `name`, `weight` and other facts."""

    @classmethod
    def load(cls, folder: Path, split: str, only: Sequence[str] = ()) -> Corpus:
        """Open a split of a prepared corpus; of a mixture, `only` some of its corpora, by name.

        Those corpora are copied to memory; () opens all of them.

        Raises:
            TrainingError: the folder is not a prepared corpus with this split, or has no corpus of
                such a name.
        """
        facts = read_facts(folder)
        splits = facts["splits"]
        if split not in splits:
            split_names = ", ".join(splits)
            raise TrainingError(
                f"{folder}: found no split {split!r}, expected one of {split_names}"
            )
        folders = shard_folders(folder / split, splits[split]["shards"])
        shards, corpora = [*map(Shard.load, folders)], tuple(facts["corpora"])
        if only:
            names = [corpus["name"] for corpus in corpora]
            unknown = [name for name in only if name not in names]
            if unknown:
                raise TrainingError(
                    f"{folder}: found no corpus {unknown[0]!r}, expected one of {', '.join(names)}"
                )
            numbers = [names.index(name) for name in only]
            shards = [shard.only(np.isin(shard.pieces["corpus"], numbers)) for shard in shards]
        return cls(tuple(shards), corpora)

    @cached_property
    def _first_pieces(self) -> NDArray[np.int64]:
        """Index of the first piece of each shard, then the number of pieces: (shards + 1,)."""
        return np.append(0, np.cumsum([len(shard) for shard in self.shards]))

    def __len__(self) -> int:
        """Return the number of pieces."""
        return int(self._first_pieces[-1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each piece: (pieces,)."""
        return np.concatenate([np.diff(shard.offsets) for shard in self.shards])

    @property
    def longest(self) -> int:
        """Number of tokens of the longest piece; 0 without pieces."""
        return max((int(np.diff(s.offsets).max(initial=0)) for s in self.shards), default=0)

    @property
    def names(self) -> list[str]:
        """Names of the pieces."""
        return [name for shard in self.shards for name in shard.names()]

    def length(self, index: int) -> int:
        """Return the number of tokens of a piece."""
        shard, number = self._shard_of(index)
        return int(shard.offsets[number + 1] - shard.offsets[number])

    def piece(self, index: int, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """Return a piece's tokens, with BOS and EOS, from `start` up to and without `stop`."""
        shard, number = self._shard_of(index)
        first, end = shard.offsets[number : number + 2]
        end = end if stop is None else min(first + stop, end)
        return shard.tokens[first + start : end].astype(np.int32)

    def facts(self, index: int) -> PieceFacts:
        """Return the corpus, style and masked properties of a piece."""
        shard, number = self._shard_of(index)
        return PieceFacts(*shard.pieces[number].item())

    def piece_bars(self, index: int) -> NDArray[np.int64]:
        """Return the indices of the Bar tokens within a piece."""
        shard, number = self._shard_of(index)
        return shard.bars[shard.bar_offsets[number] : shard.bar_offsets[number + 1]]

    def _shard_of(self, index: int) -> tuple[Shard, int]:
        """Return the shard of a piece, and the index of the piece in it."""
        shard = int(np.searchsorted(self._first_pieces, index, side="right")) - 1
        return self.shards[shard], index - int(self._first_pieces[shard])


def read_facts(folder: Path) -> dict[str, Any]:
    """Read `data.json` of a prepared corpus.

    Raises:
        TrainingError: the folder is not a prepared corpus of this format.
    """
    path = folder / "data.json"
    if not path.is_file():
        raise TrainingError(
            f"{folder}: found no prepared corpus; make one with relpe-train prepare"
        )
    facts = read_json(path, ("format",), "prepare again")
    if facts["format"] != FORMAT_VERSION:
        raise TrainingError(
            f"{path}: format {facts['format']}, expected {FORMAT_VERSION}; prepare again"
        )
    for name in ("vocabulary", "hash", "splits", "corpora"):
        if name not in facts:
            raise TrainingError(f"{path}: damaged, found no {name!r}; prepare again")
    return facts


def windows(
    corpus: Corpus, tokenizer: Remi, length: int, count: int | None = None
) -> NDArray[np.int64]:
    """Cut all pieces into windows of length + 1 tokens, padded with PAD (0): (n, length + 1).

    Consecutive windows share one token, which is the last target of one and the first input of the
    next, so that every token except a piece's first is a target once. With `count`, at most that
    many windows are read, evenly spaced over all windows. Tokens that are not predicted are as in
    `masked_ids`.
    """
    ends = np.cumsum(
        (corpus.lengths + length - 2) // length
    )  # number of windows up to the end of each piece
    total = int(ends[-1]) if len(ends) else 0
    numbers = np.arange(total)
    if count is not None and total:
        numbers = np.unique(np.linspace(0, total, count, endpoint=False).astype(np.int64))
    rows = np.zeros((len(numbers), length + 1), np.int64)
    for row, number in zip(rows, numbers.tolist(), strict=True):
        piece = int(np.searchsorted(ends, number, side="right"))
        before = int(ends[piece - 1]) if piece else 0
        start = (number - before) * length
        part = corpus.piece(piece, start, start + length + 1)
        row[: len(part)] = masked_ids(part, corpus.facts(piece).masked, tokenizer.vocabulary)
    return rows


def note_ids(tokenizer: Remi) -> NDArray[np.int64]:
    """Return the ids of the tokens that start a note."""
    kinds = ("Pitch_", "Drum_", "Note_Pitch_")
    names = tokenizer.vocabulary.names
    return np.array([i for i, name in enumerate(names) if name.startswith(kinds)], np.int64)
