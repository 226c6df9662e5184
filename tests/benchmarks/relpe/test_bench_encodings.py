from __future__ import annotations

import csv

import pytest
import torch

from benchmarks.relpe import bench_encodings
from benchmarks.relpe.encoding_cases import CASES, Case, Shape

SMALL = Shape(length=90, heads=2, features=4, draws=4, span=16, taps=8, sines=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.mode}")
def test_what_is_faster_is_equal(case: Case):
    pair = case.pair(SMALL, torch.float64)
    outputs = case.call(pair, pair.ours, 3)
    assert all(x.isfinite().all() for x in outputs)
    single = case.pair(SMALL, torch.float32).leaves  # with the same numbers
    assert all(torch.equal(a.double(), b) for a, b in zip(single, pair.leaves, strict=True))
    assert pair.checked is not None
    for ours, naive in zip(outputs, case.call(pair, pair.checked, 3), strict=True):
        assert (ours - naive).abs().max() < 1e-10 * naive.abs().max()
    assert pair.naive is not None  # output of the same shapes, also with its own noise
    assert [x.shape for x in case.call(pair, pair.naive, 3)] == [x.shape for x in outputs]


def test_a_row_for_each_method_and_shape(monkeypatch, capsys):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(bench_encodings, "Shape", lambda length=90: SMALL._replace(length=length))
    monkeypatch.setattr(bench_encodings, "LENGTHS", (40, 80))
    monkeypatch.setattr(bench_encodings, "SPANS", (8, 16))
    monkeypatch.setattr(bench_encodings, "SPAN_LENGTH", 90)
    monkeypatch.setattr("benchmarks.relpe.comparison.in_new_process", lambda *arguments: 2.0)
    bench_encodings.main(length=90, repeats=1, threads=0, only="windowed, forward")
    lines = capsys.readouterr().out.splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    sizes = [(row["length"], row["span"]) for row in rows if row["method"] == "ours"]
    assert sizes == [("40", "16"), ("80", "16"), ("90", "8"), ("90", "16")]
    assert all(float(row["cpu_ms_1_thread"]) > 0 for row in rows)
