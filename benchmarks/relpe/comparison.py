"""Time and memory of several ways to compute the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from benchmarks.timing import growth, in_new_process, times_as_fast, turns

Maker = Callable[[bool], Callable[[], object]]
"""Makes inputs, short ones if True, and returns a call with them. It can be pickled."""
PATIENCE = 45.0
"""Seconds after which no further turn of a comparison is started."""


class Measured(NamedTuple):
    """Measurements of one way."""

    turns: int
    cpu_ms_1_thread: float
    """Median over the turns."""
    wall_ms: float
    """Median with several threads; NaN if not measured."""
    peak_mb: float
    """Megabytes by which a new process grows in one call, inputs included."""
    times_ours: float
    """CPU time divided by that of the first way, median over the turns."""
    times_ours_wall: float


def compare(makers: Mapping[str, Maker], repeats: int, threads: int) -> dict[str, Measured]:
    """Measure ways that take turns in this process, after a short call of each.

    CPU time is that on one thread, wall time that on `threads` threads; 0: not measured.
    """
    ours = next(iter(makers))
    by_clock: list[dict[str, list[float]]] = []
    for clock, count in ((time.process_time, 1), (time.perf_counter, threads)):
        if not count:
            by_clock.append({name: [float("nan")] for name in makers})
            continue
        torch.set_num_threads(count)
        for make in makers.values():
            make(True)()
        ways = {name: make(False) for name, make in makers.items()}
        by_clock.append(turns(ways, repeats, clock, patience=PATIENCE))
    cpu, wall = by_clock
    return {
        name: Measured(
            len(cpu[name]),
            statistics.median(cpu[name]),
            statistics.median(wall[name]),
            in_new_process(_grown, make),
            times_as_fast(cpu, ours, name),
            times_as_fast(wall, ours, name),
        )
        for name, make in makers.items()
    }


def _grown(make: Maker) -> float:
    torch.set_num_threads(1)
    make(True)()
    return growth(lambda: make(False)())
