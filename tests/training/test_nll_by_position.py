from __future__ import annotations

import csv

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.metrics.nll_by_position import nll_by_position, plot, write_csv


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_only_pieces_that_reach_count_and_bins_average_to_their_mean(lengths):
    nats = [np.arange(length) / 7 + index for index, length in enumerate(lengths)]
    bins = nll_by_position(nats, reach=20, width=5)
    long = [piece[:20] for piece in nats if len(piece) >= 20]
    assert len(bins) == (4 if long else 0)
    if long:
        assert {b.pieces for b in bins} == {len(long)}
        np.testing.assert_allclose(np.mean([b.nats_per_token for b in bins]), np.mean(long))
        assert (bins[0].first, bins[-1].last) == (1, 20)


def test_table_and_drawing_are_written(tmp_path):
    bins = nll_by_position([np.ones(20), np.zeros(30)], reach=20, width=5)
    write_csv(bins, tmp_path / "a.csv")
    plot({"model": bins}, tmp_path / "a.png", 10)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [float(row["nats_per_token"]) for row in rows] == [0.5] * 4
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2
