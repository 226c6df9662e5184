"""Options, time, memory and output of benchmarks; does not import torch."""

from __future__ import annotations

import argparse
import csv
import inspect
import platform
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar, get_type_hints

import numpy as np

from relpe.command_line import Parser, argument_of

Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


def run(main: Callable[..., object]) -> None:
    """Call a function with the options of the command line, which are its parameters.

    Positional-only parameters have no `--`. The description is the docstring of the module.
    """
    parser = Parser(
        description=inspect.getmodule(main).__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints, positional = get_type_hints(main), []
    for name, parameter in inspect.signature(main).parameters.items():
        argument, default = argument_of(hints[name]), parameter.default
        is_optional = default is not parameter.empty
        if is_optional:
            argument["default"] = default
            if default not in (None, False):
                argument["help"] = f"(default: {default})".replace("%", "%%")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(name)
            if is_optional:
                argument["nargs"] = "*" if "nargs" in argument else "?"
            parser.add_argument(name, **argument)
        else:
            if not is_optional:
                argument["required"] = True
            flag = f"--{name.rstrip('_').replace('_', '-')}"
            parser.add_argument(flag, dest=name, **argument)
    options = vars(parser.parse_args())
    main(*[options.pop(name) for name in positional], **options)


def turns(
    ways: Mapping[Name, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    *,
    calls: int = 1,
    patience: float = float("inf"),
) -> dict[Name, list[float]]:
    """Return the milliseconds per call of several ways that take turns.

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
    """Return the median time of each way."""
    return {name: statistics.median(values) for name, values in times.items()}


def times_as_fast(times: Mapping[Name, Sequence[float]], way: Name, other: Name) -> float:
    """Return the median over the turns of the ratio of another way's time to that of a way."""
    pairs = zip(times[other], times[way], strict=True)
    return statistics.median(theirs / ours for theirs, ours in pairs)


def peak_megabytes(process: int | str = "self") -> float:
    """Return the peak resident size of a process; NaN if unknown, as on other systems than Linux.

    `getrusage` would count the memory of the parent at the time of the start.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return float("nan")


def growth(call: Callable[[], object]) -> float:
    """Return the megabytes by which the peak of this process grows in a call."""
    before = peak_megabytes()
    call()
    return peak_megabytes() - before


def in_new_process(call: Callable[..., Result], *arguments: object, **options: object) -> Result:
    """Return the result of a call in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(call, *arguments, **options).result()


def processor() -> str:
    """Return the name of the machine's processor."""
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


def shown(cell: object) -> object:
    """Return a cell of a table; numbers that are not whole have four digits."""
    if isinstance(cell, float) and np.isfinite(cell):
        return np.format_float_positional(cell, 4, fractional=False, trim="-")
    return cell


def csv_output(*columns: str, packages: Sequence[str] = ("numpy",)) -> Callable[..., None]:
    """Print the machine and the names of columns as CSV; return what prints a row."""
    print_machine(*packages)
    writer = csv.writer(sys.stdout)

    def write(*cells: object) -> None:
        writer.writerow(map(shown, cells))
        sys.stdout.flush()

    write(*columns)
    return write


def table_output(*columns: str) -> Callable[..., None]:
    """Print the names of columns as a Markdown table; return what prints a row."""

    def write(*cells: object) -> None:
        print(f"| {' | '.join(str(shown(cell)) for cell in cells)} |", flush=True)

    write(*columns)
    print("|" + "---|" * len(columns), flush=True)
    return write
