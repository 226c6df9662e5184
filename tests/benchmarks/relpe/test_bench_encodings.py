from __future__ import annotations

import csv
import sys

import pytest
import torch

from benchmarks.relpe import bench_encodings
from benchmarks.relpe.bench_encodings import differences, straightness
from benchmarks.relpe.encoding_cases import CASES, Case, Shape

SMALL = Shape(length=90, heads=2, features=4, draws=4, span=16, taps=8, sines=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.mode}")
def test_what_is_faster_is_equal(case: Case):
    pair = case.pair(SMALL, torch.float64)
    found = case.call(pair, pair.ours, 3)
    assert all(x.isfinite().all() for x in found)
    single = case.pair(SMALL, torch.float32).leaves  # with the same numbers
    assert all(torch.equal(a.double(), b) for a, b in zip(single, pair.leaves, strict=True))
    if pair.checked is not None:
        assert differences(found, case.call(pair, pair.checked, 3)) < 1e-10
    if pair.naive is not None:  # output of the same shapes, also with its own noise
        drawn = case.call(pair, pair.naive, 3)
        assert [x.shape for x in drawn] == [x.shape for x in found]


def test_rows_and_targets(monkeypatch, capsys):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(bench_encodings, "peak", lambda case, shape, method: 2.0)
    monkeypatch.setattr(bench_encodings, "Shape", lambda length=90: SMALL._replace(length=length))
    monkeypatch.setattr(bench_encodings, "LENGTHS", (40, 80, 160))
    monkeypatch.setattr(bench_encodings, "SPANS", (8, 16))
    monkeypatch.setattr(bench_encodings, "SPAN_LENGTH", 90)
    arguments = ["bench_encodings", "--repeats", "1", "--only", "forward", "--table"]
    monkeypatch.setattr(sys, "argv", arguments)
    bench_encodings.main()
    lines = capsys.readouterr().out.splitlines()
    rows = list(csv.DictReader(line for line in lines if line[0] not in "#|"))
    windowed = [row for row in rows if row["case"] == "windowed" and row["method"] == "ours"]
    assert [int(row["length"]) for row in windowed] == [40, 80, 160, 90, 90]
    assert [int(row["span"]) for row in windowed] == [16, 16, 16, 8, 16]
    assert all(float(row["cpu_ms_1_thread"]) > 0 for row in rows)
    targets = [line for line in lines if line.startswith("# target ")]
    assert all(line.endswith("reached") for line in targets)
    assert sum("sine_spe, forward" in line for line in targets) == 2
    assert sum("windowed" in line for line in targets) == 2
    assert sum(line.startswith("| sine_spe") for line in lines) == 2


def test_straightness():
    assert straightness([1, 2, 4], [3, 5, 9]) == pytest.approx(1)
    assert straightness([1, 2, 3, 4], [1, 4, 9, 16]) < 0.99
