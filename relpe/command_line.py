"""The parser of the commands; does not import PyTorch, for which `--help` would have to wait."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that reports each error in one line that names the command."""

    # Any: the types that argparse declares depend on the namespace
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        args: Any = None,  # noqa: ANN401
        namespace: Any = None,  # noqa: ANN401
    ) -> tuple[Any, list[str]]:
        """Reject unknown arguments here; argparse would return them to the parent parser.

        Unknown options come first: one that is misspelled should not be called missing.
        """
        if self._subparsers is None:
            for word in sys.argv[1:] if args is None else args:
                if word == "--":  # only positional arguments follow
                    break
                option = word.partition("=")[0]
                if option.startswith("--") and option not in self._option_string_actions:
                    close = get_close_matches(option, self._option_string_actions, 1)
                    hint = f" (did you mean {close[0]}?)" if close else ""
                    self.error(f"unrecognized arguments: {word}{hint}")
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
