"""Music of a job that is heard while it is written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile

from app.audio.synth.soundfont import SoundError
from app.compose.options import MusicOptions
from app.server import job as jobs
from app.server.uploads import read_upload

ME = "someone"


def heard(studio, upload=None, *, listens=True, **how: Any) -> Any:
    options = replace(MusicOptions(bars=3, seed=7), **how)
    return list(studio.compose(ME, upload, options, listens=listens))


def read(studio, midi):
    return read_upload(midi, 100_000, studio.models)


def test_the_parts_of_finished_bars_follow_each_other_from_the_splice_to_the_end(studio, midi):
    upload = read(studio, midi)
    frames = heard(studio, upload)
    lives = [frame["live"] for frame in frames if "live" in frame]
    counts = [len(live["parts"]) for live in lives]
    assert counts == sorted(counts)
    assert counts[-1] >= 3
    assert lives[-1]["whole"]
    assert lives[-1]["starts"]
    assert frames[-1]["live"]["whole"]  # a page that missed the frames before can still play it
    parts = lives[-1]["parts"]
    prompt = upload.prompt
    at = float(prompt.score.seconds_at(prompt.splice_ticks))
    for path, begin, seconds in parts:
        assert begin == pytest.approx(at, abs=1e-4)
        assert soundfile.info(path).duration == pytest.approx(seconds, abs=1e-4)
        at = begin + seconds
    first = next(frame for frame in frames if frame.get("live", {"parts": ()})["parts"])
    assert first["phase"] == "composing"  # before the music is finished
    folder = Path(frames[-1]["variations"][0]["midi"]).parent
    assert Path(parts[0][0]).is_relative_to(folder)
    studio.leave(ME)
    assert not Path(parts[0][0]).exists()


def test_a_piece_from_nothing_is_heard_from_its_start_if_that_is_asked(studio):
    lives = [frame["live"] for frame in heard(studio) if "live" in frame]
    assert lives[-1]["parts"][0][1] == 0
    shutil.rmtree(studio.folders.root)
    for how in ({"listens": False}, {"takes": 2}):
        assert not any("live" in frame for frame in heard(studio, **how))
        assert not list(studio.folders.root.rglob(".*"))


def test_without_the_first_sound_the_music_is_made_as_always(studio, midi, monkeypatch, caplog):
    def fail(*_: object) -> bool:
        raise SoundError("the SoundFont is broken")

    monkeypatch.setattr(jobs.GrowingSound, "add", fail)
    frames = heard(studio, read(studio, midi))
    assert frames[-1]["phase"] == "done"
    assert frames[-1]["variations"][0]["sound"] == "ready"
    assert "cannot be heard" in caplog.text


def test_a_job_that_is_closed_leaves_no_folder(studio, midi):
    steps = studio.compose(ME, read(studio, midi), MusicOptions(bars=40), listens=True)
    for frame in steps:
        if frame.get("live", {"parts": ()})["parts"]:
            break
    (folder,) = studio.folders.root.glob("*/*")
    steps.close()
    assert not folder.exists()
