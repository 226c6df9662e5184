from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from training.learning.seeding import Steps, draw_seeds, generator, noise_seed

seeds = st.integers(0, 2**31 - 1)
steps = st.integers(0, 2**31 - 1)


@given(seeds, steps, st.integers(0, 100))
def test_numbers_are_a_function_of_seed_step_and_row(seed, step, row):
    first, second = (generator(seed, step, "data", row).integers(2**60, size=4) for _ in range(2))
    other = generator(seed, step, "data", row + 1).integers(2**60, size=4)
    assert (first == second).all()
    assert (first != other).any()


@given(seeds, steps)
def test_every_step_has_its_own_noise(seed, step):
    assert noise_seed(seed, step) == noise_seed(seed, step)
    assert 0 <= noise_seed(seed, step) < 2**31
    assert noise_seed(seed, step) != noise_seed(seed, step + 1)


@given(seeds)
def test_more_draws_extend_fewer_and_the_first_is_that_of_the_model(seed):
    assert draw_seeds(seed, 1) == [seed]
    four = draw_seeds(seed, 4)
    assert four[:2] == draw_seeds(seed, 2)
    assert len(set(four)) == 4


def test_steps_continue_from_their_start():
    assert list(islice(Steps(7), 3)) == [7, 8, 9]
