from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.listening.page.squares import latin_square, order

SIZES = st.integers(1, 9)


def spread(counts, possible):
    """Differences between the most and the least frequent of some possible values."""
    found = [counts[value] for value in possible]
    return max(found) - min(found)


@given(SIZES)
def test_each_treatment_is_equally_often_at_each_place(size):
    for column in zip(*latin_square(size), strict=True):
        assert spread(Counter(column), range(size)) == 0
    assert all(sorted(row) == list(range(size)) for row in latin_square(size))


@given(SIZES)
def test_each_treatment_directly_follows_each_other_one_equally_often(size):
    follows = Counter(pair for row in latin_square(size) for pair in pairwise(row))
    assert spread(follows, [(a, b) for a in range(size) for b in range(size) if a != b] or [0]) == 0


@given(st.integers(0, 500), SIZES, SIZES)
def test_a_listener_gets_each_combination_once(listener, treatments, items):
    cells = order(listener, treatments, items)
    assert sorted(cells) == [(one, item) for one in range(treatments) for item in range(items)]
    for begin in range(0, len(cells), treatments):  # and each condition once in each stretch
        assert len({cell.treatment for cell in cells[begin : begin + treatments]}) == treatments


@given(st.integers(1, 6), st.integers(1, 6))
def test_each_combination_is_equally_often_at_each_place(treatments, items):
    listeners = len(latin_square(treatments)) * len(latin_square(items))
    orders = [order(listener, treatments, items) for listener in range(listeners)]
    for place in zip(*orders, strict=True):
        assert set(Counter(place).values()) == {listeners // (treatments * items)}


@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 9))
def test_a_prompt_is_not_heard_again_before_most_others(listener, treatments, items):
    heard = [cell.item for cell in order(listener, treatments, items)]
    assert len(set(heard[:items])) == items
    if items > 2:
        again = sum(one == other for one, other in pairwise(heard))
        assert again <= len(heard) / 4
