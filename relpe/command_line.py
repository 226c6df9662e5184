"""The parser of the commands, and options from dataclasses.

Does not import PyTorch, for which `--help` would have to wait.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

CLOSED_PIPE = 128 + 13
"""Exit code of a command whose output is closed: that of SIGPIPE in shells."""


@contextmanager
def quiet_in_pipes() -> Iterator[None]:
    """End quietly with `CLOSED_PIPE` once the reader of the output has gone, as in `| head`.

    The signal itself would also end servers whose clients go away. Characters that the output does
    not have, as in file names or on Windows, are escaped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):  # what Python writes at its end goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise SystemExit(CLOSED_PIPE) from None


def install(extra: str) -> str:
    """Return how to install the packages of an extra, for messages."""
    return (
        f"run pip install 'relpe[{extra}]', or in a copy of the source pip install -c "
        f"constraints.txt -e '.[{extra}]'"
    )


def _read_number(kind: type[int | float], expected: str, text: str) -> float:
    """Return the number of an argument. Raises ArgumentTypeError."""
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected {expected}") from None


class Parser(argparse.ArgumentParser):
    """A parser that reports each error in one line that names the command."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - as argparse
        super().__init__(**settings)
        for kind, expected in ((int, "a whole number"), (float, "a number")):
            self.register("type", kind, partial(_read_number, kind, expected))

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


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields by name, also of those that it inherits."""
    texts: dict[str, str] = {}
    for part in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        texts |= {
            ast.unparse(item.target): " ".join(ast.literal_eval(below.value).split())
            for item, below in pairwise(body.body)
            if isinstance(item, ast.AnnAssign) and isinstance(below, ast.Expr)
        }
    return texts


def add_options(
    command: argparse._ActionsContainer, kind: type, /, **changes: Mapping[str, Any]
) -> None:
    """Add an option for each field of a dataclass, with its docstring as help.

    Options that are not given are None, so that `given_options` leaves them out. The metadata of a
    field are arguments of `add_argument`, which `changes` replace by field; `flag` is the name of
    the option, and None if the field has none. A docstring that ends with "; None: TEXT" explains
    a default that is None or empty.
    """
    texts, types = docstrings(kind), get_type_hints(kind)
    for item in fields(kind):
        words = {
            "default": None,
            "required": item.default is MISSING,
            **argument_of(types[item.name]),
            **item.metadata,
            **changes.get(item.name, {}),
        }
        flag = words.pop("flag", f"--{item.name.replace('_', '-')}")
        if flag is None:
            continue
        default = item.default if words["default"] is None else words["default"]
        if "help" not in words:
            words["help"] = help_of(texts[item.name], default)
        if flag.startswith("-"):
            words["dest"] = item.name
        else:
            words.pop("required")
        command.add_argument(flag, **words)


def given_options(options: argparse.Namespace, kind: type, /, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the values of those fields of a dataclass that were given as options, and others."""
    values = {item.name: getattr(options, item.name, None) for item in fields(kind)}
    given = {name: value for name, value in values.items() if value is not None}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()} | others


def argument_of(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Return the arguments of `add_argument` for a type."""
    if hint is bool:
        return {"action": "store_true"}
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Literal:
        return {"choices": kinds}
    if NoneType in get_args(hint):
        return argument_of(kinds[0])
    if kinds:  # a sequence
        pair = get_origin(hint) is tuple and kinds[-1] is not Ellipsis
        return argument_of(kinds[0]) | {"nargs": len(kinds) if pair else "+"}
    return {"type": hint}


def help_of(text: str, default: object = None) -> str:
    """Return a docstring as help: in lower case, with the default of a field, no full stop."""
    text, *explained = re.split("; none: ", text.removesuffix("."), maxsplit=1, flags=re.IGNORECASE)
    if text[1].islower():
        text = text[0].lower() + text[1:]
    if default in (None, ()) and explained:
        text += f" (default: {explained[0]})"
    elif default not in (None, (), MISSING) and default is not False:
        text += f" (default: {default})"
    return text.replace("%", "%%")
