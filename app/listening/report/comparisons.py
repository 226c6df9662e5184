"""Comparisons of two conditions: a test, its correction, an effect size."""

from __future__ import annotations

import math
import statistics
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from app.listening.report.bootstrap import Interval
from app.listening.report.power import LEVEL, Power

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


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
    """Return all pairs of conditions."""
    return list(combinations(conditions, 2))


def wilcoxon(values: NDArray[np.float64]) -> float:
    """Return the two-sided p of Wilcoxon's signed rank test (1945); 1 if no value differs from 0.

    It is exact for up to 50 values without ties, or 12 with ties; otherwise the normal
    approximation is corrected for ties. Zeros are left out.
    """
    differing = values[values != 0]
    sizes = np.abs(differing)
    if not len(differing):
        return 1.0
    if len(np.unique(sizes)) < len(sizes) <= 12:
        # scipy needs seconds for the 4,096 signs or fewer: the share as far from the middle
        ranks = stats.rankdata(sizes)
        signs = 2 * ((np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes))) & 1) - 1
        return float(np.mean(np.abs(signs @ ranks) >= abs(np.sign(differing) @ ranks) - 1e-9))
    method = "exact" if len(np.unique(sizes)) == len(sizes) <= 50 else "asymptotic"
    result: Any = stats.wilcoxon(differing, correction=True, method=method)
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p of S. Holm (1979): the chance of any wrong finding is at most the level.

    It is that of `multipletests` of statsmodels, which collects garbage in each call: seconds for a
    report.
    """
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()


def rank_biserial(values: NDArray[np.float64]) -> float:
    """Return the matched-pairs rank-biserial correlation (Kerby, 2014); 0 if all values are 0.

    It is the share of ranks in favour minus the share against, from −1 to 1.
    """
    differing = values[values != 0]
    if not len(differing):
        return 0.0
    ranks = stats.rankdata(np.abs(differing))
    return float(np.sign(differing) @ ranks / ranks.sum())


def compared(
    judged: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
    intervals: Sequence[Interval],
    answers: Mapping[tuple[str, str], int],
    power: Callable[[NDArray[np.float64], int], Power],
) -> list[Comparison]:
    """Test the difference of each pair, with Holm's correction for all that listeners have judged.

    Args:
        judged: for each pair of conditions, the numbers of each listener, of which the mean counts;
            pairs without listeners are left out.
        intervals: the estimate of each pair, with the p of the bootstrap.
        answers: how many answers there are of each.
        power: computes the power from a number per listener and the number of tests.
    """
    tested = [one for one in zip(judged, intervals, strict=True) if judged[one[0]]]
    means: list[NDArray[np.float64]] = [
        np.array([statistics.fmean(judged[pair][name]) for name in sorted(judged[pair])])
        for pair, _ in tested
    ]
    rounded = [np.round(values, 9) for values in means]  # equal numbers are ties
    p_values = [wilcoxon(values) for values in rounded]
    # nan, where nothing varies, is no evidence
    beyond = holm([1.0 if math.isnan(interval.p) else interval.p for _, interval in tested])
    return [
        Comparison(
            *pair,
            listeners=len(values),
            answers=answers[pair],
            estimate=interval,
            p=p,
            p_holm=p_holm,
            effect_size=rank_biserial(values),
            power=power(exact, len(tested)),
            is_certain=p_beyond < LEVEL,
        )
        for (pair, interval), exact, values, p, p_holm, p_beyond in zip(
            tested, means, rounded, p_values, holm(p_values), beyond, strict=True
        )
    ]
