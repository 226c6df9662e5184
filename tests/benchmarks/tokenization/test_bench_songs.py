from __future__ import annotations

import json
import sys
import zipfile

import pytest

from benchmarks.tokenization import bench_chords


class EnoughError(Exception):
    """Ends a benchmark after it has chosen its songs."""


@pytest.mark.parametrize("benchmark", [bench_chords])
def test_songs_are_at_most_as_many_as_asked_for(benchmark, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "pop909.zip", "w") as archive:
        songs = {"validation": [f"{number:03}" for number in range(19)]}
        archive.writestr("pop909/splits.json", json.dumps(songs))
    taken = []
    choose = benchmark.spread

    def chosen(songs, at_most):
        taken.extend(choose(songs, at_most))
        raise EnoughError

    monkeypatch.setattr(benchmark, "spread", chosen)
    monkeypatch.setattr(sys, "argv", [benchmark.__name__, str(tmp_path), "--songs", "10"])
    with pytest.raises(EnoughError):
        benchmark.main()
    assert 0 < len(taken) <= 10
