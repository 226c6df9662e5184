from __future__ import annotations

import json
import sys
import zipfile

import pytest

from benchmarks.tokenization import bench_chords


def test_songs_are_at_most_as_many_as_asked_for(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "pop909.zip", "w") as archive:
        songs = {"validation": [f"{number:03}" for number in range(19)]}
        archive.writestr("pop909/splits.json", json.dumps(songs))
    taken = []
    spread = bench_chords.spread

    def record(songs, at_most):
        taken.extend(spread(songs, at_most))
        raise InterruptedError

    monkeypatch.setattr(bench_chords, "spread", record)
    monkeypatch.setattr(sys, "argv", ["bench_chords", str(tmp_path), "--songs", "10"])
    with pytest.raises(InterruptedError):
        bench_chords.main()
    assert 0 < len(taken) <= 10
