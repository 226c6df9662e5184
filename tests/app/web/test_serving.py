"""Folders that a page serves, and folders that it removes or keeps."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from types import SimpleNamespace

from app.files import RAW_SOUND
from app.server.temporary import STARTING_SECONDS, running
from app.web.serving import Serving, launch


def test_raw_sound_is_removed_at_the_end_and_music_is_kept(tmp_path, monkeypatch):
    """Also removes raw sound of a page that was killed, but not of a page that is running."""

    def sound_of(run, session="b" * 16):
        raw = run / session / "001" / f"{RAW_SOUND}x"
        raw.mkdir(parents=True)
        (raw / "whole").write_bytes(b"1")
        return raw

    def build(_, folder, **__):
        (sound_of(folder).parent / "song.mid").write_bytes(b"MThd")
        return SimpleNamespace()

    @contextmanager
    def opened(*_):
        yield "http://here"

    monkeypatch.setattr("app.web.serving.build_page", build)
    monkeypatch.setattr("app.web.serving.open_page", opened)
    monkeypatch.setattr("app.web.serving.wait_for_interruption", lambda: None)
    runs = [tmp_path / f"2026-01-0{day}-abc" for day in (1, 2)]
    sounds = [*map(sound_of, runs), sound_of(runs[0], "my music")]
    before = time.time() - STARTING_SECONDS - 60
    with running(runs[1]):
        for run in runs:
            os.utime(run, (before, before))
        launch(None, Serving(output_folder=tmp_path))  # pyright: ignore[reportArgumentType]
    assert [sound.exists() for sound in sounds] == [False, True, True]
    (song,) = tmp_path.rglob("song.mid")
    assert list(song.parent.iterdir()) == [song]


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
