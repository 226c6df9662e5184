"""The command `relpe listen-report`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from app.cli.main import main
from app.listening.answers import CREATE, DATABASE, TABLE, read_answers, save_answer, write_answers
from tests.support.blind_studies import answer_all, write_study

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study with the answers of twelve listeners, one of whom heard little."""
    folder = tmp_path_factory.mktemp("study") / "study"
    write_study(folder, ("piano", "real", "shuffled notes"), prompts=3)
    answer_all(folder, {"real": 1.0, "shuffled notes": -1.5})
    return folder


@pytest.fixture
def study(made, tmp_path):
    return shutil.copytree(made, tmp_path / "study")


def report(folder: Path, *extra: str) -> int:
    draws = [] if "--draws" in extra else ["--draws", "100"]
    return main(["listen-report", str(folder), *draws, *extra])


def test_the_same_answers_give_the_same_report_from_database_and_table_in_any_order(
    study, tmp_path, capsys
):
    other = shutil.copytree(study, tmp_path / "other")
    answers = read_answers(study)
    write_answers(study / TABLE, answers[::-1])
    (other / TABLE).unlink()
    with closing(sqlite3.connect(other / DATABASE)) as connection, connection:
        connection.execute(CREATE)
        for answer in answers:
            save_answer(connection, answer)
    assert report(other) == 0
    capsys.readouterr()
    assert report(study) == 0
    said = capsys.readouterr().out
    assert "real was rated highest" in said
    assert "1 of 12 listeners was excluded in the screening" in said
    assert str(study / "report" / "report.html") in said
    names = sorted(path.name for path in (study / "report").iterdir())
    assert names == ["report.html", "results.csv", "results.json"]
    for name in names:
        assert (study / "report" / name).read_bytes() == (other / "report" / name).read_bytes()
    told = json.loads((study / "report" / "results.json").read_text("utf-8"))
    assert told["listeners"] == 11
    excluded = [one["listener"] for one in told["screening"] if one["reasons"]]
    assert excluded == ["listener-12"]


def test_options(study, tmp_path, capsys):
    lax = ["--least-attention", "0", "--most-difference", "4", "--least-heard", "0"]
    lax += ["--least-agreement", "0", "--most-anchor-wins", "1", "--weigh-by-confidence", "--json"]
    sizes = ["--preference-of-interest", "0.7", "--points-of-interest", "1", "--seed", "3"]
    assert report(study, *lax, *sizes, "--output", str(tmp_path / "a" / "b")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["listeners"] == 12
    assert told["options"]["weigh_by_confidence"] is True
    assert told["options"]["seed"] == 3
    assert told["options"]["draws"] == 100
    assert any("A preference of 70% would have been found" in text for text in told["findings"])
    assert told["ratings"][0]["comparisons"][0]["power"]["of_interest"] == 1.0
    assert (tmp_path / "a" / "b" / "report.html").is_file()


def test_what_cannot_be_reported_gets_one_sentence(study, capsys):
    def refused(said):
        assert report(study) == 2
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
        assert not (study / "report").exists()

    answers = read_answers(study)
    write_answers(study / TABLE, [answer for answer in answers if answer.kind == "training"])
    refused("found no answers other than those of practice trials")
    (study / TABLE).unlink()
    refused("found neither answers.sqlite nor answers.csv")
    write_answers(study / TABLE, answers)
    (study / "study.yaml").write_text("name: [")
    refused("study.yaml: this is not the study of relpe batch")
    write_study(study, ("other",), prompts=1)
    refused("is not in manifest.csv")
    (study / "key.csv").unlink()
    refused("key.csv: this file is missing")


def test_values_that_cannot_be_used_get_one_sentence(made, capsys):
    for options, said in (
        (["--least-attention", "2"], "--least-attention is 2, expected 0 to 1"),
        (["--draws", "1"], "--draws is 1, expected 100 to 100,000"),
        (["--anchor", "x"], "--anchor x: no such condition, expected one of"),
        (["--anchor", "real", "--most-anchor-wins", "0"], "12 of 12 listeners are excluded"),
        (["--output", str(made / TABLE)], TABLE),
    ):
        assert report(made, *options) == 2
        message = capsys.readouterr().err
        assert said in message
        assert message.count("\n") == 1
    assert report(made / "nowhere") == 2
    assert "nowhere: there is no such folder" in capsys.readouterr().err
