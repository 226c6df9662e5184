"""Numbers and durations as English text."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """Return a text in one line, without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def plural(number: int, thing: str) -> str:
    """Return a number with a noun: `1 bar`, `2 bars`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def duration(seconds: float) -> str:
    """Return a rounded duration: `6 s`, `2 min`."""
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Join names: `Bass, Piano and Drums`, with the number of those after the first `most`."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    *before, last = shown
    return f"{', '.join(before)} and {last}" if before else last
