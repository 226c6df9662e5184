from __future__ import annotations

import csv

import torch

from benchmarks.app import bench_batch
from tests.support.small_models import save_tiny_model


def test_a_row_for_each_width(tmp_path, monkeypatch, capsys):
    save_tiny_model(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    bench_batch.main(model=str(tmp_path), clips=2, bars=1, widths=(2, 1))
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert [(row["width"], row["clips"]) for row in rows] == [("1", "2"), ("2", "2")]
    assert all(float(row["clips_per_minute"]) > 0 < float(row["peak_MB"]) for row in rows)
