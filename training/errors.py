"""Errors that a user's input causes."""

from __future__ import annotations

import math


class TrainingError(ValueError):
    """Data, a configuration or a run is unusable; says what was found and what to do."""


def check_range(
    name: str,
    value: float | None,
    low: float,
    high: float | None = None,
    *,
    above: bool = False,
) -> None:
    """Refuse a number that is not finite or outside a range; None is accepted.

    With `above`, `low` itself is refused.

    Raises:
        TrainingError: names the option, what was found and what was expected.
    """
    if value is None:
        return
    least = value > low if above else value >= low
    if least and (value < math.inf if high is None else value <= high):
        return
    wanted = f"{low} or more" if high is None else f"{low} to {high}"
    raise TrainingError(f"{name} is {value}, expected {f'more than {low}' if above else wanted}")
