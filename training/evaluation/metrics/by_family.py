"""Negative log-likelihood by family of tokens: Bar, Position, Pitch and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.vocabulary import Families
from tokenization.tokenizer import Vocabulary


class FamilyNats(NamedTuple):
    """The tokens of one family in a split, except the first token of each piece."""

    tokens: int
    nats_per_token: float


def nats_by_family(
    vocabulary: Vocabulary,
    pieces: Sequence[NDArray[np.int64]],
    nats: Sequence[NDArray[np.float64]],
) -> dict[str, FamilyNats]:
    """Mean nats of each family that occurs, by its name, in the order of ids.

    `nats` has the nats of each token of each piece except the first.
    """
    first = Families(vocabulary).first_ids
    targets = np.concatenate([piece[1:] for piece in pieces])
    family = np.searchsorted([*first.values()], targets, side="right") - 1
    counts = np.bincount(family, minlength=len(first))
    sums = np.bincount(family, np.concatenate(nats), len(first))
    return {
        name: FamilyNats(int(count), float(total / count))
        for name, count, total in zip(first, counts, sums, strict=True)
        if count
    }
