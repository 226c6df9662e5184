"""Plots of a sweep."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.files import picture


def draw_rows(values: Mapping[str, Sequence[float]], label: str, path: Path) -> None:
    """Draw a line for each row, with a dot for each seed, and mean and standard deviation."""
    rows = {row: own for row, own in values.items() if own}
    with picture(path, 7, 1 + 0.3 * len(rows), 120) as figure:
        axes = figure.subplots()
        for place, own in enumerate(rows.values()):
            spread = statistics.stdev(own) if len(own) > 1 else 0.0
            axes.errorbar(statistics.mean(own), place, xerr=spread, fmt="|k", capsize=3)
            axes.plot(own, [place] * len(own), "o", alpha=0.6, markersize=4)
        axes.set_yticks(range(len(rows)), labels=[*rows])
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)
