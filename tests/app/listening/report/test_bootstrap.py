"""The crossed cluster bootstrap, compared with variances that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from app.listening.report.bootstrap import Bootstrap, Interval


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


@pytest.mark.parametrize(
    ("spread_listeners", "spread_prompts"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
)
def test_variances_of_listeners_and_prompts_add_up(spread_listeners, spread_prompts):
    rng = np.random.default_rng(1)
    widths = []
    for seed in range(30):
        values = (
            spread_listeners * rng.normal(size=(25, 1))
            + spread_prompts * rng.normal(size=(1, 12))
            + 0.3 * rng.normal(size=(25, 12))
        )
        (found,) = Bootstrap(25, 12, draws=400, seed=seed, level=0.6827).intervals(mean_of(values))
        widths.append((found.high - found.low) / 2)
    variance = spread_listeners**2 / 25 + spread_prompts**2 / 12 + 0.09 / 300
    # half the width of 68 % is a standard error, a little more with few degrees of freedom
    assert np.mean(widths) == pytest.approx(np.sqrt(variance), rel=0.12)


@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 5))
@settings(max_examples=25)
def test_the_same_seed_gives_the_same_interval_around_the_estimate(listeners, prompts, seed):
    values = np.random.default_rng(seed).normal(size=(listeners, prompts))
    bootstrap = Bootstrap(listeners, prompts, draws=100, seed=seed)
    (found,) = bootstrap.intervals(mean_of(values))
    assert bootstrap.intervals(mean_of(values)) == [found]
    assert found.low <= found.value <= found.high
    assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
    mirrored = bootstrap.intervals(mean_of(-values))[0]
    assert mirrored == pytest.approx((-found.value, -found.high, -found.low, found.p))


def test_large_tests_are_resampled_in_parts(monkeypatch):
    values = np.random.default_rng(0).normal(size=(10, 5))
    whole = Bootstrap(10, 5, draws=100).intervals(mean_of(values))
    monkeypatch.setattr("app.listening.report.bootstrap._AT_ONCE", 10 * 5 * 7)
    assert Bootstrap(10, 5, draws=100).intervals(mean_of(values))[0] == pytest.approx(whole[0])


def test_scales():
    interval = Interval(0.5, 0.1, 0.9, 0.01)
    assert interval.through(lambda x: 2 * x)[:3] == (1.0, 0.2, 1.8)
