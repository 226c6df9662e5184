"""Crossed cluster bootstrap: intervals for new listeners and for new prompts.

Every listener judges every prompt, so that neither alone is a sample of independent answers. The
variance of a result is V_listeners + V_prompts − V_cells (A. C. Cameron, J. B. Gelbach and D. L.
Miller, *Robust Inference with Multiway Clustering*, 2011, eq. 2.12): those of three bootstraps that
resample listeners, prompts, and pairs of both. Each draws one cluster less than there are, with
replacement, which makes the variance of means unbiased for few clusters (J. N. K. Rao and C. F. J.
Wu, *Resampling Inference with Complex Survey Data*, 1988).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_AT_ONCE = 2_000_000
"""Weights in memory at a time."""


class Interval(NamedTuple):
    """An estimate with its 95 % interval; the limits are nan if nothing can be resampled."""

    value: float
    low: float
    high: float
    p: float = math.nan
    """Two-sided, of the test that there is no difference; nan if it means nothing."""

    def through(self, function: Callable[[float], float]) -> Interval:
        """Return the interval on another, increasing, scale."""
        return Interval(function(self.value), function(self.low), function(self.high), self.p)


@dataclass(frozen=True)
class Bootstrap:
    """Resamples the listeners and prompts of a test; the same seed draws the same samples."""

    listeners: int
    prompts: int
    draws: int = 1000
    seed: int = 0
    level: float = 0.95

    def intervals(
        self, statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> list[Interval]:
        """Return the intervals of a statistic.

        Args:
            statistic: computes `results` numbers from weights of the answers of each listener about
                each prompt: (samples, listeners, prompts) -> (samples, results). A result is nan if
                no answer has a weight.

        Returns:
            An interval per result: the value for equal weights, plus and minus Student's t times
            the standard error, with degrees of freedom after Satterthwaite (1946).
        """
        values = statistic(np.ones((1, self.listeners, self.prompts)))[0]
        rng = np.random.default_rng(self.seed)
        sizes = (self.listeners, self.prompts, self.listeners * self.prompts)
        variances = []
        for way, size in enumerate(sizes):
            if size < 2:
                variances.append(np.zeros_like(values))
                continue
            samples = np.concatenate([statistic(w) for w in self._weights(rng, way, size)])
            with warnings.catch_warnings():  # a result without two samples has none
                warnings.simplefilter("ignore", RuntimeWarning)
                variances.append(np.nanvar(samples, 0, ddof=1))
        of_listeners, of_prompts, of_cells = variances
        single = np.maximum(of_listeners, of_prompts)
        variance = np.maximum(of_listeners + of_prompts - of_cells, single)
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom = (of_listeners + of_prompts) ** 2 / (
                of_listeners**2 / max(1, self.listeners - 1)
                + of_prompts**2 / max(1, self.prompts - 1)
            )
        freedom = np.where(np.isfinite(freedom), freedom, max(1, self.listeners - 1))
        error = np.sqrt(variance)
        half = stats.t.ppf(0.5 + self.level / 2, freedom) * error
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(values) / error, freedom)
        table = np.stack([values, values - half, values + half, p], 1)
        return [Interval(*map(float, row)) for row in table]

    def _weights(
        self, rng: np.random.Generator, way: int, size: int
    ) -> Iterator[NDArray[np.float64]]:
        shape = ((self.listeners, 1), (1, self.prompts), (self.listeners, self.prompts))[way]
        most = max(1, _AT_ONCE // (self.listeners * self.prompts))
        for begin in range(0, self.draws, most):
            count = min(most, self.draws - begin)
            drawn = rng.multinomial(size - 1, np.full(size, 1 / size), size=count)
            yield np.broadcast_to(
                drawn.reshape(count, *shape), (count, self.listeners, self.prompts)
            ).astype(np.float64)
