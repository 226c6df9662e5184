"""Comparison of rows with a baseline: tests of Welch, and how many seeds a difference needs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.05
POWER = 0.8
MOST_SEEDS = 1000


class Comparison(NamedTuple):
    """The difference between the mean of a row and that of the baseline."""

    row: str
    difference: float
    low: float
    """Lower end of its 95 % interval, without correction for several rows."""
    high: float
    p: float
    """Two-sided, of B. L. Welch's test (1947); nan if no seed differs from another."""
    p_holm: float
    """p after S. Holm's correction (1979) for all rows that are compared."""


def compared(values: Mapping[str, Sequence[float]], baseline: str) -> list[Comparison]:
    """Compare the values of each row, one for each seed, with those of the baseline.

    Rows with a single seed are left out; if it is the baseline, all are.
    """
    base = values.get(baseline, ())
    rows = [row for row, numbers in values.items() if row != baseline and len(numbers) > 1]
    if len(base) < 2:
        return []
    comparisons = [_welch(row, values[row], base) for row in rows]
    tested = [index for index, one in enumerate(comparisons) if not math.isnan(one.p)]
    if tested:
        corrected: Any = multipletests([comparisons[i].p for i in tested], method="holm")[1]
        for index, p in zip(tested, corrected, strict=True):
            comparisons[index] = comparisons[index]._replace(p_holm=float(p))
    return comparisons


def _welch(row: str, values: Sequence[float], base: Sequence[float]) -> Comparison:
    difference = float(np.mean(values) - np.mean(base))
    if np.ptp(values) == np.ptp(base) == 0:  # no deviation to compare with
        return Comparison(row, difference, *[math.nan] * 4)
    with warnings.catch_warnings():  # seeds of one of the rows may be equal
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any = stats.ttest_ind(values, base, equal_var=False)
        interval = result.confidence_interval(1 - LEVEL)
    p = float(result.pvalue)
    return Comparison(row, difference, float(interval.low), float(interval.high), p, p)


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation within groups, whose means may differ.

    It is nan if no group has two values.
    """
    freedom = sum(len(values) - 1 for values in groups if len(values) > 1)
    squares = sum(
        (len(values) - 1) * np.var(values, ddof=1) for values in groups if len(values) > 1
    )
    return math.sqrt(squares / freedom) if freedom else math.nan


def detectable(deviation: float, seeds: int, tests: int) -> float:
    """Return the difference that a test of two rows finds with a power of `POWER`.

    The level is that of the first step of Holm's correction for `tests` tests.
    """
    if seeds < 2 or math.isnan(deviation):
        return math.nan
    freedom = 2 * seeds - 2
    critical = stats.t.isf(LEVEL / max(1, tests) / 2, freedom) ** 2
    # the square of t has a noncentral F distribution, whose tails are more exact than those of t
    shift = special.ncfdtrinc(1, freedom, 1 - POWER, critical)
    return deviation * math.sqrt(2 * float(shift) / seeds)


def seeds_needed(difference: float, deviation: float, tests: int) -> int | None:
    """Return the seeds of each row that make `difference` `detectable`; None above `MOST_SEEDS`."""
    low, high = 1, MOST_SEEDS
    if math.isnan(deviation) or not detectable(deviation, high, tests) <= difference:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = detectable(deviation, middle, tests) <= difference
        low, high = (low, middle) if enough else (middle, high)
    return high
