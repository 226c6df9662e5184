"""The task `forecasting`: the density of the next value of time series, from those before it.

A model predicts the change from the previous value, in bins that are equally likely under a
logistic distribution. Within a bin, the density is that of this distribution, so that it is
positive everywhere and integrates to 1: for a change d in bin k of n bins, it is

    p(d) = P(k) n f(d),    f: the density of the logistic distribution.

Its mean absolute value is that of the changes in the training part of the series. A model that
finds all bins equally likely is a random walk with such steps, the naive forecast.
"""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError, check_range
from training.tasks.generated import NO_TARGET, Split
from training.tasks.likelihood import LikelihoodTask, Rows, windows
from training.tasks.series.lines import read_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ForecastingTask(LikelihoodTask):
    """Next-value likelihood of one or several series.

    The last `test_values` of each series are the test split, as many before them the validation
    split, and all others train; a model that predicts a value always reads the true ones before it.
    """

    kind: Literal["forecasting"] = "forecasting"
    data: Path
    """Folder, zip or wheel with the file."""
    file: str
    """Name of a `.tsf` file of the Monash archive, or of a `.csv` file, of which the last column is
    read."""
    test_values: int
    """Values at the end of each series that are tested; as many before them validate."""
    longest: int = 256
    """Largest number of values that the model reads at a time."""
    bins: int = 64
    """Number of bins."""
    logarithm: bool = False
    """Whether changes are those of the logarithms of the values, which must be positive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("test_values", self.test_values, 1)
        check_range("longest", self.longest, 2)
        check_range("bins", self.bins, 2, 4096)

    @property
    def num_tokens(self) -> int:
        """The bins, and what precedes the first change."""
        return self.bins + 1

    @property
    def length(self) -> int:
        """The largest number of values that are read."""
        return self.longest

    @property
    def origin(self) -> str:
        """The file and where it is."""
        return f"{self.file} in {self.data}"

    @cached_property
    def _changes(self) -> list[Changes]:
        series = read_values(self.data, self.file)
        least = 2 * self.test_values + 3
        long_enough = [one for one in series if len(one) >= least]
        if len(long_enough) < len(series):
            logger.warning(
                "%s: left out %d of %d series, which have fewer than %d values",
                *(self.file, len(series) - len(long_enough), len(series), least),
            )
        if not long_enough:
            raise TrainingError(
                f"{self.origin}: no series has {least} values, which test_values="
                f"{self.test_values} needs; set task.test_values"
            )
        if self.logarithm and min(one.min() for one in long_enough) <= 0:
            raise TrainingError(
                f"{self.origin}: some values are not positive, so they have no logarithms; set "
                "task.logarithm=false"
            )
        return [
            changes_of(one, 2 * self.test_values, self.bins, logarithm=self.logarithm)
            for one in long_enough
        ]

    def _windows(self, name: Split) -> Iterator[tuple[Changes, int, int, int]]:
        """Return the series with the windows of a split; see `windows`."""
        held, one = 2 * self.test_values, self.test_values
        for changes in self._changes:
            count = len(changes.bins)
            first, last = {
                "train": (0, count - held),
                "validation": (count - held, count - one),
                "test": (count - one, count),
            }[name]
            for window in windows(first, last, self.longest):
                yield changes, *window

    def rows(self, name: Split) -> Rows:
        """Return the bins of changes, padded at the end."""
        rows: list[Rows] = []
        for changes, start, stop, asked in self._windows(name):
            row = np.full((self.longest, 2), NO_TARGET)
            row[:, 0] = self.bins
            row[1 : stop - start, 0] = changes.bins[start : stop - 1]
            row[asked - start : stop - start, 1] = changes.bins[asked:stop]
            rows.append(row)
        return np.stack(rows)

    def figures(self, name: Split, nats: NDArray[np.float64]) -> dict[str, float]:
        """Return the mean negative log-density of a value, in the unit of the data, in nats.

        `naive` is that of the naive forecast.
        """
        naive = [of.naive[asked:stop] for of, _, stop, asked in self._windows(name)]
        values = np.concatenate(naive)
        gained = len(values) * math.log(self.bins) - nats.sum()
        mean = float(values.mean())
        return {"nats_per_value": mean - float(gained / len(values)), "naive": mean}


class Changes(NamedTuple):
    """Changes of a series from each value to the next."""

    bins: NDArray[np.int64]
    """(l,): the bin of each change."""
    naive: NDArray[np.float64]
    """(l,): negative logarithm of the density of the next value in the naive forecast, in nats."""


def changes_of(
    values: NDArray[np.float64], held_out: int, bins: int, *, logarithm: bool
) -> Changes:
    """Return the changes of values (l + 1,); their scale ignores the last `held_out`."""
    levels = np.log(values) if logarithm else values
    changes = np.diff(levels)
    scale = float(np.abs(changes[: len(changes) - held_out]).mean()) / (2 * math.log(2))
    z = changes / (scale or 1.0)
    share = 0.5 * (1 + np.tanh(z / 2))  # of the logistic distribution
    bin_indices = np.clip(np.floor(share * bins).astype(np.int64), 0, bins - 1)
    nats = np.abs(z) + 2 * np.log1p(np.exp(-np.abs(z))) + math.log(scale or 1.0)
    return Changes(bin_indices, nats + levels[1:] if logarithm else nats)


@cache
def read_values(data: Path, file: str) -> list[NDArray[np.float64]]:
    """Return the values (l,) of each series of a `.tsf` or `.csv` file.

    Raises:
        TrainingError: the file is missing or damaged, or has missing values.
    """
    where, lines = read_lines(data, file)
    if file.endswith(".csv"):
        rows = [row for row in csv.reader(lines) if row]
        texts = [(2, [row[-1] for row in rows[1:]])]
    else:
        start = next((n for n, line in enumerate(lines) if line.strip().lower() == "@data"), None)
        if start is None:
            raise TrainingError(f"{where}: has no line @data, expected a .tsf or a .csv file")
        texts = [
            (number, line.rpartition(":")[2].split(","))
            for number, line in enumerate(lines[start + 1 :], start + 2)
            if line.strip()
        ]
    series: list[NDArray[np.float64]] = []
    for number, cells in texts:
        try:
            values = np.array([float(cell) for cell in cells])
        except ValueError as error:
            raise TrainingError(f"{where}: from line {number}: {error}") from error
        if not np.isfinite(values).all():
            raise TrainingError(
                f"{where}: from line {number}: some values are missing or infinite; leave the "
                "series out, or fill them in"
            )
        series.append(values)
    if not series or not len(series[0]):
        raise TrainingError(f"{where}: found no series")
    return series
