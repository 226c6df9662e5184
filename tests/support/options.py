"""Options of all commands, by program and command."""

from __future__ import annotations

import argparse

from app.cli import main as relpe
from training import cli as relpe_train


def options_of(parser: argparse.ArgumentParser) -> dict[str, set[str]]:
    """The options of each subcommand of a parser."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {
        name: {word for option in command._actions for word in option.option_strings}
        for action in actions
        for name, command in action.choices.items()
    }


OPTIONS = {"relpe": options_of(relpe._parser()), "relpe-train": options_of(relpe_train._parser())}
