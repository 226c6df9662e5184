"""Power: which differences a test of this size would find, and how many listeners it needs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

WANTED = 0.8
"""Power that a test is expected to have."""
LEVEL = 0.05
MOST_LISTENERS = 10_000
_EFFICIENCY = 3 / math.pi
"""Of Wilcoxon's test relative to the t test, for normal differences (Hodges and Lehmann, 1956)."""


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


def power(effect: float, listeners: int, level: float) -> float:
    """Power of the two-sided signed rank test, from the noncentral t distribution.

    Args:
        effect: mean of the differences divided by their standard deviation.
        listeners: how many.
        level: of the test.
    """
    if listeners < 2 or 2.0 ** (1 - listeners) > level:
        return 0.0  # even if all listeners agree
    limits = float(stats.t.isf(level / 2, listeners - 1)) * _spreads(listeners - 1)
    shift = min(abs(effect), 1e6) * math.sqrt(listeners * _EFFICIENCY)
    return float(np.mean(special.ndtr(shift - limits) + special.ndtr(-shift - limits)))


@lru_cache(maxsize=256)
def _spreads(freedom: int) -> NDArray[np.float64]:
    """Quantiles of an estimated standard deviation whose true value is 1.

    The noncentral t distribution is a mean over them; scipy's `nct` fails for few degrees of
    freedom.
    """
    shares = (np.arange(1000) + 0.5) / 1000
    return np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)


def power_of(values: NDArray[np.float64], of_interest: float, tests: int) -> Power:
    """The power of a comparison, at the level of the first step of Holm's correction.

    Args:
        values: a difference per listener; its spread is that of future listeners too.
        of_interest: the smallest difference worth finding.
        tests: number of comparisons that are corrected together.
    """
    level, count = LEVEL / max(1, tests), len(values)
    spread = float(np.std(values, ddof=1)) if count > 1 else math.inf
    if math.isinf(spread):
        return Power(of_interest, 0.0, None, math.inf)
    effect = of_interest / spread if spread else math.inf
    least = _smallest(lambda one: power(one, count, level) >= WANTED)
    return Power(
        of_interest,
        power(effect, count, level),
        _needed(effect, count, level),
        least * spread if math.isfinite(least) else least,
    )


def _needed(effect: float, count: int, level: float) -> int | None:
    if power(effect, count, level) >= WANTED:
        return 0
    if power(effect, MOST_LISTENERS, level) < WANTED:
        return None
    low, high = count, MOST_LISTENERS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, level) >= WANTED else (middle, high)
    return high - count


def _smallest(is_enough: Callable[[float], bool]) -> float:
    """The smallest effect that is enough, by bisection; infinite if none is."""
    low, high = 0.0, 1.0
    while not is_enough(high):
        if high > 1e3:
            return math.inf
        high *= 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
