"""Errors that a user's input causes."""

from __future__ import annotations

import math

from relpe.command_line import install


class TrainingError(ValueError):
    """Data, a configuration or a run cannot be used; the message says why and what to do."""


def missing_package(task: str, package: str, extra: str) -> TrainingError:
    """Return the error of a task that needs a package of an extra."""
    return TrainingError(f"the task {task} needs the package {package}; {install(extra)}")


def check_range(
    name: str,
    value: float | None,
    low: float,
    high: float | None = None,
    *,
    above: bool = False,
) -> None:
    """Check that a number is finite and within a range; None is accepted.

    With `above`, the number must be greater than `low`.

    Raises:
        TrainingError: the number is out of range; the message names the option.
    """
    if value is None:
        return
    least = value > low if above else value >= low
    if least and (value < math.inf if high is None else value <= high):
        return
    bounds = f"at least {low}" if high is None else f"{low} to {high}"
    raise TrainingError(f"{name} is {value}, expected {f'more than {low}' if above else bounds}")
