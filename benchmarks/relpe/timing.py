"""Time, memory, machine and output of benchmarks; does not import torch."""

from __future__ import annotations

import csv
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _csv import Writer

Name = TypeVar("Name", bound=str)
Result = TypeVar("Result")


def turns(
    ways: Mapping[Name, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    *,
    calls: int = 1,
    patience: float = float("inf"),
) -> dict[Name, list[float]]:
    """Milliseconds per call of several ways that take turns.

    Each turn makes several `calls` of each way. After `patience` seconds, no further turn begins.
    """
    times: dict[Name, list[float]] = {name: [] for name in ways}
    began = time.perf_counter()
    for _ in range(repeats):
        for name, way in ways.items():
            started = clock()
            for _ in range(calls):
                way()
            times[name].append(1000 * (clock() - started) / calls)
        if time.perf_counter() - began > patience:
            break
    return times


def medians(times: Mapping[Name, Sequence[float]]) -> dict[Name, float]:
    """The median time of each way."""
    return {name: statistics.median(values) for name, values in times.items()}


def times_as_fast(times: Mapping[Name, Sequence[float]], way: Name, other: Name) -> float:
    """Median over the turns of the ratio of another way's time to that of a way."""
    pairs = zip(times[other], times[way], strict=True)
    return statistics.median(theirs / own for theirs, own in pairs)


def peak_megabytes(process: int | str = "self") -> float:
    """Peak resident size of a process; NaN if it is unknown, as on other systems than Linux.

    `getrusage` would count the memory of the parent at the time of the start.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return float("nan")


def growth(call: Callable[[], object]) -> float:
    """Megabytes by which the peak of this process grows in a call."""
    before = peak_megabytes()
    call()
    return peak_megabytes() - before


def in_new_process(call: Callable[..., Result], *arguments: object, **options: object) -> Result:
    """Result of a call in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(call, *arguments, **options).result()


def processor() -> str:
    """The name of the machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def print_machine(*packages: str) -> None:
    """Print processor, versions and the command as comments of CSV."""
    versions = [f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in packages)]
    print(f"# {processor()}, {platform.platform()}, {', '.join(versions)}")
    print(f"# {' '.join(sys.argv)}", flush=True)


def csv_output(*columns: str, packages: Sequence[str] = ("numpy",)) -> Writer:
    """A writer of CSV to standard output, after `print_machine` and the names of the columns."""
    print_machine(*packages)
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    return writer
