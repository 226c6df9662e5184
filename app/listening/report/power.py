"""Power: which differences a test of this size would find, and how many listeners it needs.

It is that of tests of resampled listeners, whose differences are drawn from those observed, moved
or weighted so that their mean is the difference of interest. Formulas for normal differences are
too optimistic: answers are few and often equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

WANTED = 0.8
"""Power that a test is expected to have."""
LEVEL = 0.05
MOST_LISTENERS = 10_000
_LEAST_DRAWS, _MOST_DRAWS, _AT_ONCE = 200, 1000, 40_000
"""Tests of resampled listeners; `_AT_ONCE` is the number of listeners of all of them."""
_LARGE = 30
"""Listeners from which the statistic of the test is nearly normal."""
_WITHIN = 0.95
"""Largest mean that weights can give, as a part of the largest difference."""


class Power(NamedTuple):
    """Power of a comparison for the smallest difference of interest."""

    of_interest: float
    """The difference, in the unit of each listener's mean."""
    reached: float
    """Probability that the test finds it, with the listeners that there are."""
    needed: int | None
    """Further listeners for a power of `WANTED`; None if more than `MOST_LISTENERS`."""
    least: float
    """The smallest difference found with a power of `WANTED`."""


def power_of(
    values: NDArray[np.float64], of_interest: float, tests: int, *, has_steps: bool = False
) -> Power:
    """The power of a comparison, at the level of the first step of Holm's correction.

    Args:
        values: a difference per listener; its spread is that of future listeners too.
        of_interest: the smallest difference worth finding.
        tests: number of comparisons that are corrected together.
        has_steps: whether there are few possible differences, as of counted answers; otherwise they
            are moved to another mean, and not weighted.
    """
    level, count = LEVEL / max(1, tests), len(values)
    if count < 2:
        return Power(of_interest, 0.0, None, math.inf)
    drawn = _Population(values, of_interest, has_steps=has_steps)
    reached = float(np.mean(is_found(*drawn.tests(count), level)))
    many = max(count, _LARGE)
    scores, _ = drawn.tests(many)
    mean, spread = float(np.mean(scores)), float(np.std(scores))
    # the mean of the statistic grows with the difference, and with the root of the listeners
    wanted = float(special.ndtri(1 - level / 2) + special.ndtri(WANTED) * spread)
    if 2.0 ** (1 - count) > level:
        least = math.inf  # even if all listeners agree
    else:
        least = 0.0 if not drawn.spread else of_interest * wanted / mean * math.sqrt(many / count)
    return Power(of_interest, reached, _needed(drawn, count, level, many, wanted / mean), least)


def _needed(drawn: _Population, count: int, level: float, many: int, ratio: float) -> int | None:
    """Further listeners; `ratio` is that of the wanted mean statistic to that of `many`."""
    enough = math.ceil(many * ratio**2) if ratio > 0 else math.inf
    if enough > MOST_LISTENERS:
        return None
    low, high = count, max(count, int(enough))
    if enough < many:  # few listeners: the estimate is for many
        while low < many and np.mean(is_found(*drawn.tests(low), level)) < WANTED:
            low += 1
        return low - count
    if count >= _LARGE and np.mean(is_found(*drawn.tests(count), level)) >= WANTED:
        return 0
    return max(high - count, 1)


class _Population:
    """Listeners whose mean difference is the one of interest."""

    def __init__(self, values: NDArray[np.float64], of_interest: float, *, has_steps: bool) -> None:
        if not has_steps:  # a sample spreads less than its population
            values = (values - np.mean(values)) * math.sqrt(len(values) / (len(values) - 1))
        elif np.ptp(values):  # without a large difference, by whole steps
            step = float(np.min(np.diff(np.unique(np.round(values, 9)))))
            values = values - step * math.trunc(float(np.mean(values)) / step)
        # as if there were no difference: each difference as likely as its opposite
        self.values = np.concatenate([values, -values])
        self.spread = float(np.std(self.values))
        if has_steps and of_interest < _WITHIN * float(np.max(self.values)):
            self.shares = _tilted(self.values, of_interest)
        else:
            self.values = self.values + of_interest
            self.shares = np.full(len(self.values), 1 / len(self.values))

    def tests(self, listeners: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Signed rank statistics of tests, and numbers of listeners: see `signed_ranks`."""
        rng = np.random.default_rng(listeners)
        draws = min(_MOST_DRAWS, max(_LEAST_DRAWS, _AT_ONCE // listeners))
        return signed_ranks(rng.choice(self.values, (draws, listeners), p=self.shares))


def _tilted(values: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Shares of symmetric values with this mean, the closest ones to equal shares.

    They are proportional to exp(c value), the tilting of B. Efron (1981).
    """
    scale = float(np.max(np.abs(values)))
    low, high = 0.0, 1.0

    def shares(strength: float) -> NDArray[np.float64]:
        return special.softmax(strength * values / scale)

    while shares(high) @ values < mean:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle) @ values < mean else (low, middle)
    return shares(high)


def signed_ranks(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Wilcoxon's statistic of each row, standardised, and the number of values that are not 0.

    The continuity correction is included.
    """
    rounded = np.round(values, 9)
    sizes = np.where(rounded == 0, np.inf, np.abs(rounded))
    ranks = np.where(np.isinf(sizes), 0.0, stats.rankdata(sizes, axis=1))
    sums = (np.sign(rounded) * ranks).sum(1)
    spreads = np.sqrt((ranks**2).sum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.sign(sums) * np.maximum(np.abs(sums) - 1, 0) / spreads
    return np.nan_to_num(scores), (rounded != 0).sum(1)


def is_found(
    scores: NDArray[np.float64], counts: NDArray[np.int64], level: float
) -> NDArray[np.bool_]:
    """Whether two-sided tests find a difference; few listeners cannot, even if all agree."""
    return (np.abs(scores) >= special.ndtri(1 - level / 2)) & (2.0 ** (1.0 - counts) <= level)
