"""The command `relpe`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple

from app.cli.signals import on_signal
from app.errors import UserError, input_errors
from app.text import printable
from relpe.command_line import Parser, install, quiet_in_pipes


class Command(NamedTuple):
    """A command as the parser knows it before its module is imported."""

    help: str
    arguments: str
    """Module and name of the function that adds its arguments."""
    extra: str
    """Extra of pyproject.toml that has the packages it needs."""


COMMANDS = {
    "ui": Command("serve the web page", "app.web.command:add_ui", "page"),
    "mcp": Command("serve tools to an agent", "app.web.programs.command:add_mcp", "page"),
    "continue": Command("continue a MIDI file", "app.cli.music:add_continue", "music"),
    "fill": Command(
        "write some bars and tracks of a MIDI file again", "app.cli.music:add_fill", "music"
    ),
    "accompany": Command("add a track to a MIDI file", "app.cli.music:add_accompany", "music"),
    "generate": Command("generate a piece from nothing", "app.cli.music:add_generate", "music"),
    "replay": Command(
        "generate a piece again from its settings", "app.cli.music:add_replay", "music"
    ),
    "jam": Command("play chords, and a band follows", "app.cli.jam:add_jam", "music"),
    "inspect": Command(
        "show the form, key and chords of a MIDI file", "app.cli.inspect:add_inspect", "music"
    ),
    "doctor": Command(
        "print what a report of a fault needs",
        "app.cli.doctor:add_doctor",
        "music",
    ),
    "batch": Command("generate clips for listening tests", "app.batch.command:add_batch", "listen"),
    "listen": Command(
        "serve a listening test on the clips of a batch",
        "app.listening.page.command:add_listen",
        "listen",
    ),
    "listen-report": Command(
        "report on a listening test", "app.listening.report.command:add_listen_report", "listen"
    ),
}


@quiet_in_pipes()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    The code is 0, 2 if the input cannot be used, 130 if Ctrl+C or SIGTERM stopped the command,
    which then removes its temporary files, or 141 if its output is closed.
    """
    # idle threads should sleep: spinning slows down other threads of a shared machine
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = _parser(words[:1]).parse_args(words)
        logging.basicConfig(level=logging.WARNING, format="relpe: %(message)s")
        with on_signal(signal.default_int_handler, signal.SIGTERM):
            options.run(options)
    except SystemExit:  # --help need not wait for PyTorch, which `input_errors` imports
        raise
    except KeyboardInterrupt as stopped:
        print(f"relpe: {str(stopped) or 'stopped; nothing was written'}", file=sys.stderr)
        return 130
    except UserError as error:
        return _refused(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("app", "relpe", "tokenization"):
            raise
        print(
            f"relpe: {error.name} is not installed; {install(COMMANDS[words[0]].extra)}",
            file=sys.stderr,
        )
        return 2
    except input_errors() as error:
        return _refused(error)
    return 0


def _refused(error: Exception) -> int:
    print(f"relpe: {printable(str(error))}", file=sys.stderr)
    return 2


def _parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of some commands, since each takes time to import."""
    parser = Parser(prog="relpe", description="Generate and continue music.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"relpe {version('relpe')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, (text, arguments, _) in COMMANDS.items():
        described = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(name, help=text, description=described, allow_abbrev=False)
        if name in names:
            module, _, function = arguments.partition(":")
            getattr(import_module(module), function)(command)
    return parser
