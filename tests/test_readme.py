"""The commands of the documents, and the Python of README.md.

Fenced blocks marked `sh` or `console` contain commands; in `console`, commands follow `$ ` and the
other lines are output. Each block runs in a separate folder with all files of the repository, but
without its targets of make. A block that would not end or would take too long is not run; the line
above it gives the reason:

    <!-- not run: the page stays open until it is stopped -->

Its commands `relpe` and `relpe-train` and their options must exist nevertheless.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.cli import main as relpe
from tests.support.options import OPTIONS
from tests.support.paths import ROOT

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>\S.*?) -->\n)?^```(?P<kind>sh|console)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    commands: list[str]
    reason: str | None


def blocks(text: str) -> list[Block]:
    """The blocks of commands of a text, with continued lines joined and comments left out."""
    found = []
    for match in BLOCK.finditer(text):
        body = match["body"].replace("\\\n> ", "").replace("\\\n", "")
        lines = [line.strip() for line in body.splitlines()]
        if match["kind"] == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        commands = [line for line in lines if line and not line.startswith("#")]
        found.append(Block(text[: match.start("body")].count("\n"), commands, match["reason"]))
    return found


DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "app/README.md", "training/README.md", "SECURITY.md")),
    *sorted((ROOT / "docs" / "pages").rglob("*.md")),
]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in DOCUMENTS}
BLOCKS = [(name, block) for name, text in TEXTS.items() for block in blocks(text)]
RUN = [
    pytest.param(block, id=f"{name}-line-{block.line}")
    for name, block in BLOCKS
    if block.reason is None
]


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def is_plain(command: str) -> bool:
    """Whether a command is `relpe` without shell syntax, so that it can run in this process.

    Its output may go to a file.
    """
    program = command.partition(" > ")[0]
    outside_quotes = re.sub(r"\"[^\"$`]*\"|'[^']*'", "", program)
    return words(program)[0] == "relpe" and not re.search(r"[|&;<>$`*?~]", outside_quotes)


def run_here(command: str) -> None:
    """Runs a plain command in this process, which has loaded PyTorch already."""
    program, _, target = command.partition(" > ")
    with ExitStack() as stack:
        if target:
            out = stack.enter_context(Path(target).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(out))
        stack.enter_context(warnings.catch_warnings(action="default"))  # as in a separate process
        assert relpe.main(words(program)[1:]) == 0


def run_in_shell(commands: list[str], folder: Path) -> None:
    """Runs commands, of this interpreter if there are some, of which all must succeed."""
    place = Path(sys.executable).parent
    assert shutil.which("relpe", path=place), "the project is not installed here: see `make test`"
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(commands)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a test, with all files of the repository."""
    for entry in ROOT.iterdir():
        if entry.name == "examples":  # outputs may be written here
            shutil.copytree(entry, tmp_path / entry.name)
        elif not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", RUN)
def test_a_block_of_commands_runs(block, folder):
    commands = [command for command in block.commands if words(command)[0] != "make"]
    if all(is_plain(command) for command in commands):
        for command in commands:
            run_here(command)
    else:
        run_in_shell(commands, folder)


def test_the_python_of_the_readme_runs(folder):
    (code,) = re.findall(r"```python\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    named: dict[str, Any] = {}
    exec(code, named)
    assert (folder / "continued.mid").read_bytes() == named["result"].pieces[0].midi
    assert named["audio"].samples.shape[1] == 2
    assert named["audio"].seconds > 20


def test_commands_that_are_not_run_are_there_with_their_options():
    commands = [c for _, block in BLOCKS if block.reason is not None for c in block.commands]
    checked = 0
    for command in commands:
        program, *rest = words(command)
        if program in OPTIONS:
            given = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert given <= OPTIONS[program][rest[0]], command
            checked += 1
    assert checked > 3
