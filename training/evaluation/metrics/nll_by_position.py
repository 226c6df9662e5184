"""Negative log-likelihood by position in the piece."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpe.files import atomic_write


class Bin(NamedTuple):
    """Mean over the tokens with index `first` to `last`, in all pieces."""

    first: int
    last: int
    nats_per_token: float
    standard_error: float
    """Standard error of the mean over pieces."""
    pieces: int


def nll_by_position(
    nats: Sequence[NDArray[np.float64]], reach: int = 4096, width: int = 256
) -> list[Bin]:
    """Return the mean negative log-likelihood of bins of `width` tokens, up to `reach` tokens.

    `nats` holds, per piece, the negative log-likelihood of each token except the first, so entry i
    belongs to the token with index i + 1; NaN if it is not predicted. All bins are means over the
    same pieces, so they can be compared.
    """
    long_pieces = np.array([piece[:reach] for piece in nats if len(piece) >= reach])
    bins: list[Bin] = []
    for start in range(0, reach if len(long_pieces) else 0, width):
        means = np.nanmean(long_pieces[:, start : start + width], 1)
        error = float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")
        last = min(start + width, reach)
        bins.append(Bin(start + 1, last, float(means.mean()), error, len(means)))
    return bins


class Beyond(NamedTuple):
    """Nats per token within and beyond the training length, for the same pieces."""

    pieces: int
    within: float
    within_deviation: float
    """Standard deviation over pieces."""
    beyond: float
    beyond_deviation: float
    difference: float
    """Beyond minus within: positive if the model is worse beyond its training length."""
    difference_deviation: float


def beyond_training(
    nats: Sequence[NDArray[np.float64]], trained_length: int, reach: int = 4096
) -> Beyond | None:
    """Return means within and beyond the first `trained_length` tokens of pieces with `reach`.

    `nats` is as in `nll_by_position`. None if no piece is long enough, or if `reach` is not beyond
    the training length. Source: evaluation of Liutkus et al. (2021).
    """
    long_pieces = [piece[:reach] for piece in nats if len(piece) >= reach]
    if not long_pieces or not 0 < trained_length < reach:
        return None
    means = np.array(
        [
            [np.nanmean(piece[:trained_length]), np.nanmean(piece[trained_length:])]
            for piece in long_pieces
        ]
    )
    table = np.column_stack([means, means[:, 1] - means[:, 0]])
    within, beyond, difference = table.mean(0).tolist()
    deviations = table.std(0, ddof=1) if len(table) > 1 else np.full(3, np.nan)
    within_deviation, beyond_deviation, difference_deviation = deviations.tolist()
    return Beyond(
        pieces=len(table),
        within=within,
        within_deviation=within_deviation,
        beyond=beyond,
        beyond_deviation=beyond_deviation,
        difference=difference,
        difference_deviation=difference_deviation,
    )


def write_csv(bins: Sequence[Bin], path: Path) -> None:
    """Write bins to a CSV file."""
    with atomic_write(path) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(Bin._fields)
        for row in bins:
            nats, error = f"{row.nats_per_token:.5f}", f"{row.standard_error:.5f}"
            writer.writerow((row.first, row.last, nats, error, row.pieces))
