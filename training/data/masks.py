"""Tokens that a model reads but does not predict, because their values in a piece mean nothing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokenization.tokenizer import Vocabulary
from training.data.shards import MASKED_TEMPOS, MASKED_VELOCITIES


def masked_ids(ids: NDArray[np.integer], flags: int, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return the ids of a piece, with ~t for each id t that is not predicted.

    `flags` are those of `PieceFacts.masked`.
    """
    ids = ids.astype(np.int64)
    if not flags:
        return ids
    return np.where(_flags(vocabulary)[ids] & flags, ~ids, ids)


@lru_cache(maxsize=8)
def _flags(vocabulary: Vocabulary) -> NDArray[np.uint8]:
    """Return the flag by which each id (v,) is masked; 0: none."""
    families = {
        "Velocity": MASKED_VELOCITIES,
        "DrumVelocity": MASKED_VELOCITIES,
        "Tempo": MASKED_TEMPOS,
    }
    flags = [families.get(name.split("_")[0], 0) for name in vocabulary.names]
    return np.array(flags, np.uint8)
