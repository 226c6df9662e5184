"""The form of a study, as configuration and HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.batch.study import as_yaml, read_study
from app.errors import CommandError
from app.web.tabs.study import (
    FIELDS,
    MOST_BARS,
    MOST_CLIP_BARS,
    MOST_REPETITIONS,
    counted,
    finished,
    progress,
    study_of,
)

FORM = {
    "name": "A study",
    "last_bar": 4,
    "models": ["piano"],
    "moods": ["Safe", "Balanced"],
    "real": ["Real continuation", "Shuffled bars"],
    "bars": 8,
    "repetitions": 2,
    "clip": "tail",
    "clip_bars": 4,
    "audio": "WAV",
    "seed": 1,
}
FILES = [Path("/uploads/1/a song.mid"), Path("/uploads/2/A song.mid")]


def test_a_form_is_the_configuration_that_the_command_reads(tmp_path):
    assert tuple(FORM) == FIELDS
    study, names = study_of(FORM, FILES)
    assert names == ["a-song.mid", "A-song-2.mid"]
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(study))
    assert read_study(path) == study
    assert [one.name for one in study.conditions] == [
        *("piano, safe", "piano, balanced", "real", "shuffled bars")
    ]
    assert [str(prompt) for prompt in study.prompts] == [f"prompts/{name}" for name in names]


def test_pieces_from_nothing_need_no_files():
    study, names = study_of(FORM | {"last_bar": 0, "real": [], "moods": ["Balanced"]}, [])
    assert (names, study.prompts, study.last_bar) == ([], (), None)
    assert [one.name for one in study.conditions] == ["piano"]


def test_a_value_that_cannot_be_used_is_named():
    for change, error in (
        ({"models": [], "real": []}, "Choose at least one model"),
        ({"moods": [], "real": []}, "Choose at least one model"),
        ({"last_bar": None}, "Enter the last bar of the prompts: 'Real continuation' is made"),
        ({"name": " "}, "name is empty, expected the title"),
        ({"seed": None}, "Seed is empty; enter a number"),
        ({"bars": MOST_BARS + 1}, "Length is 33, expected at most 32"),
        ({"repetitions": MOST_REPETITIONS + 1}, "Repetitions is 11, expected at most 10"),
        ({"clip_bars": MOST_CLIP_BARS + 1}, "Bars of the prompt is 9, expected at most 8"),
    ):
        with pytest.raises(CommandError, match=error):
            study_of(FORM | change, FILES)
    with pytest.raises(CommandError, match="Upload the prompts"):
        study_of(FORM, [])
    most = {"bars": MOST_BARS, "repetitions": MOST_REPETITIONS, "clip_bars": MOST_CLIP_BARS}
    assert study_of(FORM | most, FILES)[0].bars == MOST_BARS


def test_texts_are_escaped():
    assert "<i>" not in progress(1, 2, "<i>") + finished(Path("/<i>.zip"), 1, 1, "<i>")
    assert "1 of 2 clips" in progress(1.7, 2, "generating")
    assert counted(1) == "<p><b>1</b> clip</p>"
    assert "more than the 60" in counted(61)
