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

from app.cli.signals import on_signal
from app.errors import UserError, input_errors
from app.text import printable
from relpe.command_line import Parser, install, quiet_in_pipes

COMMANDS = {
    "ui": ("serve the web page", "ui", "add_ui"),
    "continue": ("continue a MIDI file", "music", "add_continue"),
    "fill": ("write some bars and tracks of a MIDI file again", "music", "add_fill"),
    "accompany": ("add a track to a MIDI file", "music", "add_accompany"),
    "generate": ("generate a piece from nothing", "music", "add_generate"),
    "replay": ("generate a piece again from its settings", "music", "add_replay"),
    "inspect": ("show the form, key and chords of a MIDI file", "inspect", "add_inspect"),
    "batch": ("generate clips for listening tests", "batch", "add_batch"),
    "listen": ("serve a listening test on the clips of a batch", "listen", "add_listen"),
    "listen-report": ("report on a listening test", "listen_report", "add_listen_report"),
}
"""Help of each command, and the module of `app.cli` and its function that add the arguments."""


@quiet_in_pipes()
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    The code is 0, 2 if the input cannot be used, 130 if Ctrl+C or SIGTERM stopped the command,
    which then removes its temporary files, or 141 if its output is closed.
    """
    # idle threads should sleep: spinning slows down other threads of a shared machine
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(words[:1]).parse_args(words)
    logging.basicConfig(level=logging.WARNING, format="relpe: %(message)s")
    try:
        with on_signal(signal.default_int_handler, signal.SIGTERM):
            options.run(options)
    except KeyboardInterrupt as stopped:
        print(f"relpe: {str(stopped) or 'stopped; nothing was written'}", file=sys.stderr)
        return 130
    except UserError as error:
        return _refused(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("app", "relpe", "tokenization"):
            raise
        print(
            f"relpe: {error.name} is not installed; {install('app')}",
            file=sys.stderr,
        )
        return 2
    except input_errors() as error:
        return _refused(error)
    return 0


def _refused(error: Exception) -> int:
    print(f"relpe: {printable(str(error))}", file=sys.stderr)
    return 2


def _parser(chosen: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser, with the arguments of some commands only, since each takes time to import."""
    parser = Parser(prog="relpe", description="Generate and continue music.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"relpe {version('relpe')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, (text, module, function) in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name in chosen:
            getattr(import_module(f"app.cli.{module}"), function)(command)
    return parser
