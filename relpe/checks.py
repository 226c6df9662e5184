"""Checks of configs that are made in Python; those of files are checked when they are read."""

from __future__ import annotations

import typing
from functools import lru_cache
from typing import Literal


class Checked:
    """Base of configs: a field whose type is a `Literal` must have one of its values.

    A subclass with more checks calls `super().__post_init__()` first.
    """

    def __post_init__(self) -> None:
        """Checks the choices.

        Raises:
            ValueError: a value is not among the choices of its field.
        """
        for name, choices in _choices(type(self)).items():
            value = getattr(self, name)
            if value not in choices:
                expected = " or ".join(map(repr, choices))
                raise ValueError(f"{name} is {value!r}, expected {expected}")


@lru_cache(maxsize=256)
def _choices(config: type) -> dict[str, tuple[object, ...]]:
    hints = typing.get_type_hints(config)
    return {
        name: typing.get_args(hint)
        for name, hint in hints.items()
        if typing.get_origin(hint) is Literal
    }


def at_least(lowest: float, **values: float) -> None:
    """Checks that no value is below `lowest`.

    Raises:
        ValueError: one is, or is not a number.
    """
    for name, value in values.items():
        if not value >= lowest:
            raise ValueError(f"{name} is {value}, expected at least {lowest}")


def positive(**values: float) -> None:
    """Checks that all values are above zero.

    Raises:
        ValueError: one is not, or is not a number.
    """
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}, expected a positive number")
