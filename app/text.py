"""English for numbers."""

from __future__ import annotations


def plural(number: int, thing: str) -> str:
    """A number of things: `1 bar`, `2 bars`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def duration(seconds: float) -> str:
    """About how long: `6 s`, `2 min`."""
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"
