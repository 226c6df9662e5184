"""Folders that a page serves, and folders that it removes or keeps."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

from app.web.serving import Serving, launch


def test_only_a_folder_of_this_run_is_served(model, tmp_path, monkeypatch):
    served = []

    def build(_, folder, **how):
        assert folder.is_dir()
        served.append([folder, how["keep"]])
        return SimpleNamespace()

    def interrupted():
        served[-1].append("waited")
        raise KeyboardInterrupt

    @contextmanager
    def opened(_, folder, __):
        assert folder == served[-1][0]
        yield "http://here"

    monkeypatch.setattr("app.web.serving.build_page", build)
    monkeypatch.setattr("app.web.serving.open_page", opened)
    monkeypatch.setattr("app.web.serving.wait_for_interruption", interrupted)
    mine = tmp_path / "deep" / "music"
    for folder in (mine, mine, None):
        serving = Serving(output_folder=folder)
        launch(model, serving, announce=lambda address: served[-1].append(address))
    one, other, temporary = (row.pop(0) for row in served)
    assert served == [[keep, "http://here", "waited"] for keep in (True, True, False)]
    assert one.parent == other.parent == mine
    assert one != other
    assert not temporary.exists()
    assert not list(mine.iterdir())  # no music was made
