"""Comparison of positional encodings with their authors' implementations: time and memory.

Run from the top of the repository: `python -m benchmarks.relpe.bench_encodings`. Prints CSV, or
Markdown with `--table`; `--only` selects cases whose name and mode contain a text. Both
implementations take turns in one process, with new noise each time, and codes are shared by layers;
results are medians of CPU time on one thread, and of wall time on `--threads`. On a busy machine,
wall times are meaningless and take long to measure; `--threads 0` skips them. Memory is the growth
of the peak resident size of a new process in one call on one thread. A full run takes about half an
hour.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.relpe.comparison import Measured, compare
from benchmarks.relpe.encoding_cases import CASES, WINDOWED, Shape
from benchmarks.timing import csv_output, run, table_output

LENGTHS = (1024, 2048, 4096, 8192, 16_384)
"""Lengths at which windowed attention is timed, at the span of `Shape`."""
SPANS = (64, 128, 256, 512, 1024)
"""Spans at which it is timed, at `SPAN_LENGTH` positions."""
SPAN_LENGTH = 8192


def prepare(index: int, shape: Shape, method: str, short: bool) -> Callable[[], object]:
    """Return one call of a method of a case after another, each with new noise."""
    case, seeds = CASES[index], itertools.count()
    pair = case.pair(shape._replace(length=min(shape.length, 32)) if short else shape)
    function = pair.methods[method]
    return lambda: case.call(pair, function, next(seeds))


def main(
    length: int = 2048, repeats: int = 5, threads: int = 2, only: str = "", *, table: bool = False
) -> None:
    """Measure the chosen cases."""
    cases = [case for case in CASES if only in f"{case.name}, {case.mode}"]
    if not cases:
        sys.exit(f"--only {only}: expected a part of one of {[case.name for case in CASES]}")
    plain, scale = Shape(length=length), length / Shape().length
    print(f"# b=1 {' '.join(f'{name}={size}' for name, size in plain._asdict().items())}")
    columns = ("case", "mode", "method", "length", "span", *Measured._fields)
    out = table_output(*columns) if table else csv_output(*columns, packages=["torch"])
    windowed = [plain._replace(length=int(n * scale)) for n in LENGTHS]
    windowed += [plain._replace(length=int(SPAN_LENGTH * scale), span=span) for span in SPANS]
    for case in cases:
        for shape in windowed if case is WINDOWED else [plain]:
            methods, index = case.pair(shape).methods, CASES.index(case)
            makers = {name: partial(prepare, index, shape, name) for name in methods}
            for name, measured in compare(makers, repeats, threads).items():
                out(case.name, case.mode, name, shape.length, shape.span, *measured)


if __name__ == "__main__":
    run(main)
