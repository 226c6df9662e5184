"""Comparisons of two conditions: a test, its correction, an effect size."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from app.listening.report.bootstrap import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from app.listening.report.power import Power


class Difference(NamedTuple):
    """How listeners judged one condition compared with another; a number per listener."""

    condition: str
    other: str
    values: NDArray[np.float64]


class Comparison(NamedTuple):
    """The result of a test of two conditions."""

    condition: str
    other: str
    listeners: int
    answers: int
    estimate: Interval
    """Difference of means in points, or probability that `condition` is preferred to `other`."""
    p: float
    p_holm: float
    effect_size: float
    """Matched-pairs rank-biserial correlation, −1 to 1."""
    power: Power
    is_certain: bool
    """Whether the test of the bootstrap, which is also for other prompts, finds a difference after
    Holm's correction."""


def pairs(conditions: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs of conditions."""
    return list(combinations(conditions, 2))


def wilcoxon(values: NDArray[np.float64]) -> float:
    """Two-sided p of Wilcoxon's signed rank test (1945), 1 if no value differs from zero.

    It is exact for up to 50 values without ties; otherwise the normal approximation is corrected
    for ties. Zeros are left out.
    """
    differing = values[values != 0]
    if not len(differing):
        return 1.0
    tied = len(np.unique(np.abs(differing))) < len(differing)
    if len(differing) <= 50 and not tied:
        return _p(stats.wilcoxon(differing, method="exact"))
    if len(differing) <= 12:  # all 4,096 signs or fewer
        return _exact(differing)
    return _p(stats.wilcoxon(differing, method="approx", correction=True))


def _p(result: Any) -> float:  # noqa: ANN401 - scipy does not declare what its tests return
    return float(result.pvalue)


def _exact(values: NDArray[np.float64]) -> float:
    """The exact p with ties: the share of signs whose sum of ranks is as far from the middle."""
    ranks = stats.rankdata(np.abs(values))
    signs = 2 * ((np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1) - 1
    sums = np.abs(signs @ ranks)
    return float(np.mean(sums >= abs(np.sign(values) @ ranks) - 1e-9))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of S. Holm (1979): the chance of any wrong finding is at most the level."""
    corrected = np.empty(len(p_values))
    highest = 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = highest
    return corrected.tolist()


def rank_biserial(values: NDArray[np.float64]) -> float:
    """Matched-pairs rank-biserial correlation (D. S. Kerby, 2014); 0 if no value differs from 0.

    It is the share of ranks in favour minus the share against, from −1 to 1.
    """
    differing = values[values != 0]
    if not len(differing):
        return 0.0
    ranks = stats.rankdata(np.abs(differing))
    return float(np.sign(differing) @ ranks / ranks.sum())


def differences(
    judged: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
) -> list[Difference]:
    """The mean of each listener's numbers, for each pair of conditions.

    `judged` maps pairs of conditions to listeners and their numbers.
    """
    return [
        Difference(
            condition,
            other,
            np.array([math.fsum(told[name]) / len(told[name]) for name in sorted(told)]),
        )
        for (condition, other), told in judged.items()
    ]
