"""English for numbers."""

from __future__ import annotations


def plural(number: int, thing: str) -> str:
    """A number of things: `1 bar`, `2 bars`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
