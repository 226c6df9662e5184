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


def draw_sizes(values: Mapping[int, Mapping[str, Sequence[float]]], label: str, path: Path) -> None:
    """Draw a line for each row over the sizes of examples, with standard deviations over seeds."""
    from matplotlib import colormaps

    rows = [*dict.fromkeys(row for own in values.values() for row in own)]
    with picture(path, 9, 2 + 0.2 * len(rows), 120) as figure:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            found = {size: own[row] for size, own in values.items() if own.get(row)}
            axes.errorbar(
                [*found],
                [statistics.mean(own) for own in found.values()],
                [statistics.stdev(own) if len(own) > 1 else 0.0 for own in found.values()],
                **{"color": colormaps["tab20"](place % 20), "label": row},
                **{"marker": "o", "markersize": 3, "capsize": 2},
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([*values], labels=[*map(str, values)])
        axes.set(xlabel="size of examples", ylabel=label)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
        axes.grid(alpha=0.3)
