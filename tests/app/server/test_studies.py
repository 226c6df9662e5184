"""Studies that are made for the page, in a process of their own."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.batch.run import make_batch
from app.batch.study import (
    ModelConfig,
    RealConfig,
    ShuffledNotesConfig,
    StudyConfig,
    options_of,
    read_study,
)
from app.compose.models import ComputeOptions, Models
from app.errors import BusyError, CommandError
from app.server.store import SessionFolders
from app.server.studies import (
    CONFIG,
    MOST_CLIPS,
    Studies,
    StudyFiles,
    StudyProgress,
    check_size,
    clips_of,
)
from tests.support.batches import contents

STUDY = StudyConfig(
    name="On the page",
    prompts=(Path("prompts/song.mid"),),
    last_bar=2,
    bars=1,
    audio=None,
    conditions=(ModelConfig(name="small", model="small"), RealConfig(), ShuffledNotesConfig()),
)


@pytest.fixture
def models(folder):
    return Models(folder / "small", ComputeOptions(backend="torch"))


@pytest.fixture
def studies(models, folder):
    return Studies(models, SessionFolders(folder / "out", keep=False))


@pytest.fixture
def prompts(folder):
    return [("song.mid", folder / "prompt.mid")]


def test_the_zip_contains_what_the_command_makes_of_its_configuration(
    studies, models, prompts, folder
):
    assert studies.model_names == ("small",)
    *steps, files = studies.make("me", STUDY, prompts)
    assert isinstance(files, StudyFiles)
    assert any(isinstance(step, StudyProgress) and step.total == 3 for step in steps)
    assert (files.clips, files.zip.name) == (3, "On-the-page.zip")
    assert list(files.zip.parent.iterdir()) == [files.zip]
    with zipfile.ZipFile(files.zip) as archive:
        archive.extractall(folder / "unpacked")
    config = folder / "unpacked" / CONFIG
    assert config.read_text("utf-8") == files.config
    again = options_of(read_study(config), config.parent, folder / "again", loaded=("small",))
    list(make_batch(again, models))
    made = contents(folder / "unpacked" / "study")
    assert made == contents(folder / "again")
    assert {"key.csv", "manifest.csv", "study.yaml"} < set(made)


@pytest.mark.slow
def test_a_stopped_study_leaves_nothing_and_a_session_has_one_at_a_time(studies, prompts, folder):
    steps = studies.make("me", replace(STUDY, repetitions=20), prompts)
    assert isinstance(next(steps), StudyProgress)
    with pytest.raises(BusyError, match="A study is already being made"):
        next(studies.make("me", STUDY, prompts))
    studies.stop("me")
    assert not any(isinstance(step, StudyFiles) for step in steps)
    assert list((folder / "out").glob("*/*")) == []
    studies.stop("me")  # nothing is running


@pytest.mark.slow
def test_a_prompt_that_cannot_be_used_is_named_without_paths(studies, prompts, folder):
    with pytest.raises(CommandError) as refused:
        list(studies.make("me", replace(STUDY, bars=30), prompts))
    assert str(refused.value).startswith("song.mid: the file has ")
    assert str(folder) not in str(refused.value)
    assert list((folder / "out").glob("*/*")) == []


def test_studies_are_limited_in_time_and_size(models, prompts, folder):
    limited = Studies(models, SessionFolders(folder / "out", keep=False), 0.0)
    with pytest.raises(CommandError, match="stopped after 0 s, the time limit of this page"):
        list(limited.make("me", STUDY, prompts))
    check_size(STUDY, 12)
    with pytest.raises(CommandError, match="Found 13 prompts, expected at most 12; choose fewer"):
        check_size(STUDY, 13)
    large = replace(STUDY, repetitions=10)
    assert [clips_of(large, prompts) for prompts in (0, 3)] == [21, 63]
    with pytest.raises(CommandError, match=f"63 clips, expected at most {MOST_CLIPS}; choose few"):
        check_size(large, 3)
