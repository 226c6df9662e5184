"""Negative log-likelihood against the place in the piece: does a longer memory help?"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from training.files import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class Bin(NamedTuple):
    """Mean over the tokens of all pieces whose index lies in a bin."""

    first: int
    last: int
    nats_per_token: float
    standard_error: float
    """Of the mean, over pieces."""
    pieces: int


def nll_by_position(
    nats: Sequence[NDArray[np.float64]], reach: int = 4096, width: int = 256
) -> list[Bin]:
    """Mean negative log-likelihood per bin of `width` tokens, over the pieces with `reach` tokens.

    `nats` holds, per piece, the negative log-likelihood of each token but the first, so entry i
    belongs to the token of index i + 1. The same pieces stand in every bin: differences between
    bins are not differences between pieces.
    """
    chosen = np.array([piece[:reach] for piece in nats if len(piece) >= reach])
    bins: list[Bin] = []
    for start in range(0, reach if len(chosen) else 0, width):
        means = chosen[:, start : start + width].mean(1)
        error = float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")
        last = min(start + width, reach)
        bins.append(Bin(start + 1, last, float(means.mean()), error, len(means)))
    return bins


def write_csv(bins: Sequence[Bin], path: Path) -> None:
    """Write bins as a table."""
    with replacing(path) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(Bin._fields)
        writer.writerows(
            (b.first, b.last, f"{b.nats_per_token:.5f}", f"{b.standard_error:.5f}", b.pieces)
            for b in bins
        )


def plot(curves: Mapping[str, Sequence[Bin]], path: Path, trained_length: int | None) -> None:
    """Draw one curve per name, with standard errors, and a line where training ended."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    pieces = 0
    for name, bins in curves.items():
        middle = [(b.first + b.last) / 2 for b in bins]
        mean = np.array([b.nats_per_token for b in bins])
        error = np.nan_to_num([b.standard_error for b in bins])
        axes.plot(middle, mean, marker="o", markersize=3, label=name)
        axes.fill_between(middle, mean - error, mean + error, alpha=0.2)
        pieces = max([pieces, *(b.pieces for b in bins)])
    if trained_length is not None:
        axes.axvline(trained_length, color="grey", linestyle=":", label="training length")
    axes.set_xlabel(f"token index in the piece ({pieces} pieces)")
    axes.set_ylabel("nats per token")
    axes.legend()
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120, metadata={"Software": None})
