"""What a job says of itself: its frames, its files' names and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import continuation
from app.files import MOST_NAME_BYTES, safe_name
from app.keys import pitch_classes
from app.models import Models, MusicModel
from app.options import MusicOptions
from app.upload import read_upload
from tests.app import fakes
from tests.app.test_studio import REQUEST, compose
from tokenization.score import Score, Track


def test_names_and_settings_say_all_that_is_needed_to_make_it_again(calls, midi):
    upload, *_ = calls.read(str(midi))
    anew, *_ = calls.count_anew(upload, "grid")
    moved, _ = calls.move_joint(anew, 2)
    frames = calls.compose(moved, 3, 1, 0.975, 0.9, 7, None, None, REQUEST)
    row = list(frames)[-1]["variations"][0]
    assert Path(row["midi"]).name == "My-prompt_a2_grid_fake_b3_s7_T0.975_p0.90.mid"
    told = "seed 7 · asked for 3 bars after bar 2 · beats of a clock · T 0.975 · top-p 0.90 · "
    assert row["settings"].startswith(told)
    alone = compose(calls, None)[-1]["variations"][0]
    assert Path(alone["midi"]).name == "fake_b3_s7_T1.00_p0.95.mid"
    assert alone["settings"].startswith("seed 7 · asked for 3 bars · T 1.00 · ")


def test_names_and_settings_say_how_it_was_steered(calls):
    steering = (40, 0.05, " F#m ", 12.5, 0.5, "cadence")
    frames = calls.compose(None, 3, 1, 1.0, 0.95, 7, None, None, REQUEST, *steering)
    row = list(frames)[-1]["variations"][0]
    name = "fake_b3_s7_T1.00_p0.95_k40_m0.05_d12.50_r0.50_in-F-sharp-m_cadence.mid"
    assert Path(row["midi"]).name == name
    assert pitch_classes("F-sharp-m") == pitch_classes("F#m")
    told = "top-k 40 · min-p 0.05 · density 12.50 · repetition 0.50 · in F#m · cadence · "
    assert told in row["settings"]


def test_a_key_that_is_none_is_said_in_the_player(calls):
    frames = calls.compose(None, 3, 1, 1.0, 0.95, 7, None, None, REQUEST, key="H dur")
    (frame,) = frames
    assert frame["phase"] == "done"
    assert frame["alert"].startswith("The key is 'H dur', expected a note from A to G")


def test_while_the_prompt_is_read_the_player_says_so(calls, studio, monkeypatch):
    def reading(*_):
        score = Score(12, (Track.of([]),))
        yield continuation.Progress(0, 16, 0, 0, 0.0, (score,))
        yield continuation.Progress(0, 16, 0, 0, 9.0, ())

    monkeypatch.setattr(continuation, "generate_piece", reading)
    monkeypatch.setattr("app.studio.FRAME_SECONDS", 0.0)
    monkeypatch.setattr("app.studio.newest", lambda work, stop: work(stop))  # none is passed over
    frames = list(studio.compose("someone", None, MusicOptions(seed=1)))
    assert [frame.get("line") for frame in frames[:3]] == ["Starting …"] * 3
    assert "notes" not in str(frames[:3])


@pytest.mark.parametrize("letter", ["a", "ä", "楽", "\U0001d49c"])
def test_a_long_name_in_any_script_fits_the_file_system(studio, letter, tmp_path):
    path = tmp_path / f"{letter * (240 // len(letter.encode()))}.mid"
    path.write_bytes(fakes.example_midi(bars=2))
    studio.models = Models.only(
        cast("MusicModel", fakes.FakeModel(name=letter * 100, speed=5000.0))
    )
    upload = read_upload(path, 10_000, studio.models)
    frames = studio.compose("one", upload, MusicOptions(bars=1, variations=4))
    files = [row["new_midi"] for row in list(frames)[-1]["variations"]]
    assert all(Path(file).is_file() and letter * 10 in Path(file).name for file in files)


@given(name=st.text(max_size=200))
def test_a_name_in_a_file_name_is_short_and_plain(name):
    part = safe_name(name)
    assert 0 < len(part.encode()) <= MOST_NAME_BYTES
    assert not set(part) & set("/\\\0: ")
    assert part not in {".", ".."}
