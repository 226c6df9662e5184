"""Figures as data, and the tables that are made of them."""

from __future__ import annotations

import re
import shlex

import pytest

from docs.build import FOLDER, TABLE
from docs.results import plot_of, read_figures, table_of, tables
from tests.support.options import OPTIONS
from tests.support.paths import ROOT

LINE = (
    '{"what": ["t", "%s", "%s"], "value": %s, "unit": "%s", "error": %s, "command": "run", '
    '"commit": "abc", "machine": "here"}\n'
)

BARS = [("x < y", "1", "null"), ("z", "2.5", "0.5")]


def test_a_table_has_values_as_they_were_written(tmp_path):
    lines = [
        LINE % ("one", "ms", "0.10", "ms", "0.02"),
        LINE % ("one", "share", "[1, 0.50]", "%", "[null, 0.3]"),
        LINE % ("two", "ms", '"not run"', "ms", "null"),
    ]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (figures,) = tables(read_figures(tmp_path)).values()
    head, _, *rows = table_of(figures).splitlines()
    assert head == "|  | ms, ms | share, % |"
    assert rows[:2] == ["| one | 0.10 ± 0.02 | 1, 0.50 ± 0.3 |", "| two | not run |  |"]
    assert "`run` · commit abc, here" in rows[-1]


def test_a_plot_has_a_bar_for_each_row_with_its_error(tmp_path):
    lines = [LINE % (row, "a", value, "%", error) for row, value, error in BARS]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    drawn = plot_of(read_figures(tmp_path), "a")
    assert re.findall(r'width="([\d.]+)" height', drawn) == ["100.0", "250.0"]
    assert re.findall(r"M([\d.]+) \d+H([\d.]+)", drawn) == [("460.0", "460.0"), ("560.0", "660.0")]
    assert "x &lt; y" in drawn
    assert "2.5 ± 0.5" in drawn


@pytest.mark.parametrize(
    "line", ['{"what": ["t", "r", "c"]}', LINE.replace('"t", ', "") % ((0,) * 5)]
)
def test_a_line_that_is_no_figure_is_named(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1"):
        read_figures(tmp_path)


def test_every_table_is_shown_on_one_page_and_has_a_source():
    shown = [
        name
        for path in sorted((FOLDER / "pages").rglob("*.md"))
        for name in TABLE.findall(path.read_text("utf-8"))
    ]
    by_table = tables(read_figures())
    del by_table["readme"]
    assert sorted(shown) == sorted(by_table)
    for name, figures in by_table.items():
        page = next(
            path
            for path in (FOLDER / "pages").rglob("*.md")
            if f"results: {name} " in path.read_text("utf-8")
        )
        # figures without a command are those of others, whose source the page names
        assert all(figure.command for figure in figures) or re.search(
            r"[Pp]ublished", page.read_text("utf-8")
        )
        cells = [figure.what for figure in figures]
        assert len(set(cells)) == len(cells), name


def test_the_table_of_the_readme_is_made_of_these_figures():
    assert table_of(tables(read_figures())["readme"]) in (ROOT / "README.md").read_text("utf-8")


def test_the_commands_of_figures_exist_with_their_options():
    commands = {figure.command for figure in read_figures()} - {""}
    recipes = (FOLDER / "pages" / "how-to" / "corpus.md").read_text("utf-8")
    for command in (part for line in commands for part in line.split("; ")):
        for folder in re.findall(r"\bdata/[\w-]+", command):
            assert re.search(rf"prepare .*--output {folder}\b", recipes), command
        program, *words = [word for word in shlex.split(command) if "CORPORA=" not in word]
        options = {word for word in words if word.startswith("--")}
        paths = [word for word in words if re.match("(training|benchmarks|tests)/", word)]
        for path in paths:  # capitals stand for what the row of the figure says
            place = ROOT / path
            assert (place.parent if place.name.isupper() else place).exists(), command
        if program in OPTIONS:
            assert options <= OPTIONS[program][words[0]], command
        elif words[0] == "-m" and "." in words[1]:
            source = (ROOT / f"{words[1].replace('.', '/')}.py").read_text("utf-8")
            for name in (option[2:].replace("-", "_") for option in options):
                assert re.search(rf"\b{name}_?: ", source), command  # parameters are options
        else:
            assert paths, command
