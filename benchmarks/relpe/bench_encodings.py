"""Comparison of positional encodings with their authors' implementations: time, memory, difference.

Run from the top of the repository: `python -m benchmarks.relpe.bench_encodings`. Prints CSV and,
with `--table`, Markdown after it. Both implementations take turns in one process, with new noise
each time; results are medians of CPU time on one thread, and of wall time on several. On a busy
machine, wall times are meaningless and take long to measure; `--threads 0` skips them. Memory is
the growth of the peak resident size of a new process in one call on one thread. A full run takes
about half an hour.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from benchmarks.relpe.encoding_cases import CASES, LAYERS, WINDOWED, Case, Method, Pair, Shape
from benchmarks.relpe.timing import (
    growth,
    in_new_process,
    medians,
    print_machine,
    times_as_fast,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

LENGTHS = (1024, 2048, 4096, 8192, 16_384)
"""Lengths in the table of windowed attention, at the span of `Shape`."""
SPANS = (64, 128, 256, 512, 1024)
"""Spans in the same table, at `SPAN_LENGTH` positions."""
SPAN_LENGTH = 8192
CHECKED_LENGTH = 512
"""Longest sequence that is compared with float64."""
PATIENCE = 45.0
"""Seconds after which no further turn of a case is started."""
STRAIGHT = 0.99
"""Time is called linear if R^2 is above this."""


class Row(NamedTuple):
    """Measurements of one case."""

    case: Case
    shape: Shape
    turns: int
    cpu_ms: dict[Method, float]  # medians
    wall_ms: dict[Method, float]
    peak_mb: dict[Method, float]
    faster: float  # median ratio over the turns; NaN without a naive form
    wall_faster: float
    difference: float  # of ours and naive in float32, relative to the largest number
    errors: dict[Method, float]  # of each method in float32 from float64, at a short length

    @property
    def leaner(self) -> float:
        """Memory of the naive form divided by ours."""
        return self.peak_mb.get("naive", float("nan")) / self.peak_mb["ours"]

    @property
    def verdicts(self) -> list[str]:
        """Each target, and whether it was reached."""
        wanted = (
            ("faster", self.case.faster, self.faster),
            ("leaner", self.case.leaner, self.leaner),
        )
        return [
            f"at least {target:g} times {what}: {found:.1f}, "
            + ("reached" if found >= target else "not reached")
            for what, target, found in wanted
            if target is not None
        ]


def differences(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Largest difference of two tensors, relative to the largest number of the expected one."""
    pairs = zip(found, wanted, strict=True)
    ratios = ((a.double() - b.double()).abs().amax() / b.double().abs().amax() for a, b in pairs)
    return max(float(ratio) for ratio in ratios)


def errors(case: Case, shape: Shape) -> dict[Method, float]:
    """Difference of each method in float32 from the naive one in float64, if there is one.

    Empty in training, where gradients are only compared in float32: in float64, those of a grouped
    convolution would take minutes.
    """
    if case.train:
        return {}
    shape = shape._replace(length=min(shape.length, CHECKED_LENGTH))
    exact, single = case.pair(shape, torch.float64), case.pair(shape)
    if exact.checked is None or single.checked is None:
        return {}
    wanted = case.call(exact, exact.checked, 1)
    return {
        "naive": differences(case.call(single, single.checked, 1), wanted),
        "ours": differences(case.call(single, single.ours, 1), wanted),
    }


def timed(
    case: Case, shape: Shape, repeats: int, clock: Callable[[], float]
) -> dict[Method, list[float]]:
    """Milliseconds per call of both methods, which take turns, after a short call of each."""
    short, pair = case.pair(shape._replace(length=min(shape.length, 64))), case.pair(shape)
    methods: list[Method] = ["ours"] if pair.naive is None else ["naive", "ours"]
    ways: dict[Method, Callable[[], object]] = {}
    for name in methods:
        case.call(short, short.way(name), 0)
        seeds = itertools.count()  # new noise in each call
        ways[name] = partial(_next_call, case, pair, name, seeds)
    return turns(ways, repeats, clock, patience=PATIENCE)


def _next_call(case: Case, pair: Pair, name: Method, seeds: Iterator[int]) -> None:
    case.call(pair, pair.way(name), next(seeds))


def peak(case: Case, shape: Shape, method: Method) -> float:
    """Megabytes by which a new process grows in one call, inputs included."""
    return in_new_process(_grown, CASES.index(case), shape, method)


def _grown(index: int, shape: Shape, method: Method) -> float:
    torch.set_num_threads(1)
    case = CASES[index]

    def run(shape: Shape) -> None:
        pair = case.pair(shape)
        case.call(pair, pair.way(method), 0)

    run(shape._replace(length=min(shape.length, 32)))
    return growth(partial(run, shape))


def measure(case: Case, shape: Shape, repeats: int, threads: int) -> Row:
    """All measurements of one case; wall time with `threads` threads, skipped if 0."""
    torch.set_num_threads(max(threads, 1))
    error, difference, pair = errors(case, shape), float("nan"), case.pair(shape)
    if pair.checked is not None:
        found = case.call(pair, pair.ours, 1)
        difference = differences(found, case.call(pair, pair.checked, 1))
    wall = timed(case, shape, repeats, time.perf_counter) if threads else {}
    torch.set_num_threads(1)
    cpu = timed(case, shape, repeats, time.process_time)

    def ratio(times: dict[Method, list[float]]) -> float:
        return times_as_fast(times, "ours", "naive") if "naive" in times else float("nan")

    return Row(
        case,
        shape,
        len(cpu["ours"]),
        medians(cpu),
        medians(wall),
        {name: peak(case, shape, name) for name in cpu},
        ratio(cpu),
        ratio(wall),
        difference,
        error,
    )


