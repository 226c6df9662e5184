"""Negative log-likelihood by family of tokens: Bar, Position, Pitch and others.

Nats are NaN for tokens that are not predicted; these are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.vocabulary import Families
from tokenization.tokenizer import Vocabulary

PARTS = {"plan": ("Return", "Chord", "Bass", "Key"), "tempo": ("Tempo",)}
"""Families whose likelihood is reported apart; others are the part `music`."""


class FamilyNats(NamedTuple):
    """The predicted tokens of one family in a split."""

    tokens: int
    nats_per_token: float


def nats_by_family(
    vocabulary: Vocabulary,
    pieces: Sequence[NDArray[np.int64]],
    nats: Sequence[NDArray[np.float64]],
) -> dict[str, FamilyNats]:
    """Return the mean nats of each family that occurs, by its name, in the order of ids.

    `nats` has the nats of each token of each piece except the first.
    """
    first = Families(vocabulary).first_ids
    targets, values = np.concatenate([piece[1:] for piece in pieces]), np.concatenate(nats)
    targets, values = targets[~np.isnan(values)], values[~np.isnan(values)]
    family = np.searchsorted([*first.values()], targets, side="right") - 1
    counts = np.bincount(family, minlength=len(first))
    sums = np.bincount(family, values, len(first))
    return {
        name: FamilyNats(int(count), float(total / count))
        for name, count, total in zip(first, counts, sums, strict=True)
        if count
    }


def nats_by_part(families: Mapping[str, FamilyNats], notes: int) -> dict[str, float]:
    """Return nats per note of the plan, of tempos, and of the music, that is, all other tokens."""
    part_of = {family: part for part, members in PARTS.items() for family in members}
    sums = dict.fromkeys((*PARTS, "music"), 0.0)
    for name, family in families.items():
        sums[part_of.get(name, "music")] += family.tokens * family.nats_per_token
    return {part: total / max(notes, 1) for part, total in sums.items()}
