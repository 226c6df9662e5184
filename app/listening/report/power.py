"""Power: which differences a test of this size would find, and how many listeners it needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from statsmodels.stats.power import TTestPower

if TYPE_CHECKING:
    from numpy.typing import NDArray

WANTED = 0.8
"""Power that a test is expected to have."""
LEVEL = 0.05
MOST_LISTENERS = 10_000
_EFFICIENCY = 108 / 125
"""Listeners of a t test per listener of the signed rank test that is as good: the least for any
distribution (J. L. Hodges and E. L. Lehmann, 1956)."""

_EQUAL = 1e-6
"""Listeners who differ less are equal, up to rounding."""


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


def least_listeners(tests: int) -> int:
    """Return how many listeners the signed rank test needs at least, if all of them agree.

    Its smallest p for n listeners is 2 / 2^n, and Holm's correction multiplies it by `tests`.
    """
    return math.floor(2 + math.log2(tests / LEVEL)) if tests else 0


def power_of(
    values: NDArray[np.float64], of_interest: float, tests: int, *, are_shares: bool = False
) -> Power:
    """Return the power of a comparison, at the level of the first step of Holm's correction.

    It is that of a t test, with fewer listeners by the efficiency of the signed rank test. To find
    a difference in the wrong direction does not count.

    Args:
        values: a difference per listener; its spread is that of future listeners too.
        of_interest: the smallest difference worth finding.
        tests: number of comparisons that are corrected together.
        are_shares: whether they are shares of wins minus those of losses. These spread less near −1
            and 1, as counts do: their spread is that at the difference of interest. A further
            listener without a preference keeps it above 0.
    """
    count, power = len(values), TTestPower()
    side: dict[str, Any] = {"alpha": LEVEL / max(1, tests) / 2, "alternative": "larger"}
    if count < 2:
        return Power(of_interest, 0.0, None, math.inf)
    least, spread = least_listeners(tests), float(np.std(values, ddof=1))
    if are_shares:
        more = np.append(values, 0.0)
        scale = (1 - of_interest**2) / (1 - float(np.mean(more)) ** 2)
        spread = math.sqrt(scale * float(np.var(more, ddof=1)))

    def reached(listeners: int) -> float:
        if listeners < least:
            return 0.0
        if spread < _EQUAL:
            return 1.0
        return float(power.power(of_interest / spread, _EFFICIENCY * listeners, **side))

    choices = range(count, MOST_LISTENERS + 1)
    needed = bisect_left(choices, WANTED, key=reached)
    smallest = math.inf
    if count >= least:
        effect: Any = power.solve_power(nobs=_EFFICIENCY * count, power=WANTED, **side)
        smallest = spread * float(effect)
    return Power(
        of_interest,
        reached(count),
        needed if needed < len(choices) else None,
        smallest,
    )
