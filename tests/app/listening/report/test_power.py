"""Power, compared with tests of simulated listeners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.listening.report.comparisons import wilcoxon
from app.listening.report.power import power_of, signed_ranks


def normal(rng, effect, count):
    return rng.normal(effect, 1, count)


def counted(rng, effect, count):
    """Mean of four answers of 1 or -1."""
    return rng.choice([1, -1], (count, 4), p=[(1 + effect) / 2, (1 - effect) / 2]).mean(1)


@pytest.mark.parametrize("count", [10, 24])
@pytest.mark.parametrize("draw", [normal, counted])
def test_power_is_that_of_tests_of_new_listeners(draw, count):
    effect = 0.7 if draw is normal else 0.3
    rng = np.random.default_rng(0)
    found = np.mean([wilcoxon(draw(rng, effect, count)) < 0.05 for _ in range(300)])
    known = {"has_steps": draw is counted}
    told = [power_of(draw(rng, 0, count), effect, 1, **known).reached for _ in range(30)]
    assert np.mean(told) == pytest.approx(found, abs=0.1)


@pytest.mark.parametrize("draw", [normal, counted])
def test_needed_listeners_reach_the_power(draw):
    effect = 0.5 if draw is normal else 0.25
    rng = np.random.default_rng(1)
    known = {"has_steps": draw is counted}
    told = [power_of(draw(rng, 0, 12), effect, 3, **known) for _ in range(60)]
    needed = 12 + int(np.median([np.inf if one.needed is None else one.needed for one in told]))
    found = np.mean([wilcoxon(draw(rng, effect, needed)) < 0.05 / 3 for _ in range(300)])
    assert found == pytest.approx(0.8, abs=0.1)
    least = np.median([power_of(draw(rng, 0, 24), effect, 1, **known).least for _ in range(60)])
    found = np.mean([wilcoxon(draw(rng, least, 24)) < 0.05 for _ in range(300)])
    assert found == pytest.approx(0.8, abs=0.1)


@given(st.floats(0.05, 3), st.integers(2, 60), st.integers(1, 10))
@settings(max_examples=30, deadline=None)
def test_results_fit_together(effect, count, tests):
    values = np.random.default_rng(count).normal(0, 1, count)
    told = power_of(values, effect, tests)
    assert told == power_of(values, effect, tests)
    assert 0 <= told.reached <= 1
    assert told.needed is None or 0 <= told.needed <= 10_000
    if 2.0 ** (1 - count) > 0.05 / tests:
        assert (told.reached, told.least) == (0.0, np.inf)
        assert told.needed != 0


def test_the_statistic_is_that_of_scipy():
    rng = np.random.default_rng(2)
    rows = rng.integers(-3, 4, (50, 40)).astype(float)
    scores, counts = signed_ranks(rows)
    for row, score, count in zip(rows, scores, counts, strict=True):
        from scipy.stats import norm

        assert count == np.sum(row != 0)
        assert 2 * norm.sf(abs(score)) == pytest.approx(wilcoxon(row), rel=1e-6)


def test_few_listeners_have_no_power_and_equal_answers_all():
    assert power_of(np.array([1.0]), 0.5, 1) == (0.5, 0.0, None, np.inf)
    # the smallest p of five listeners is 1/16
    assert power_of(np.array([1.0, 0.9, 1.1, 1.0, 1.0]), 0.5, 1)[1:] == (0.0, 1, np.inf)
    assert power_of(np.ones(6), 0.5, 1)[1:] == (1.0, 0, 0.0)
