"""Plots of a sweep."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.files import picture


def draw_rows(values: Mapping[str, Sequence[float]], label: str, path: Path) -> None:
    """Draw a line for each row, with a dot for each seed, and mean and standard deviation."""
    rows = {row: numbers for row, numbers in values.items() if numbers}
    with picture(path, 7, 1 + 0.3 * len(rows), 120) as figure:
        axes = figure.subplots()
        for place, numbers in enumerate(rows.values()):
            mean, deviation = statistics.mean(numbers), _deviation(numbers)
            axes.errorbar(mean, place, xerr=deviation, fmt="|k", capsize=3)
            axes.plot(numbers, [place] * len(numbers), "o", alpha=0.6, markersize=4)
        axes.set_yticks(range(len(rows)), labels=[*rows])
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)


def draw_sizes(values: Mapping[int, Mapping[str, Sequence[float]]], label: str, path: Path) -> None:
    """Draw a line for each row over the sizes of examples, with standard deviations over seeds."""
    from matplotlib import colormaps

    rows = [*dict.fromkeys(row for by_row in values.values() for row in by_row)]
    with picture(path, 9, 2 + 0.2 * len(rows), 120) as figure:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            by_size = {size: by_row[row] for size, by_row in values.items() if by_row.get(row)}
            axes.errorbar(
                [*by_size],
                [statistics.mean(numbers) for numbers in by_size.values()],
                [_deviation(numbers) for numbers in by_size.values()],
                color=colormaps["tab20"](place % 20),
                label=row,
                marker="o",
                markersize=3,
                capsize=2,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([*values], labels=[*map(str, values)])
        axes.set(xlabel="size of examples", ylabel=label)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
        axes.grid(alpha=0.3)


def _deviation(numbers: Sequence[float]) -> float:
    """Return the standard deviation over seeds, 0 for a single one."""
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0
