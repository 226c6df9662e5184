"""Expected values of stochastic encodings and linear attention."""

from __future__ import annotations

import numpy as np
import torch

from tests.support.paths import GOLDEN_FOLDER

GOLDEN = np.load(GOLDEN_FOLDER / "spe.npz", allow_pickle=False)


def golden(name: str) -> torch.Tensor:
    """The stored array of this name."""
    return torch.from_numpy(GOLDEN[name])
