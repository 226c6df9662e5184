from __future__ import annotations

import subprocess
import sys

import pytest

from relpe.command_line import Parser


def test_the_parser_does_not_import_torch():
    code = "import sys, relpe.command_line, relpe.files; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("one --fille=x", "one: unrecognized arguments: --fille=x (did you mean --file?)"),
        ("one --other", "one: unrecognized arguments: --other"),
        ("one --file x y", "one: unrecognized arguments: y"),
        ("one -- --fille", "one: the following arguments are required: --file"),
        ("two", "invalid choice: 'two'"),
    ],
)
def test_errors_are_reported_in_one_line_by_the_parser_of_their_command(words, problem, capsys):
    parser = Parser(prog="command", allow_abbrev=False)
    commands = parser.add_subparsers()
    commands.add_parser("one", allow_abbrev=False).add_argument("--file", required=True)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(words.split())
    error = capsys.readouterr().err
    assert error.startswith("command ") or error.startswith("command:")
    assert problem in error
    assert error.endswith("--help\n")
    assert error.count("\n") == 1
