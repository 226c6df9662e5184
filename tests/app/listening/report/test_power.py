"""Power, compared with published values and with simulations of the test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.listening.report.comparisons import wilcoxon
from app.listening.report.power import power, power_of


def test_published_power_of_the_t_test():
    # J. Cohen (1988): 80 % for d = 0.5 needs 34 pairs; Wilcoxon's test is 3/pi as efficient
    assert power(0.5 * np.sqrt(np.pi / 3), 34, 0.05) == pytest.approx(0.808, abs=0.002)
    assert power(0.0, 20, 0.05) == pytest.approx(0.05, abs=1e-4)


def test_power_is_that_of_simulated_tests():
    rng = np.random.default_rng(0)
    found = np.mean([wilcoxon(rng.normal(0.6, 1, 20)) < 0.05 for _ in range(1500)])
    assert power(0.6, 20, 0.05) == pytest.approx(found, abs=0.035)


@given(st.floats(0.05, 3), st.integers(2, 200), st.integers(1, 10))
def test_needed_listeners_reach_the_power_and_fewer_do_not(effect, count, tests):
    values = np.random.default_rng(count).normal(0, 1, count)
    found = power_of(values, effect, tests)
    spread, level = float(np.std(values, ddof=1)), 0.05 / tests
    if found.needed is None:
        assert power(effect / spread, 10_000, level) < 0.8
    else:
        assert power(effect / spread, count + found.needed, level) >= 0.8
        if found.needed:
            assert power(effect / spread, count + found.needed - 1, level) < 0.8
    if 2 ** (1 - count) > level:
        assert (found.reached, found.least) == (0.0, np.inf)
    else:
        assert power(found.least / spread, count, level) == pytest.approx(0.8, abs=1e-3)


def test_few_listeners_have_no_power_and_equal_answers_all():
    assert power_of(np.array([1.0]), 0.5, 1) == (0.5, 0.0, None, np.inf)
    # the smallest p of five listeners is 1/16
    assert power_of(np.array([1.0, 0.9, 1.1, 1.0, 1.0]), 0.5, 1)[1:] == (0.0, 1, np.inf)
    assert power_of(np.ones(6), 0.5, 1)[1:] == (1.0, 0, 0.0)
