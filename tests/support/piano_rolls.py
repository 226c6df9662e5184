"""Random piano rolls, in the files of the tasks `piano_rolls` and `harmonization`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from miditoolkit import Instrument, MidiFile, Note
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


def write_songs(folder: Path, beats: int = 22) -> Path:
    """Songs in the files of POP909, at 120 beats a minute from half a second on.

    The melody is a scale in quarters, with the piano a tenth below it and an upbeat before the
    first bar line. A chord lasts two beats.
    """
    for number in ("001", "002", "010", "020"):
        song = folder / number
        song.mkdir()
        midi = MidiFile()
        for name, below in (("MELODY", 0), ("PIANO", 16)):
            starts = [480 * (1 + beat) for beat in range(beats - 1)]
            notes = [Note(90, 72 + at // 480 % 7 - below, at, at + 480) for at in starts]
            midi.instruments.append(Instrument(0, name=name, notes=notes))
        midi.dump(song / f"{number}.mid")
        times = [0.5 * (1 + beat) for beat in range(beats)]
        (song / "beat_midi.txt").write_text(
            "".join(f"{t} {beat % 2} {beat % 4 == 1:d}\n" for beat, t in enumerate(times))
        )
        (song / "chord_midi.txt").write_text(
            "".join(f"{t} {t + 1} {'CGAF'[n % 4]}:maj\n" for n, t in enumerate(times[1::2]))
        )
    return folder
