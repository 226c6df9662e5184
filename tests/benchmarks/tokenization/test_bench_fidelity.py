from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tokenization import bench_fidelity
from benchmarks.tokenization.bench_fidelity import GRIDS
from benchmarks.tokenization.midi_corpora import spread
from tokenization.midi import write_midi
from tokenization.score import Score, Tempo, Track


@given(st.lists(st.integers(), max_size=60), st.integers(1, 70))
def test_no_more_than_wanted_are_kept_and_the_first_of_them(items, at_most):
    kept = spread(items, at_most)
    assert len(kept) <= at_most
    assert kept[:1] == items[:1]
    assert at_most < len(items) or kept == items


@pytest.mark.parametrize("is_drum", [True, False])
def test_a_file_without_notes_is_left_out(tmp_path, capsys, is_drum):
    drums = Track(np.array([(0, 480, 36, 64)]), is_drum=is_drum)
    (tmp_path / "empty.mid").write_bytes(write_midi(Score(480, (), (Tempo(0, 90.0),))))
    (tmp_path / "other.mid").write_bytes(write_midi(Score(480, (drums,))))
    bench_fidelity.main([str(tmp_path)])
    found = capsys.readouterr()
    assert found.err.startswith(f"left out: {tmp_path / 'empty.mid'}")
    rows = list(csv.DictReader(found.out.splitlines()[2:]))
    assert [(row["files"], row["notes"]) for row in rows] == [("1", "1")] * len(GRIDS)
    assert all(math.isnan(float(row["duration_ms_mean"])) == is_drum for row in rows)
