# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""Example pieces of the page."""

from __future__ import annotations

import pytest

from app.player.frames import pack_tracks
from app.web.examples import EXAMPLES, example_file, finished_example, finished_file
from tokenization.midi import read_midi


def test_examples_exist_and_some_are_finished():
    for example in EXAMPLES:
        assert example_file(example.name).read_bytes().startswith(b"MThd")
    for name in ("ballad", "groove"):
        frame = finished_example(name)
        assert (frame["phase"], frame["example"]) == ("empty", True)
        assert frame["prompt"]["splice"] < frame["timeline"]["end"]
        assert frame["prompt"]["tracks"]
        assert frame["prompt"]["splice"] > 0
        assert all(track["notes"] for track in frame["variations"][0]["tracks"])
        path = finished_file(frame["job"])
        assert path is not None
        assert path == example_file(f"{name}.continued")
        heard = {track["name"]: track["id"] for track in pack_tracks(read_midi(path.read_bytes()))}
        shown = (*frame["prompt"]["tracks"], *frame["variations"][0]["tracks"])
        assert heard == {track["name"]: track["id"] for track in shown}
    with pytest.raises(FileNotFoundError, match="no example nothing"):
        example_file("nothing")


def test_a_page_without_its_examples_is_empty(monkeypatch, tmp_path):
    monkeypatch.setattr("app.web.examples._PLACES", (tmp_path,))
    finished_example.cache_clear()
    assert finished_example("ballad") == {"job": "", "phase": "empty", "variations": []}
    finished_example.cache_clear()
