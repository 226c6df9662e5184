"""The commands and the Python of README.md, and the commands of app/README.md.

Fenced blocks marked `sh` or `console` contain commands; in `console`, commands follow `$ ` and the
other lines are output. Each block runs in a separate folder with all files of the repository.
Targets of make are only checked against the Makefile. A block that would not end or would take too
long is not run; the line above it gives the reason:

    <!-- not run: the page stays open until it is stopped -->

Its commands `relpe` and `relpe-train` and their options must exist nevertheless.
"""

from __future__ import annotations

import argparse
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
from tests.support.paths import ROOT
from training import cli as relpe_train

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


DOCUMENTS = ("README.md", "app/README.md", "SECURITY.md")
TEXTS = {name: (ROOT / name).read_text("utf-8") for name in DOCUMENTS}
BLOCKS = [(name, block) for name, text in TEXTS.items() for block in blocks(text)]
RUN = [
    pytest.param(block, id=f"{name}-line-{block.line}")
    for name, block in BLOCKS
    if block.reason is None
]
COMMANDS = sorted({command for _, block in BLOCKS for command in block.commands})


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def is_make(command: str) -> bool:
    return words(command)[0] == "make"


def is_plain(command: str) -> bool:
    """Whether a command is `relpe` without shell syntax, so that it can run in this process.

    Its output may go to a file.
    """
    program = command.partition(" > ")[0]
    return words(program)[0] == "relpe" and not re.search(r"[|&;<>$`*?~]", program)


def run_here(command: str) -> None:
    """Runs a plain command in this process, which has loaded PyTorch already."""
    program, _, target = command.partition(" > ")
    with ExitStack() as stack:
        if target:
            out = stack.enter_context(Path(target).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(out))
        stack.enter_context(warnings.catch_warnings(action="default"))  # as in a separate process
        assert relpe.main(words(program)[1:]) == 0


def environment() -> dict[str, str]:
    """The environment, with the commands of this interpreter first in the path."""
    commands = Path(sys.executable).parent
    installed = shutil.which("relpe", path=commands)
    assert installed is not None, "the project is not installed here: see `make test`"
    return {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], folder: Path) -> str:
    """Standard output of a command, which must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    commands = [command for command in block.commands if not is_make(command)]
    if all(is_plain(command) for command in commands):
        for command in commands:
            run_here(command)
    else:
        run(["bash", "-euxo", "pipefail", "-c", "\n".join(commands)], folder)


def test_the_python_of_the_readme_runs(folder):
    (code,) = re.findall(r"```python\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    named: dict[str, Any] = {}
    exec(code, named)
    assert (folder / "continued.mid").read_bytes() == named["result"].pieces[0].midi
    assert named["audio"].samples.shape[1] == 2
    assert named["audio"].seconds > 20


def options_of(parser: argparse.ArgumentParser) -> dict[str, set[str]]:
    """The options of each subcommand of a parser."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {
        name: {word for option in command._actions for word in option.option_strings}
        for action in actions
        for name, command in action.choices.items()
    }


OPTIONS = {"relpe": options_of(relpe._parser()), "relpe-train": options_of(relpe_train._parser())}


def test_every_option_of_the_commands_is_explained():
    explained = set(re.findall(r"--[a-z][\w-]*", TEXTS["app/README.md"]))
    for name, options in OPTIONS["relpe"].items():
        assert options - {"-h", "--help"} <= explained, name


def test_every_target_of_make_is_in_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        word
        for command in filter(is_make, COMMANDS)
        for word in words(command)[1:]
        if "=" not in word
    }
    assert {"app", "test"} <= named
    assert named <= targets


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


def test_blocks_are_read_as_the_module_says():
    text = (
        "```sh\nrelpe a \\\n  b  # why\n\n# only words\nmake app\n```\n"
        "```python\nimport os\n```\n"
        "<!-- not run: for ever -->\n```console\n$ relpe ui\nprinted\n$ relpe c \\\n> d\n```\n"
    )
    assert blocks(text) == [
        Block(1, ["relpe a   b  # why", "make app"], None),
        Block(12, ["relpe ui", "relpe c d"], "for ever"),
    ]
