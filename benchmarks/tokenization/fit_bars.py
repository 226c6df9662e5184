"""Fits the probability that the bars of a piece are those of its file.

    python -m benchmarks.tokenization.fit_bars DATA [--pieces 16]

DATA is the folder of the corpora. Fitted to train splits and half of the kinds of deformation;
prints the coefficients of `tokenization.analysis.bar_evidence`, and for each of the two regressions
how often test splits and the other half of the kinds are taken for the other
(`benchmarks.tokenization.whose_bars`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.timing import run
from benchmarks.tokenization.whose_bars import examples, report
from tokenization.analysis.bar_evidence import (
    estimate_features,
    file_evidence,
    file_features,
)
from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.score import Score

NUM_FEATURES = {"file alone": 3, "beside the estimate": 6}


def features(score: Score) -> list[float]:
    """Return what the probability depends on."""
    beats = estimate_beats(score)
    return [*file_features(file_evidence(score)), *estimate_features(score, beats)]


def logistic_regression(table: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return coefficients by Newton's method, slightly regularised; both classes weigh alike."""
    weight = np.where(target, 0.5 / target.mean(), 0.5 / (1 - target.mean()))
    coefficients = np.zeros(table.shape[1])
    for _ in range(100):
        chance = 1 / (1 + np.exp(-table @ coefficients))
        slope = table.T @ (weight * (target - chance)) - 0.1 * coefficients
        curvature = (table.T * (weight * chance * (1 - chance))) @ table
        coefficients += np.linalg.solve(curvature + 0.1 * np.eye(len(coefficients)), slope)
    return coefficients


def main(data: Path, /, *, pieces: int = 16) -> None:
    """Fit and report."""
    tables, labels, kinds = {}, {}, {}
    for split in ("train", "test"):
        rows = [
            (features(example.score), example.has_bars, example.kind)
            for example in tqdm(examples(data, split, pieces), desc=split, unit="piece")
        ]
        table, label, kind = zip(*rows, strict=True)
        tables[split], labels[split], kinds[split] = np.array(table), label, kind
    for name, count in NUM_FEATURES.items():
        target = np.array(labels["train"], float)
        coefficients = logistic_regression(tables["train"][:, :count], target)
        print(f"{name}: {', '.join(f'{number:.3f}' for number in coefficients)}")
        chances = 1 / (1 + np.exp(-tables["test"][:, :count] @ coefficients))
        report(kinds["test"], labels["test"], chances.tolist())


if __name__ == "__main__":
    run(main)
