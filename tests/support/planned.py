"""Corpora, written as `relpe-train prepare` does: pieces with their plans."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenization.analysis.plan import analyse
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR
from tokenization.score import Score
from training.data.corpus import FORMAT_VERSION
from training.data.shards import PIECE, ShardWriter

Fact = tuple[int, int, int]
"""Corpus, style and mask of a piece."""


def write_corpus(
    folder: Path,
    remi: Remi,
    splits: Mapping[str, Sequence[tuple[Score, Fact]]],
    corpora: Sequence[Mapping[str, Any]] = ({"name": "", "weight": 1.0},),
) -> Path:
    """Write the scores of each split with their facts; return the folder."""
    folder.mkdir(parents=True)
    entries: dict[str, Any] = {}
    for split, pieces in splits.items():
        writer = ShardWriter(folder / split)
        ids = [np.asarray(encoded(remi, score)).astype("<u2") for score, _ in pieces]
        bars = [np.flatnonzero(one == BAR) for one in ids]
        writer.add(
            np.concatenate([np.zeros(0, "<u2"), *ids]),
            np.array([len(one) for one in ids], np.int64),
            np.concatenate([np.zeros(0, np.int64), *bars]),
            np.array([len(one) for one in bars], np.int64),
            [f"{split}/{at}" for at in range(len(ids))],
            np.array([fact for _, fact in pieces], PIECE),
        )
        writer.close()
        sizes = {"files": len(ids), "tokens": sum(map(len, ids)), "bars": sum(map(len, bars))}
        entries[split] = {"shards": 1, "notes": 0, **sizes}
    plain = {"licence": "CC0", "attribution": "nobody", "changes": "none", "address": ""}
    facts = {"format": FORMAT_VERSION, "vocabulary": remi.vocabulary.hash, "hash": "0"}
    given = [plain | {"splits": entries} | dict(one) for one in corpora]
    (folder / "data.json").write_text(json.dumps(facts | {"corpora": given, "splits": entries}))
    remi.save(folder)
    return folder


def encoded(remi: Remi, score: Score) -> np.ndarray:
    """A whole piece with its plan."""
    score = remi.decode(remi.encode(score).ids)
    return remi.encode(score, analyse(score)).ids
