from __future__ import annotations

import csv

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.metrics.nll_by_position import (
    beyond_training,
    nll_by_position,
    write_csv,
)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_only_long_pieces_count_and_bins_average_to_their_mean(lengths):
    nats = [np.arange(length) / 7 + index for index, length in enumerate(lengths)]
    bins = nll_by_position(nats, reach=20, width=5)
    long = [piece[:20] for piece in nats if len(piece) >= 20]
    assert len(bins) == (4 if long else 0)
    if long:
        assert {b.pieces for b in bins} == {len(long)}
        np.testing.assert_allclose(np.mean([b.nats_per_token for b in bins]), np.mean(long))
        assert (bins[0].first, bins[-1].last) == (1, 20)


def test_the_table_is_written(tmp_path):
    bins = nll_by_position([np.ones(20), np.zeros(30)], reach=20, width=5)
    write_csv(bins, tmp_path / "a.csv")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [float(row["nats_per_token"]) for row in rows] == [0.5] * 4
    assert len(list(tmp_path.iterdir())) == 1


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.integers(1, 19),
    st.floats(-1, 1, allow_subnormal=False),
)
def test_tokens_beyond_the_training_length_are_compared_within_pieces(lengths, trained, step):
    nats = [np.full(length, float(index)) for index, length in enumerate(lengths)]
    for piece in nats:
        piece[trained:] += step
    found = beyond_training(nats, trained, reach=20)
    long = [index for index, length in enumerate(lengths) if length >= 20]
    if not long:
        assert found is None
        return
    assert found is not None
    assert found.pieces == len(long)
    np.testing.assert_allclose(found.within, np.mean(long), atol=1e-12)
    # the difference is computed for each piece, so differences between pieces do not affect it
    np.testing.assert_allclose(found.difference, step, atol=1e-12)
    np.testing.assert_allclose(found.beyond - found.within, found.difference, atol=1e-12)
    if len(long) > 1:
        np.testing.assert_allclose(found.within_deviation, np.std(long, ddof=1), atol=1e-12)
        np.testing.assert_allclose(found.difference_deviation, 0, atol=1e-12)


def test_pieces_within_the_training_length_give_no_comparison():
    assert beyond_training([np.ones(20)], 20, reach=20) is None
    assert beyond_training([np.ones(19)], 5, reach=20) is None
