from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from training.evaluation.sweep.comparisons import (
    compared,
    detectable,
    pooled_deviation,
    seeds_needed,
)


def test_a_comparison_is_that_of_welch_by_his_formulas():
    first, second = [1.0, 2.0, 4.0], [3.0, 9.0, 5.0, 6.0]
    (found,) = compared({"base": first, "row": second}, "base")
    parts = [np.var(x, ddof=1) / len(x) for x in (first, second)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)
    difference = np.mean(second) - np.mean(first)
    assert found.difference == pytest.approx(difference)
    assert found.p == pytest.approx(2 * stats.t.sf(difference / error, freedom))
    assert found.p_holm == found.p
    reach = stats.t.isf(0.025, freedom) * error
    assert (found.low, found.high) == pytest.approx((difference - reach, difference + reach))


def test_holm_multiplies_the_smallest_p_most():
    rows = {"base": [1.0, 2.0, 3.0], "far": [11.0, 12.0, 13.5], "near": [2.0, 3.0, 4.1]}
    far, near = compared(rows, "base")
    assert far.p < near.p
    assert far.p_holm == pytest.approx(2 * far.p)
    assert near.p_holm == pytest.approx(near.p)


def test_rows_without_deviation_have_no_p_and_are_not_counted():
    rows = {"base": [1.0, 1.0], "same": [2.0, 2.0], "row": [2.0, 2.5], "one": [3.0]}
    same, row = compared(rows, "base")
    assert math.isnan(same.p)
    assert math.isnan(same.p_holm)
    assert row.p_holm == row.p
    assert compared({"base": [1.0], "row": [1.0, 2.0]}, "base") == []


def test_the_pooled_deviation_weighs_rows_by_their_degrees_of_freedom():
    assert pooled_deviation([[1.0, 3.0], [10.0, 10.0, 10.0], [5.0]]) == math.sqrt(2 / 3)
    assert math.isnan(pooled_deviation([[1.0], [2.0]]))


def test_a_detectable_difference_is_found_as_often_as_the_power_says():
    for seeds, tests in ((2, 1), (4, 5), (10, 17)):
        draws = np.random.default_rng(0).normal(size=(2, 20_000, seeds))
        moved = draws[1] + detectable(1.0, seeds, tests)
        tested: Any = stats.ttest_ind(draws[0], moved, axis=1)
        assert np.mean(tested.pvalue < 0.05 / tests) == pytest.approx(0.8, abs=0.015)


@settings(max_examples=30)
@given(st.floats(0.05, 20), st.integers(1, 50))
def test_needed_seeds_are_the_fewest_that_detect_the_difference(difference, tests):
    needed = seeds_needed(difference, 1.0, tests)
    if needed is None:
        assert detectable(1.0, 1000, tests) > difference
        return
    assert detectable(1.0, needed, tests) <= difference
    assert needed == 2 or detectable(1.0, needed - 1, tests) > difference


def test_without_a_deviation_nothing_is_known():
    assert math.isnan(detectable(math.nan, 3, 1))
    assert seeds_needed(1.0, math.nan, 1) is None
