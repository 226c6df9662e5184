"""Options of commands, made from the fields of dataclasses; does not import torch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from training.config import docstrings


def add_options(
    command: argparse._ActionsContainer, kind: type, **changes: Mapping[str, Any]
) -> None:
    """Add an option for each field of a dataclass, with its docstring as help.

    Options that are not given are None, so that `given_options` leaves them out. The metadata of a
    field are arguments of `add_argument`, which `changes` replace by field; `flag` is the name of
    the option, and None if the field has none. A docstring that ends with "; None: TEXT" explains
    a default that is None or empty.
    """
    texts, types = docstrings(kind), get_type_hints(kind)
    for field in fields(kind):
        words = {
            "default": None,
            "required": field.default is MISSING,
            **_words(types[field.name]),
            **field.metadata,
            **changes.get(field.name, {}),
        }
        flag = words.pop("flag", f"--{field.name.replace('_', '-')}")
        if flag is None:
            continue
        default = field.default if words["default"] is None else words["default"]
        words["help"] = _help(texts[field.name], default)
        if flag.startswith("-"):
            words["dest"] = field.name
        else:
            words.pop("required")
        command.add_argument(flag, **words)


def given_options(options: argparse.Namespace, kind: type, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Values of those fields of a dataclass that were given as options, and others."""
    values = {field.name: getattr(options, field.name, None) for field in fields(kind)}
    given = {name: value for name, value in values.items() if value is not None}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()} | others


def _words(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Arguments of `add_argument` for a type."""
    if hint is bool:
        return {"action": "store_true"}
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Literal:
        return {"choices": kinds}
    if NoneType in get_args(hint):
        return _words(kinds[0])
    if kinds:  # a sequence
        return {"nargs": "+", "type": kinds[0]}
    return {"type": hint}


def _help(text: str, default: object) -> str:
    """The docstring of a field as help: in lower case, with its default."""
    text, *explained = re.split("; none: ", text.removesuffix("."), maxsplit=1, flags=re.IGNORECASE)
    if text[1].islower():
        text = text[0].lower() + text[1:]
    if default in (None, ()) and explained:
        text += f" (default: {explained[0]})"
    elif default not in (None, (), MISSING) and default is not False:
        text += f" (default: {default})"
    return text.replace("%", "%%")
