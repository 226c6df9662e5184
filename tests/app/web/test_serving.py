"""What a page leaves on the disk when it ends."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

from app.files import RAW_SOUND
from app.server.store import KEPT_SECONDS
from app.web.serving import Serving, launch


def test_raw_sound_goes_at_the_end_and_the_music_stays(tmp_path, monkeypatch):
    """Also that of a run that was killed long ago; not that of another that is under way."""

    def build(_, folder, **__):
        job = folder / ("a" * 16) / "001"
        (job / f"{RAW_SOUND}x").mkdir(parents=True)
        (job / f"{RAW_SOUND}x" / "whole").write_bytes(b"1")
        (job / "song.mid").write_bytes(b"MThd")
        return SimpleNamespace(block_thread=lambda: None)

    monkeypatch.setattr("app.web.serving.build_page", build)
    monkeypatch.setattr("app.web.serving.open_page", lambda *_: "http://here")
    raw = {}
    for day, age in ((1, KEPT_SECONDS + 60), (2, 60)):
        raw[day] = tmp_path / f"2026-01-0{day}-abc" / ("b" * 16) / "001" / f"{RAW_SOUND}x"
        raw[day].mkdir(parents=True)
        os.utime(raw[day], (time.time() - age, time.time() - age))
    mine = tmp_path / "2026-01-01-abc" / "my music" / "001" / f"{RAW_SOUND}x"
    mine.mkdir(parents=True)
    os.utime(mine, (0, 0))
    launch(None, Serving(output_folder=tmp_path))  # pyright: ignore[reportArgumentType]
    assert [raw[1].exists(), raw[2].exists(), mine.exists()] == [False, True, True]
    (song,) = tmp_path.rglob("song.mid")
    assert list(song.parent.iterdir()) == [song]
