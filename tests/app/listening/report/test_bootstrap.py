"""The crossed cluster bootstrap, compared with variances that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from app.listening.report.bootstrap import Bootstrap


def mean_of(values):
    """The weighted mean of values by listener and prompt."""

    def statistic(weights):
        return ((weights * values).sum((1, 2)) / weights.sum((1, 2)))[:, None]

    return statistic


def test_of_listeners_alone_it_is_the_interval_of_students_t():
    values = np.random.default_rng(0).normal(3, 1, (20, 1))
    (found,) = Bootstrap(20, 1, draws=20_000).intervals(mean_of(values))
    half = stats.t.ppf(0.975, 19) * values.std(ddof=1) / np.sqrt(20)
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.value == pytest.approx(half, rel=0.03)


def test_variances_of_listeners_and_prompts_add_up():
    rng = np.random.default_rng(1)
    widths = []
    for seed in range(30):
        listeners, prompts, rest = (rng.normal(size=size) for size in ((25, 1), (1, 12), (25, 12)))
        values = listeners + prompts + 0.3 * rest
        (found,) = Bootstrap(25, 12, draws=400, seed=seed, level=0.6827).intervals(mean_of(values))
        widths.append((found.high - found.low) / 2)
    variance = 1 / 25 + 1 / 12 + 0.09 / 300
    # half the width of 68 % is a standard error, a little more with few degrees of freedom
    assert np.mean(widths) == pytest.approx(np.sqrt(variance), rel=0.12)


def test_large_tests_are_resampled_in_parts(monkeypatch):
    values = np.random.default_rng(0).normal(size=(10, 5))
    whole = Bootstrap(10, 5, draws=100).intervals(mean_of(values))
    monkeypatch.setattr("app.listening.report.bootstrap._AT_ONCE", 10 * 5 * 7)
    assert Bootstrap(10, 5, draws=100).intervals(mean_of(values))[0] == pytest.approx(whole[0])
