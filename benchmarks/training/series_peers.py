"""MiniRocket and 1-NN with dynamic time warping on the time series inside the package aeon.

    python -m venv peers && peers/bin/pip install aeon==1.6.0
    OMP_NUM_THREADS=1 peers/bin/python benchmarks/training/series_peers.py

The script needs an environment of its own, since the pins of aeon differ from those of this
project, of which it imports nothing. It prints a row for each set: the accuracy on TEST and the
seconds for training and test together, compilation included for the first set.
"""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version

from aeon.classification.convolution_based import (  # pyright: ignore[reportMissingImports]
    MiniRocketClassifier,
)
from aeon.classification.distance_based import (  # pyright: ignore[reportMissingImports]
    KNeighborsTimeSeriesClassifier,
)
from aeon.datasets import load_classification  # pyright: ignore[reportMissingImports]

SETS = ("GunPoint", "BasicMotions", "ItalyPowerDemand", "JapaneseVowels", "OSULeaf")
EQUAL = {"JapaneseVowels": "JapaneseVowels_eq"}
"""Sets of unequal lengths, with the name of those that aeon resampled to equal lengths."""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3, help="runs of MiniRocket (default: 3)")
    options = parser.parse_args()
    print(f"aeon {version('aeon')}, numba {version('numba')}")
    print("| set | MiniRocket | seconds | 1-NN DTW | seconds |")
    print("|---|---|---|---|---|")
    for name in options.sets:
        rocket = [
            accuracy(MiniRocketClassifier(random_state=seed, n_jobs=1), name, equal=True)
            for seed in range(options.seeds)
        ]
        share, seconds = accuracy(
            KNeighborsTimeSeriesClassifier(distance="dtw", n_neighbors=1, n_jobs=1), name
        )
        shares = ", ".join(f"{100 * one:.1f}" for one, _ in rocket)
        spent = sum(seconds for _, seconds in rocket) / len(rocket)
        print(
            f"| {name} | {shares} | {spent:.1f} | {100 * share:.1f} | {seconds:.1f} |", flush=True
        )


def accuracy(model, name: str, *, equal: bool = False) -> tuple[float, float]:  # noqa: ANN001 - of aeon
    """Return the share of right classes on TEST after training on TRAIN, and seconds of both."""
    parts = []
    for part in ("train", "test"):
        if equal and name in EQUAL:
            parts.append(load_classification(name, split=part, load_equal_length=True))
        else:
            parts.append(load_classification(name, split=part, load_equal_length=False))
    started = time.perf_counter()
    model.fit(*parts[0])
    share = float((model.predict(parts[1][0]) == parts[1][1]).mean())
    return share, time.perf_counter() - started


if __name__ == "__main__":
    main()