def straightness(x: Sequence[float], y: Sequence[float]) -> float:
    """R^2 of the best straight line through the points."""
    return statistics.correlation(x, y) ** 2


def windowed_verdicts(by_length: list[Row], by_span: list[Row]) -> list[str]:
    """Whether windowed attention is linear in the length, and cheaper at shorter spans."""
    lengths = [float(row.shape.length) for row in by_length]
    fit = straightness(lengths, [row.cpu_ms["ours"] for row in by_length])
    times = [row.cpu_ms["ours"] for row in by_span]
    falls = all(a < b for a, b in itertools.pairwise(times))
    steps = ", ".join(f"{row.shape.span}: {row.cpu_ms['ours']:.0f} ms" for row in by_span)
    return [
        f"time is linear in length, R^2 above {STRAIGHT}: {fit:.5f}, "
        + ("reached" if fit > STRAIGHT else "not reached"),
        f"time falls with the span ({steps}): " + ("reached" if falls else "not reached"),
    ]


HEADER = (
    "case,mode,method,length,span,turns,cpu_ms_1_thread,wall_ms,peak_MB,"
    "times_faster,times_faster_wall,times_leaner,difference,error_from_float64"
)


def as_csv(row: Row) -> str:
    """One CSV line for each method."""
    lines = []
    for method in row.cpu_ms:
        ratios = (row.faster, row.wall_faster, row.leaner, row.difference)
        against = ratios if method == "ours" else (1.0, 1.0, 1.0, 0.0)
        wall, error = (x.get(method, float("nan")) for x in (row.wall_ms, row.errors))
        lines.append(
            f'"{row.case.name}",{row.case.mode},{method},{row.shape.length},{row.shape.span},'
            f"{row.turns},{row.cpu_ms[method]:.3f},{wall:.3f},{row.peak_mb[method]:.0f},"
            f"{against[0]:.2f},{against[1]:.2f},{against[2]:.1f},{against[3]:.1e},{error:.1e}"
        )
    return "\n".join(lines)


def as_table(rows: list[Row], threads: int) -> str:
    """A Markdown table with naive → ours, and the ratio."""
    wall = f"wall ms, {threads} threads"
    lines = [
        f"| encoding | N | CPU ms, 1 thread | | {wall} | | peak MB | | difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row.case.name + (", training" if row.case.train else "")
        if row.case is WINDOWED:
            name += f", span {row.shape.span}"
        cells = []
        ratios = (row.faster, row.wall_faster, row.leaner)
        for found, ratio in zip((row.cpu_ms, row.wall_ms, row.peak_mb), ratios, strict=True):
            cells.append(
                " → ".join(f"{number:.{0 if number > 9 else 1}f}" for number in found.values())
            )
            cells.append(f"{ratio:.1f}×" if ratio == ratio else "")
        difference = f"{row.difference:.0e}" if row.difference == row.difference else ""
        lines.append(f"| {name} | {row.shape.length} | {' | '.join(cells)} | {difference} |")
    return "\n".join(lines)


def main() -> None:
    """Prints CSV, targets and, with `--table`, a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=Shape().length)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="threads for wall times; 0: none")
    parser.add_argument("--only", default="", help="cases whose name and mode contain this")
    parser.add_argument("--table", action="store_true", help="also print Markdown")
    options = parser.parse_args()
    shape = Shape(length=options.length)
    chosen = [case for case in CASES if options.only in f"{case.name}, {case.mode}"]
    if not chosen:
        parser.error(f"--only {options.only}: expected a part of one of {[c.name for c in CASES]}")

    print_machine("torch")
    print(f"# threads: 1 for CPU time and memory, {options.threads} for wall time")
    print(f"# b=1 {' '.join(f'{name}={size}' for name, size in shape._asdict().items())}")
    print(f"# noise is drawn anew in each call; of {LAYERS} layers both ways share the codes")
    print(HEADER)
    rows, verdicts = [], []

    def add(case: Case, shape: Shape) -> Row:
        row = measure(case, shape, options.repeats, options.threads)
        rows.append(row)
        print(as_csv(row), flush=True)
        verdicts.extend(f"{case.name}, {case.mode}: {found}" for found in row.verdicts)
        return row

    for case in chosen:
        if case is not WINDOWED:
            add(case, shape)
            continue
        scale = options.length / Shape().length
        by_length = [add(case, shape._replace(length=int(n * scale))) for n in LENGTHS]
        length = int(SPAN_LENGTH * scale)
        by_span = [add(case, shape._replace(length=length, span=span)) for span in SPANS]
        verdicts += [f"windowed, {found}" for found in windowed_verdicts(by_length, by_span)]
    for verdict in verdicts:
        print(f"# target {verdict}")
    if options.table:
        print(as_table(rows, options.threads))


if __name__ == "__main__":
    main()
