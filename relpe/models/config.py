"""Conversion of configs to plain values for JSON and YAML, and back."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal


class CheckpointError(ValueError):
    """The files of a model cannot be used; the message says why."""


def to_plain(value: object) -> Any:  # noqa: ANN401 - values of JSON and YAML
    """Convert a config to dictionaries, lists, strings and numbers."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_plain(kind: Any, value: Any, where: str = "config") -> Any:  # noqa: ANN401 - any config type
    """Convert plain values to type `kind`; the dataclasses of a union are told apart by `kind`.

    Raises:
        CheckpointError: a name is unknown or missing, or a value has the wrong type.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _from_union(args, value, where)
    if _is_section(kind):
        return _from_section(kind, value, where)
    if origin is Literal:
        for choice in args:
            if choice in (value, str(value)):  # YAML reads 1 as a number
                return choice
        choices = ", ".join(map(repr, args))
        raise CheckpointError(f"{where}: found {value!r}, expected one of {choices}")
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        kinds = [args[0]] * len(items) if args[-1] is Ellipsis else args
        if len(kinds) != len(items):
            raise CheckpointError(f"{where}: found {value!r}, expected {len(kinds)} values")
        names = (f"{where}[{i}]" if isinstance(x, dict) else where for i, x in enumerate(items))
        return tuple(
            from_plain(k, item, name) for k, item, name in zip(kinds, items, names, strict=True)
        )
    return _from_scalar(kind, value, where)


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _from_section(kind: Any, value: object, where: str) -> Any:  # noqa: ANN401
    hints = typing.get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{where}: found {value!r}, expected a section, which is a line KEY: VALUE for each of "
            f"its keys ({', '.join(names)})"
        )
    for name in value:
        if name not in names:
            raise CheckpointError(f"{where}.{name}: unknown, expected one of {', '.join(names)}")
    for item in dataclasses.fields(kind):
        required = item.default is item.default_factory is dataclasses.MISSING
        if required and item.init and item.name not in value:
            raise CheckpointError(f"{where}: found no {item.name}, which is required")
    values = {
        name: from_plain(hints[name], part, f"{where}.{name}") for name, part in value.items()
    }
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: {error}") from error


def _from_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401
    if value is None and type(None) in kinds:
        return None
    choices = [choice for choice in kinds if choice is not type(None)]
    sections = {
        getattr(choice, "kind", choice): choice for choice in choices if _is_section(choice)
    }
    if sections and isinstance(value, dict):
        only_kind = next(iter(sections)) if len(sections) == 1 else None
        kind = value.get("kind", only_kind)
        if isinstance(kind, list | dict) or kind not in sections:
            names = ", ".join(map(str, sections))
            raise CheckpointError(f"{where}.kind: found {kind!r}, expected one of {names}")
        return from_plain(sections[kind], value, where)
    for choice in choices[:-1]:
        try:
            return from_plain(choice, value, where)
        except CheckpointError:  # the error of the last choice is raised
            continue
    try:
        return from_plain(choices[-1], value, where)
    except CheckpointError as error:
        if type(None) in kinds and typing.get_origin(choices[-1]) is Literal:
            raise CheckpointError(f"{error} or null") from None
        raise


_LARGEST = 2**53
"""The largest integer that every JSON parser keeps."""


def _from_scalar(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and is_number:
        try:
            return float(value)
        except OverflowError:  # an integer of more than 308 digits
            return math.inf if value > 0 else -math.inf
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is int and is_number and abs(value) > _LARGEST:
        raise CheckpointError(f"{where}: found a number above {_LARGEST:,}, expected a smaller one")
    fits = isinstance(kind, type) and isinstance(value, kind)
    if fits and (kind is bool or not isinstance(value, bool)):
        return value
    name = getattr(kind, "__name__", str(kind))
    raise CheckpointError(f"{where}: found {value!r}, expected a value of type {name}")
