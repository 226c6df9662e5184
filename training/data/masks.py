"""Tokens that a model reads but does not predict, because their values in a piece mean nothing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokenization.tokenizer import Vocabulary

VELOCITIES, TEMPOS = 1, 2
"""Flags of a piece: it has one velocity for all notes; its tempo is the default of a program."""


def masked_ids(ids: NDArray[np.integer], flags: int, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The ids of a piece with these flags, where ~t stands for an id t that is not predicted."""
    ids = ids.astype(np.int64)
    if not flags:
        return ids
    return np.where(_flags(vocabulary)[ids] & flags, ~ids, ids)


@lru_cache(maxsize=8)
def _flags(vocabulary: Vocabulary) -> NDArray[np.uint8]:
    """The flag by which each id (v,) is masked; 0: none."""
    families = {"Velocity": VELOCITIES, "DrumVelocity": VELOCITIES, "Tempo": TEMPOS}
    found = [families.get(name.split("_")[0], 0) for name in vocabulary.names]
    return np.array(found, np.uint8)
