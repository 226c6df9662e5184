"""Final split of each piece: pieces with the same melody together, and copies only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training.data.copies.near_copies import FEWEST_RUNS, Pairs, groups_of, similar_pairs


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """All pieces of a corpus, in the order in which they were encoded."""

    names: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    """The split that the source gives."""
    corpora: list[int] = field(default_factory=list)
    """Index of the corpus."""
    train_only: list[bool] = field(default_factory=list)
    """Whether a piece may only be in the split train."""
    hashes: list[bytes] = field(default_factory=list)
    """A hash of the tokens."""
    runs: list[NDArray[np.uint64]] = field(default_factory=list)
    """Runs of the melodies, in any number of arrays, one piece after another."""
    num_runs: list[NDArray[np.int64]] = field(default_factory=list)
    """Number of runs of each piece."""
    step: int = 1
    """Each run stands for this many, if there are too many to compare all."""


@dataclass(frozen=True)
class Placement:
    """Where pieces are stored, and why some are not where their source puts them."""

    splits: list[str | None]
    """The split of each piece; None: it is left out."""
    copies: dict[int, str]
    """Why pieces are left out, by their indices."""
    moved: dict[int, str]
    """Why pieces are in another split, by their indices."""


def place(pieces: Pieces) -> Placement:
    """Give pieces with the same melody or tokens the strictest of their splits, and copies none.

    Test is stricter than validation, and both are stricter than train; other splits are between
    test and validation. Of several pieces with the same tokens one is kept, preferably one whose
    source puts it into this split.

    Pieces that may only be in train do not move others, even if they have melodies in common with
    two of them. They are left out if they, or other such pieces with their melody, have the melody
    or the tokens of a piece in another split.
    """
    total = len(pieces.names)
    runs = np.concatenate([np.zeros(0, np.uint64), *pieces.runs])
    num_runs = np.concatenate([np.zeros(0, np.int64), *pieces.num_runs])
    pairs = similar_pairs(runs, num_runs, max(FEWEST_RUNS // pieces.step, 4))
    exact = _copies(pieces.hashes, pieces.train_only)
    first = np.concatenate([pairs.first, exact[:, 0]])
    second = np.concatenate([pairs.second, exact[:, 1]])
    ranks = np.array([_rank(split) for split in pieces.splits], np.int64)
    train_only = np.array(pieces.train_only, bool)
    # pieces for training only form groups of their own
    alike = train_only[first] == train_only[second]
    group = groups_of(total, first[alike], second[alike])
    strictest = _strictest(group, ranks)[group]
    # of the pieces that a group for training only has in common with others, the strictest
    one, other = first[~alike], second[~alike]
    only = np.where(train_only[one], one, other)
    held = strictest[np.where(train_only[one], other, one)]
    order = np.lexsort((held, ranks[held]))[::-1]
    of_group = np.arange(total)
    of_group[group[only[order]]] = held[order]
    strictest[train_only] = of_group[group[train_only]]
    partner = _partners(pairs, total)
    placed: list[str | None] = list(pieces.splits)
    copies: dict[int, str] = {}
    moved: dict[int, str] = {}
    for index, strict in enumerate(strictest.tolist()):
        split, own_split = pieces.splits[strict], pieces.splits[index]
        if split == own_split:
            continue
        why = _why(pieces.names, partner, index, strict)
        if pieces.train_only[index]:
            placed[index] = None
            copies[index] = f"{why}; the split {split} keeps it, and this corpus is for training"
        else:
            placed[index] = split
            moved[index] = f"from {own_split} to {split}: {why}"
    kept: dict[tuple[bytes, str], int] = {}
    at_home = sorted(range(total), key=lambda index: placed[index] != pieces.splits[index])
    for index in at_home:
        split = placed[index]
        if split is None:
            continue
        same = kept.setdefault((pieces.hashes[index], split), index)
        if same != index:
            placed[index] = None
            moved.pop(index, None)
            copies[index] = f"the same tokens as {pieces.names[same]} in the split {split}"
    return Placement(placed, dict(sorted(copies.items())), dict(sorted(moved.items())))


def _strictest(group: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first piece of the strictest split of each group, at the group's number."""
    order = np.lexsort((np.arange(len(group)), ranks, group))
    firsts = order[np.append(True, np.diff(group[order]) != 0)[: len(group)]]
    strictest = np.arange(len(group))
    strictest[group[firsts]] = firsts
    return strictest


def _rank(split: str) -> int:
    """Return the order of splits, the strictest first."""
    return {"test": 0, "validation": 2, "train": 3}.get(split, 1)


def _copies(hashes: Sequence[bytes], train_only: Sequence[bool]) -> NDArray[np.int64]:
    """Return the pairs (n, 2) of each piece with the first one of the same tokens.

    Pieces for training only come last, so that the others are paired among themselves.
    """
    first: dict[bytes, int] = {}
    indices = sorted(range(len(hashes)), key=train_only.__getitem__)
    pairs = [(first.setdefault(hashes[index], index), index) for index in indices]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[table[:, 0] != table[:, 1]]


def _partners(pairs: Pairs, total: int) -> dict[int, tuple[int, float]]:
    """Return the piece with which each piece shares most, and the share."""
    partners: dict[int, tuple[int, float]] = {}
    order = np.argsort(-pairs.share, kind="stable")
    columns = (pairs.first[order].tolist(), pairs.second[order].tolist(), pairs.share[order])
    for first, second, share in zip(*columns, strict=True):
        partners.setdefault(first, (second, float(share)))
        partners.setdefault(second, (first, float(share)))
    return partners


def _why(
    names: Sequence[str], partner: dict[int, tuple[int, float]], index: int, first: int
) -> str:
    if index not in partner:
        return f"the same tokens as {names[first]}"
    other, share = partner[index]
    return f"{share:.0%} of its melody is also in {names[other]}"
