"""Odds of a pointer along a known sequence, from which its likelihood follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.models.pointer.config import BalanceConfig, PointerConfig
from relpe.models.pointer.pointer import Pointer


class PointerOdds(NamedTuple):
    """Odds of a pointer's proposals for each token of a piece except the first, (tokens - 1,)."""

    proposed: NDArray[np.float64]
    """Of the token itself."""
    total: NDArray[np.float64]
    """Of all tokens."""

    def mixed(self, nats: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the nats (..., tokens - 1) of the mixture, given those of the decoder."""
        return np.log1p(self.total) - np.log(np.exp(-nats) + self.proposed)


def pointer_odds(config: PointerConfig, piece: NDArray[np.int64]) -> PointerOdds:
    """Return the odds of the pointer, which do not depend on the decoder.

    They are those of `Pointer` without the balance of generation. Generation applies the mask of
    its grammar before it mixes.
    """
    pointer = Pointer(replace(config, balance=BalanceConfig()))
    proposed, total = np.zeros((2, len(piece) - 1))
    for index, (token, target) in enumerate(pairwise(piece.tolist())):
        pointer.extend([token])
        tokens, odds = pointer.proposals()
        proposed[index] = odds[tokens == target].sum()
        total[index] = odds.sum()
    return PointerOdds(proposed, total)
