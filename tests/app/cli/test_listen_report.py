"""The command `relpe listen-report`, with simulated listeners."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from app.cli.main import main
from app.listening import simulate
from app.listening.answers import CREATE, DATABASE, TABLE, read_answers, save_answer, write_answers
from tests.support.blind_studies import write_study
from tests.support.commands import help_without_engine

if TYPE_CHECKING:
    from pathlib import Path

EVIL = 'a<b>&"c"'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with the answers of simulated listeners, one of whom is careless."""
    folder = tmp_path_factory.mktemp("study") / "study"
    write_study(folder, (EVIL, "real", "shuffled notes"), prompts=3, repetitions=2)
    given = ["--listeners", "8", "--careless", "1", "--quality", "real=1"]
    assert simulate.main([str(folder), *given]) == 0
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "study")


def report(folder: Path, *extra: str) -> int:
    draws = [] if "--draws" in extra else ["--draws", "100"]
    return main(["listen-report", str(folder), *draws, *extra])


def test_report_of_a_study(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(study) == 0
    said = capsys.readouterr().out
    assert "All listeners are simulated: these results say nothing about the music." in said
    assert "real was rated highest" in said
    assert "1 of 8 listeners was excluded in the screening" in said
    assert str(study / "report" / "report.html") in said
    assert sorted(path.name for path in (study / "report").iterdir()) == [
        "report.html",
        "results.csv",
        "results.json",
    ]
    told = json.loads((study / "report" / "results.json").read_text("utf-8"))
    assert told["listeners"] == 7
    assert [one["listener"] for one in told["screening"] if one["reasons"]] == ["simulated-008"]
    assert told["preferences"]["strengths"][0]["condition"] == "real"
    assert len(told["ratings"]) == 5
    assert {one["condition"] for one in told["best_of"]} == {EVIL, "shuffled notes"}
    assert {one["measure"] for one in told["mixed_models"]} == {"rating", "preference"}
    with (study / "report" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    (one,) = (
        r
        for r in rows
        if (r["measure"], r["question"]) == ("mean", "overall") and r["condition"] == "real"
    )
    mean = next(m for m in told["ratings"][0]["means"] if m["condition"] == "real")["mean"]
    assert float(one["estimate"]) == pytest.approx(mean["value"], rel=1e-5)
    assert float(one["low"]) == pytest.approx(mean["low"], rel=1e-5)


class _Page(HTMLParser):
    """Checks that all elements are closed, and collects what a page names."""

    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(study: Path) -> None:
    assert report(study) == 0
    text = (study / "report" / "report.html").read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not page.names & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|src=|href=", text)
    assert EVIL not in text
    assert "a&lt;b&gt;&amp;&quot;c&quot;" in text
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 12
    for plot in plots:
        root = ElementTree.fromstring(plot)
        title, description = root[0], root[1]
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
        assert title.text
        assert description.text


def test_same_answers_same_bytes_from_database_and_table_in_any_order(
    study: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(study, tmp_path / "other")
    answers = read_answers(study)
    write_answers(study / TABLE, answers[::-1])
    (other / TABLE).unlink()
    with closing(sqlite3.connect(other / DATABASE)) as connection, connection:
        connection.execute(CREATE)
        for answer in answers:
            save_answer(connection, answer)
    assert report(study) == report(other) == 0
    for name in ("report.html", "results.csv", "results.json"):
        assert (study / "report" / name).read_bytes() == (other / "report" / name).read_bytes()


def test_options(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lax = ["--least-attention", "0", "--most-difference", "4", "--least-heard", "0"]
    lax += ["--least-agreement", "0", "--most-anchor-wins", "1", "--weigh-by-confidence", "--json"]
    assert report(study, *lax, "--seed", "3", "--output", str(tmp_path / "a" / "b")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["listeners"] == 8
    assert told["options"]["weigh_by_confidence"] is True
    assert told["options"]["seed"] == 3
    assert (tmp_path / "a" / "b" / "report.html").is_file()
    assert report(study, "--anchor", "real", "--json") == 2
    assert "excluded" in capsys.readouterr().err


def kept(study: Path, keep) -> None:
    write_answers(study / TABLE, [answer for answer in read_answers(study) if keep(answer)])


def _without_key(study: Path) -> None:
    (study / "key.csv").unlink()


def _without_answers(study: Path) -> None:
    (study / TABLE).unlink()


def _empty_answers(study: Path) -> None:
    write_answers(study / TABLE, [])


def _only_practice(study: Path) -> None:
    kept(study, lambda answer: answer.kind == "training")


def _broken_answers(study: Path) -> None:
    (study / TABLE).write_text("nothing\n1\n")


def _one_listener(study: Path) -> None:
    kept(study, lambda answer: answer.listener == "simulated-001")


def _one_condition(study: Path) -> None:
    with (study / "key.csv").open(encoding="utf-8") as file:
        real = {row["file"] for row in csv.DictReader(file) if row["condition"] == "real"}
    kept(study, lambda answer: answer.first in real and answer.kind == "rating")


def _unknown_clips(study: Path) -> None:
    write_study(study, ("other",), prompts=1)


def _broken_study(study: Path) -> None:
    (study / "study.yaml").write_text("name: [")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_key, "key.csv: this file is missing"),
        (_without_answers, "found neither answers.sqlite nor answers.csv"),
        (_empty_answers, "found no answers other than those of practice trials"),
        (_only_practice, "found no answers other than those of practice trials"),
        (_broken_answers, "these are not the answers of a listening test"),
        (_one_listener, "found answers of one listener (simulated-001), expected at least two"),
        (_one_condition, "found answers about one condition (real), expected at least two"),
        (_unknown_clips, "is not in manifest.csv"),
        (_broken_study, "study.yaml: this is not the study of relpe batch"),
    ],
)
def test_what_cannot_be_reported_gets_one_sentence(
    study: Path, capsys: pytest.CaptureFixture[str], damage, said: str
) -> None:
    damage(study)
    assert report(study) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (study / "report").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--least-attention", "2"], "--least-attention is 2, expected 0 to 1"),
        (["--most-difference", "nan"], "--most-difference is nan, expected 0 to 4"),
        (["--points-of-interest", "0"], "--points-of-interest is 0, expected"),
        (["--preference-of-interest", "0.5"], "--preference-of-interest is 0.5, expected above"),
        (["--draws", "1"], "--draws is 1, expected 100 to 100,000"),
        (["--seed", "-1"], "--seed is -1, expected 0 or more"),
        (["--anchor", "x"], "--anchor x: no such condition, expected one of"),
        (["--anchor", "real", "--most-anchor-wins", "0"], "8 of 8 listeners are excluded"),
    ],
)
def test_values_that_cannot_be_used_get_one_sentence(
    study: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert report(study, *options) == 2
    said_now = capsys.readouterr().err
    assert said in said_now
    assert said_now.count("\n") == 1


def test_no_folder_and_an_output_that_is_a_file(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(study / "nowhere") == 2
    assert "nowhere: there is no such folder" in capsys.readouterr().err
    assert report(study, "--output", str(study / TABLE)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_too_few_listeners_are_said_to_be_too_few(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {f"simulated-{number:03d}" for number in (1, 2, 3)}
    write_answers(study / TABLE, [one for one in read_answers(study) if one.listener in few])
    assert report(study) == 0
    said = capsys.readouterr().out
    too_few = (
        "- 3 listeners are too few to find any difference: with 3 pairs of conditions, the test "
        "needs at least 7."
    )
    assert said.count(too_few) == 2  # by preferences, and by ratings
    assert "No difference between" not in said
    assert "would raise this" not in said


def test_power_is_told_with_its_size(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [one for one in read_answers(study) if one.listener != "simulated-008"]
    swapped = {"first": "second", "second": "first"}
    for at, one in enumerate(answers):  # no condition is better
        answer = str(at % 5 + 1) if one.kind == "rating" else one.answer
        if one.kind == "preference" and one.trial % 2:
            answer = swapped[answer]
        answers[at] = replace(one, answer=answer)
    write_answers(study / TABLE, answers)
    everyone = ["--least-attention", "0", "--least-agreement", "0", "--most-difference", "4"]
    sizes = ["--preference-of-interest", "0.7", "--points-of-interest", "1"]
    assert report(study, *everyone, "--most-anchor-wins", "1", *sizes) == 0
    said = capsys.readouterr().out
    assert re.search(r"was shown \(.*\)\. A preference of 70% would have been found", said)
    assert re.search(r"was shown \(.* points, .*\)\. A difference of 1 point would have", said)
    assert "Brackets contain the estimate for the condition named first" in said


def test_answers_of_one_kind(study: Path) -> None:
    answers = read_answers(study)
    for kind in ("rating", "preference"):
        write_answers(study / TABLE, [answer for answer in answers if answer.kind == kind])
        assert report(study) == 0
        told = json.loads((study / "report" / "results.json").read_text("utf-8"))
        assert (told["preferences"] is None) == (kind == "rating")
        assert bool(told["ratings"]) == (kind == "rating")


def test_help_does_not_load_the_engine() -> None:
    assert "--least-attention" in help_without_engine("listen-report")
