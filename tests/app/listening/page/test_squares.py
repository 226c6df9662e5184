from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.listening.page.squares import latin_square, order

SIZES = st.integers(1, 9)


@given(SIZES)
def test_treatments_are_equally_often_at_each_place_and_after_each_other_one(size):
    square = latin_square(size)
    assert all(sorted(row) == list(range(size)) for row in square)
    for column in zip(*square, strict=True):
        assert set(Counter(column).values()) == {len(square) // size}
    follows = Counter(pair for row in square for pair in pairwise(row))
    assert len(follows) == size * (size - 1)
    assert len(set(follows.values())) <= 1


@given(st.integers(0, 500), SIZES, SIZES)
def test_a_listener_gets_each_combination_once(listener, treatments, items):
    cells = order(listener, treatments, items)
    assert sorted(cells) == [(one, item) for one in range(treatments) for item in range(items)]
    for begin in range(0, len(cells), treatments):  # and each condition once in each stretch
        assert len({treatment for treatment, _ in cells[begin : begin + treatments]}) == treatments
    # a prompt is not heard again before most others
    heard = [item for _, item in cells]
    assert len(set(heard[:items])) == items
    if items > 2:
        assert sum(one == other for one, other in pairwise(heard)) <= len(heard) / 4


@given(st.integers(1, 6), st.integers(1, 6))
def test_each_combination_is_equally_often_at_each_place(treatments, items):
    listeners = len(latin_square(treatments)) * len(latin_square(items))
    orders = [order(listener, treatments, items) for listener in range(listeners)]
    for place in zip(*orders, strict=True):
        assert set(Counter(place).values()) == {listeners // (treatments * items)}
