"""Numbers and durations as English text."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in one line, without characters that control a terminal, as in names of files."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def plural(number: int, thing: str) -> str:
    """A number with a noun: `1 bar`, `2 bars`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def duration(seconds: float) -> str:
    """A rounded duration: `6 s`, `2 min`."""
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"
