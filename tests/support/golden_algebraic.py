"""Expected values of algebraic encodings, and functions that compare with them."""

from __future__ import annotations

import math

import numpy as np
import torch

from tests.support.paths import GOLDEN_FOLDER

ARRAYS = np.load(GOLDEN_FOLDER / "algebraic.npz", allow_pickle=False)
KINDS = {"f64": torch.float64, "f32": torch.float32}
"""Precisions of the stored values, keyed by the suffixes of their names."""


def golden(name: str) -> torch.Tensor:
    """The stored array of this name."""
    return torch.from_numpy(ARRAYS[name])


def close(made: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """Asserts that no element differs by more than `tolerance`."""
    torch.testing.assert_close(made, wanted.to(made.dtype), rtol=0, atol=tolerance)


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Scores (b, l, s, h) of q and k, which are stored as (b, l, d, h)."""
    return torch.einsum("bldh,bsdh->blsh", q, k) / math.sqrt(q.shape[2])
