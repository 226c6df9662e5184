"""Random piano rolls, in the files of the task `piano_rolls`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from training.tasks.series.piano_rolls import KEYS

LENGTHS = {"train": (30, 7, 18), "valid": (9, 12), "test": (25, 2, 5)}
"""Frames of the sequences of each split."""


def random_frames(*shape: int, seed: int = 0, share: float = 0.2) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < share).astype(np.uint8)


def write_rolls(path: Path, *, every: int = 0) -> Path:
    """Random frames, or the same ones with a period of `every`, in either format."""
    arrays: dict[str, Any] = {}
    for split, lengths in LENGTHS.items():
        frames = random_frames(sum(lengths), KEYS, seed=len(split), share=0.05)
        if every:
            frames = random_frames(every, KEYS, share=0.05)[np.arange(len(frames)) % every]
        if path.suffix == ".npz":
            arrays[f"jsb_{split}"] = np.packbits(frames, axis=1)
            arrays[f"jsb_{split}_len"] = np.array(lengths)
            continue
        parts = np.split(frames.astype(np.float64), np.cumsum(lengths)[:-1])
        arrays[f"{split}data"] = np.empty((1, len(parts)), object)
        arrays[f"{split}data"][0] = parts
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        savemat(path, arrays)
    return path
