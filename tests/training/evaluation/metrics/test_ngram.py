from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.metrics.ngram import SMOOTHINGS, Counts, NGram, greatest_order

VOCABULARY = 7
tokens = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=30)
pieces = st.lists(tokens, min_size=1, max_size=4)
smoothings = st.sampled_from(SMOOTHINGS)
orders = st.integers(1, 5)


@given(pieces=pieces, history=tokens, order=orders, smoothing=smoothings)
def test_probabilities_of_all_tokens_sum_to_one(pieces, history, order, smoothing):
    model = NGram(Counts.of(pieces, order, VOCABULARY), smoothing)
    total = sum(model.probabilities([*history, token])[-1] for token in range(VOCABULARY))
    assert total == pytest.approx(1)


@given(pieces=pieces, piece=tokens, order=orders, smoothing=smoothings)
def test_every_token_is_possible_and_depends_only_on_the_past(pieces, piece, order, smoothing):
    model = NGram(Counts.of(pieces, order, VOCABULARY), smoothing)
    whole = model.probabilities(piece)
    assert (whole > 0).all()
    np.testing.assert_allclose(model.probabilities(piece[:-1]), whole[:-1])
    np.testing.assert_allclose(model.nats(piece), -np.log(whole[1:]))


@given(first=pieces, second=pieces, order=orders)
def test_counts_add_up(first, second, order):
    both = Counts.of([*first, *second], order, VOCABULARY)
    added = Counts.of(first, order, VOCABULARY) + Counts.of(second, order, VOCABULARY)
    np.testing.assert_array_equal(added.grams, both.grams)
    np.testing.assert_array_equal(added.counts, both.counts)


@given(pieces=pieces, history=tokens, token=st.integers(1, VOCABULARY - 1), order=orders)
def test_witten_bell_matches_its_formula(pieces, history, token, order):
    """Chen & Goodman (1998), section 2.5, with naive counts."""

    def follows(context):
        padded = [[0] * (order - 1) + piece for piece in pieces]
        n = len(context)
        return [
            row[i]
            for row in padded
            for i in range(order - 1, len(row))
            if row[i - n : i] == context
        ]

    def probability(context):
        lower = probability(context[1:]) if context else 1 / VOCABULARY
        seen = follows(context)
        if not seen:
            return lower
        kinds = len(set(seen))
        return (seen.count(token) + kinds * lower) / (len(seen) + kinds)

    context = ([0] * (order - 1) + history)[-(order - 1) :] if order > 1 else []
    model = NGram(Counts.of(pieces, order, VOCABULARY), "witten_bell")
    assert model.probabilities([*history, token])[-1] == pytest.approx(probability(context))


def test_a_longer_memory_predicts_a_cycle():
    cycle = [1, 2, 1, 3] * 50
    nats = [NGram(Counts.of([cycle], n, 7), "kneser_ney").nats(cycle).mean() for n in (1, 2, 3)]
    assert nats[0] > nats[1] > nats[2]
    assert nats[2] < 0.1


@given(order=st.integers(1, 20), vocabulary_size=st.integers(2, 2**16))
def test_orders_up_to_the_maximum_are_counted(order, vocabulary_size):
    piece = [vocabulary_size - 1] * 3
    if order <= greatest_order(vocabulary_size):
        assert Counts.of([piece], order, vocabulary_size).counts.sum() == 3
    else:
        with pytest.raises(ValueError, match="expected 1 to"):
            Counts.of([piece], order, vocabulary_size)
