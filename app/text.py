"""Values as words."""

from __future__ import annotations


def plural(number: int, thing: str) -> str:
    """A number of things: `1 bar`, `2 bars`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def shortened(value: object) -> str:
    """A value as Python writes it, in at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
