"""Small `.ts` files: sines of two frequencies, with the choice of lengths, times and gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HEADER = "#comment\n@problemName Waves\n@timeStamps {}\n@classLabel true Slow Fast\n@data\n"


def write_waves(folder: Path, *, name: str = "Waves", count: int = 12, channels: int = 2) -> None:
    """`NAME_TRAIN.ts` and `NAME_TEST.ts` with series of 6 to 12 values."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(0)
    for part in ("TRAIN", "TEST"):
        rows = []
        for number in range(count):
            places = np.arange(6 + number % 7)
            speed = (0.4, 1.6)[number % 2]
            waves = [np.sin(speed * places + draws.normal()) * (1 + c) for c in range(channels)]
            cells = [",".join(f"{value:.4f}" for value in wave) for wave in waves]
            rows.append(":".join([*cells, ("Slow", "Fast")[number % 2]]))
        write_ts(folder / f"{name}_{part}.ts", rows)


def write_ts(path: Path, rows: list[str], *, timed: bool = False) -> None:
    """A file with the classes Slow and Fast and these lines."""
    path.write_text(HEADER.format(str(timed).lower()) + "".join(f"{row}\n" for row in rows))
