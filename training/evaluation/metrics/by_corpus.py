"""Negative log-likelihood by corpus, for pieces of a mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def nats_by_corpus(
    corpora: Sequence[str],
    notes: Sequence[int],
    readings: Mapping[str, Sequence[NDArray[np.float64]]],
) -> dict[str, dict[str, float]]:
    """Return the pieces, notes and nats per note of each corpus, by its name.

    `corpora` and `notes` have the corpus and the number of notes of each piece. `readings` are the
    nats of each token of each piece, by the name of the reading. Nats are NaN for tokens that are
    not predicted; these are not counted.
    """
    entries: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(corpora):
        members = [index for index, of in enumerate(corpora) if of == name]
        count = sum(notes[index] for index in members)
        entries[name] = {"pieces": len(members), "notes": count}
        for reading, nats in readings.items():
            total = sum(float(np.nansum(nats[index])) for index in members)
            entries[name][reading] = total / max(count, 1)
    return entries
