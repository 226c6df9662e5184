from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import TrainingError, check_range

numbers = st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from([math.inf, -math.inf, math.nan])


@given(value=numbers, low=st.integers(-3, 3), width=st.none() | st.integers(0, 3))
def test_values_within_the_range_are_accepted_and_others_refused(value, low, width):
    high = None if width is None else low + width
    if math.isfinite(value) and low <= value and (high is None or value <= high):
        check_range("steps", value, low, high)
    else:
        with pytest.raises(
            TrainingError, match=rf"^steps is {value}, expected (at least )?{low}\b"
        ):
            check_range("steps", value, low, high)


def test_a_bound_and_the_number_may_be_left_out():
    check_range("steps", None, 1)
    check_range("steps", 0.1, 0, above=True)
    with pytest.raises(TrainingError, match="steps is 0, expected more than 0"):
        check_range("steps", 0, 0, above=True)
