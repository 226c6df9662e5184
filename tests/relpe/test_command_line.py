from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from relpe.command_line import CLOSED_PIPE, Parser, add_options, given_options, quiet_in_pipes


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("one --fille=x", "one: unrecognized arguments: --fille=x (did you mean --file?)"),
        ("one --other", "one: unrecognized arguments: --other"),
        ("one --file x y", "one: unrecognized arguments: y"),
        ("one -- --fille", "one: the following arguments are required: --file"),
        ("two", "invalid choice: 'two'"),
        ("one --bars x", "one: argument --bars: found 'x', expected a whole number"),
        ("one --pace x", "one: argument --pace: found 'x', expected a number"),
    ],
)
def test_errors_are_reported_in_one_line_by_the_parser_of_their_command(words, problem, capsys):
    parser = Parser(prog="command", allow_abbrev=False)
    commands = parser.add_subparsers()
    command = commands.add_parser("one", allow_abbrev=False)
    command.add_argument("--file", required=True)
    command.add_argument("--bars", type=int)
    command.add_argument("--pace", type=float)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(words.split())
    error = capsys.readouterr().err
    assert error.startswith("command ") or error.startswith("command:")
    assert problem in error
    assert error.endswith("--help\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize("main", ["relpe", "training.cli"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_ends_quietly_if_its_output_is_closed(main, stream):
    """Also if the output is so short that it is written at the end only."""
    words = {"stdout": ["--help"], "stderr": ["unknown"]}[stream]
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
    run = subprocess.run(
        [sys.executable, "-m", main, *words],
        check=False,
        text=True,
        # argparse ignores what it cannot write without a buffer
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=streams["stdout"],
        stderr=streams["stderr"],
    )
    os.close(write)
    assert (run.returncode, run.stdout or "", run.stderr or "") == (CLOSED_PIPE, "", "")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Settings that others inherit."""

    place: Path = field(metadata={"flag": "place", "metavar": "PLACE"})
    """Folder to read."""


@dataclass(frozen=True, kw_only=True)
class Settings(Place):
    """Settings with fields of every kind that an option can have."""

    files: tuple[Path, ...] = field(metadata={"flag": "--file"})
    """MIDI files."""
    count: int | None = None
    """CPU threads; None: all of 100 %."""
    kind: Literal["one", "two"] = "two"
    """Which kind."""
    names: Sequence[str] = field(default=(), metadata={"action": "append", "nargs": None})
    """Names; none: no names."""
    quick: bool = False
    """Be quick."""
    inner: object = field(default=None, metadata={"flag": None})
    """No option."""


def test_options_of_a_dataclass_have_its_names_types_defaults_and_docstrings():
    parser = argparse.ArgumentParser()
    add_options(parser, Settings, kind={"default": "one"})

    def read(words):
        return given_options(parser.parse_args(words.split()), Settings, inner=1)

    least = {"place": Path("x"), "files": (Path("a"), Path("b")), "kind": "one", "inner": 1}
    assert read("x --file a b") == least
    assert read("x --file a b --count 3 --kind two --names c --names d --quick") == {
        **least,
        **{"count": 3, "kind": "two", "names": ("c", "d"), "quick": True},
    }
    for words in ("x", "--file a", "x --file a --kind three", "x --file a --count y"):
        with pytest.raises(SystemExit):
            read(words)
    text = " ".join(parser.format_help().split())
    for line in (
        "PLACE folder to read ",
        "MIDI files ",
        "CPU threads (default: all of 100 %)",
        "which kind (default: one)",
        "names (default: no names)",
    ):
        assert line in text
    assert text.endswith("--quick be quick")


def test_characters_that_the_output_does_not_have_are_escaped(monkeypatch):
    """As in pipes on Windows."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="cp1252"))
    with quiet_in_pipes():
        sys.stdout.write("Größe, 音")
    assert written.getvalue().decode("cp1252") == "Größe, \\u97f3"
