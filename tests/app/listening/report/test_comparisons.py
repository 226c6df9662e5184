"""Wilcoxon's test, Holm's correction, effect sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from app.listening.report.comparisons import holm, rank_biserial, wilcoxon

# C. Darwin's differences of cross- and self-fertilised maize, in eighths of an inch: R. A. Fisher,
# The Design of Experiments (1935), table 3. The sum of negative ranks is 24, exact p 0.041.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], float)


def test_published_differences():
    assert wilcoxon(DARWIN) == pytest.approx(0.04126, abs=1e-5)
    assert wilcoxon(DARWIN) == stats.wilcoxon(DARWIN)[1]
    assert rank_biserial(DARWIN) == pytest.approx((96 - 24) / 120)
    assert rank_biserial(-DARWIN) == -rank_biserial(DARWIN)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_ties_of_few_values_are_exact(values):
    """Compared with all signs, counted one by one."""
    differing = [v for v in values if v]
    ranks = stats.rankdata(np.abs(differing)) if differing else []
    found = abs(sum(r * np.sign(v) for r, v in zip(ranks, differing, strict=True)))
    sums = [
        abs(sum(r * s for r, s in zip(ranks, signs, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differing))
    ]
    assert wilcoxon(np.array(values, float)) == pytest.approx(
        np.mean([s >= found - 1e-9 for s in sums])
    )


def test_many_tied_values_are_those_of_scipy():
    values = np.random.default_rng(1).integers(-3, 5, 80).astype(float)
    differing = values[values != 0]
    expected = stats.wilcoxon(differing, method="approx", correction=True)[1]
    assert wilcoxon(values) == pytest.approx(expected)


def test_holm():
    # S. Holm's procedure on the values of the documentation of R's p.adjust
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04, 0.01]) == pytest.approx([0.04, 0.02])
    assert holm([]) == []
