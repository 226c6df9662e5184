"""Files of the UCR and UEA archives (`.ts`): labelled time series (Bagnall et al., 2018).

A file may have series of different lengths, several channels, missing values and timestamps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.errors import TrainingError
from training.tasks.series.lines import read_lines

_PAIR = re.compile(r"\(([^()]*),([^(),]*)\)")
_MISSING = ("?", "nan", "")


class Series(NamedTuple):
    """A labelled time series."""

    times: NDArray[np.float64]
    """(l,) increasing: numbers as in the file, seconds for dates, places without timestamps."""
    values: NDArray[np.float64]
    """(l, c); NaN where the channel has no value at this time."""
    label: int
    """Number of its class."""


class Labelled(NamedTuple):
    """The series of a file."""

    classes: tuple[str, ...]
    """Names of the classes, in lower case, in the order of the file's header."""
    series: list[Series]


@cache
def read_split(data: Path, name: str, part: str) -> Labelled:
    """Return the series of the file `NAME_TRAIN.ts` or `NAME_TEST.ts` by the `part`, TRAIN or TEST.

    `data` is where `read_lines` finds it.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    where, lines = read_lines(data, f"{name}_{part}.ts")
    classes, rows = _header(where, lines)
    number = {label: place for place, label in enumerate(classes)}
    series: list[Series] = []
    for line, row in tqdm(rows, desc=f"{name}_{part}.ts", disable=None, delay=2):
        try:
            series.append(_series(row, number))
        except ValueError as error:
            raise TrainingError(f"{where}: line {line}: {error}") from error
    widths = {one.values.shape[1] for one in series}
    if len(widths) != 1:
        what = "no series" if not series else f"series of {min(widths)} to {max(widths)} channels"
        raise TrainingError(f"{where}: found {what}, expected series with equally many channels")
    return Labelled(classes, series)


def _header(where: str, lines: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Return the classes of a file, and the numbers and contents of the lines with its series."""
    classes: tuple[str, ...] = ()
    kept = [
        (number, stripped)
        for number, line in enumerate(lines, 1)
        if (stripped := line.strip().lower()) and stripped[0] not in "#%"
    ]
    for place, (_, line) in enumerate(kept):
        if line == "@data":
            if not classes:
                raise TrainingError(
                    f"{where}: has no classes (@classLabel true NAME NAME ...), which this task "
                    "predicts"
                )
            return classes, kept[place + 1 :]
        if line.startswith("@classlabel true"):
            classes = tuple(line.split()[2:])
    raise TrainingError(f"{where}: has no line @data, expected a .ts file")


@dataclass
class _Channel:
    times: NDArray[np.float64]
    values: NDArray[np.float64]


def _series(row: str, number: dict[str, int]) -> Series:
    """Return a series from a line: channels, then the class, separated by colons."""
    text, _, label = row.rpartition(":")
    if label.strip() not in number:
        raise ValueError(f"found the class {label.strip()[:40]!r}, expected {' or '.join(number)}")
    channels = [*_timed(text)] if text.lstrip().startswith("(") else [*_plain(text)]
    times = np.unique(np.concatenate([one.times for one in channels]))
    values = np.full((len(times), len(channels)), math.nan)
    for place, one in enumerate(channels):
        values[np.searchsorted(times, one.times), place] = one.values
    return Series(times, values, number[label.strip()])


def _plain(text: str) -> Iterator[_Channel]:
    """Return the channels of values that are separated by commas."""
    for channel in text.split(":"):
        values = np.array([_value(one) for one in channel.split(",")])
        yield _Channel(np.arange(len(values), dtype=np.float64), values)


def _timed(text: str) -> Iterator[_Channel]:
    """Return the channels of pairs (time,value); times may contain colons."""
    for channel in re.split(r"(?<=\))\s*:", text):
        pairs = _PAIR.findall(channel)
        if not pairs or re.sub(r"[\s,]", "", _PAIR.sub("", channel)):
            raise ValueError("expected pairs (time,value) that are separated by commas")
        times = np.array([_time(time) for time, _ in pairs])
        if (np.diff(times) <= 0).any():
            raise ValueError("the times of a channel do not increase")
        yield _Channel(times, np.array([_value(value) for _, value in pairs]))


def _value(text: str) -> float:
    if text.strip() in _MISSING:
        return math.nan
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"found the value {text.strip()}, expected a finite number")
    return value


def _time(text: str) -> float:
    """Return a number, or the seconds of a date and time."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = (datetime.fromisoformat(text.strip()) - datetime(1970, 1, 1)).total_seconds()
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"found the time {text.strip()!r}, expected a number or a date such as "
                "2007-01-01 00:00:00"
            ) from error
    if not math.isfinite(value):
        raise ValueError(f"found the time {text.strip()!r}, expected a finite number")
    return value
