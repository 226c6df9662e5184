"""Comparison of causal attention operations: time, memory, difference from float64.

Run from the top of the repository: `python -m benchmarks.relpe.bench_attention`. Prints CSV, the
targets, and Markdown with `--table`. All implementations take turns in one process; results are
medians of CPU time with one thread, and of wall time with two. Memory is the growth of the peak
resident size of a separate process. Packages that are not installed (`pip install -e ".[bench]"`)
are skipped with a notice.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from benchmarks.relpe.attention_ways import (
    DELTA,
    FEATURES,
    HEADS,
    OURS,
    SOFTMAX,
    WIDTH,
    Way,
    call,
    inputs,
    ways,
)
from benchmarks.relpe.timing import (
    growth,
    in_new_process,
    print_machine,
    times_as_fast,
    turns,
)
from relpe.attention.linear.chunked import tiling

if TYPE_CHECKING:
    from torch import Tensor

LENGTHS = (512, 2048, 8192)
TARGETS = {
    ("float32", "train", OURS, SOFTMAX, 2048): 2.2,
    ("float32", "train", OURS, SOFTMAX, 8192): 8.0,
    ("float32", "train", OURS, "linear: performer-pytorch", 2048): 35.0,
    ("bfloat16", "train", OURS, SOFTMAX, 2048): 3.0,
    ("float32", "train", DELTA, SOFTMAX, 1024): 1.0,
    ("float32", "train", DELTA, SOFTMAX, 8192): 4.0,
}
"""Dtype, mode, our way, another one, the length, and how many times faster ours is to be."""
TOO_SLOW_MS = 3000.0
"""If a call takes more CPU time than this, larger lengths are not measured."""
PEAK_SHARE = 0.2
"""Target for our training step at 2,048: its rate, as a share of that of large products."""


def timed(
    chosen: dict[str, Way], tensors: list[Tensor], repeats: int, *, train: bool, cpu: bool
) -> dict[str, list[float]]:
    """Milliseconds per call of implementations that take turns, after a warm-up call of each."""
    torch.set_num_threads(1 if cpu else 2)
    calls = {name: partial(call, way, tensors, train=train) for name, way in chosen.items()}
    turns(calls, 1)
    return turns(calls, repeats, time.process_time if cpu else time.perf_counter)


def grown(name: str, length: int, dtype: torch.dtype, *, train: bool) -> float:
    """Megabytes by which this process grows in one call, inputs excluded."""
    torch.set_num_threads(1)
    way = ways()[name]
    call(way, inputs(64, dtype, train=train), train=train)
    return growth(partial(call, way, inputs(length, dtype, train=train), train=train))


def error(way: Way, length: int, dtype: torch.dtype) -> float:
    """Largest difference from the result in float64, relative to its largest number."""
    tensors = inputs(min(length, 1024), dtype, train=False)
    exact = [x.double() for x in tensors]
    wanted = way.exact(*exact)
    found = call(way, tensors, train=False).double()
    return float((found - wanted).abs().max() / wanted.abs().max())


def product_rate(dtype: torch.dtype) -> float:
    """GFLOP/s of large matrix products with one thread, best of five."""
    torch.set_num_threads(1)
    a, b = torch.randn(2, 1024, 1024).to(dtype).unbind(0)
    times = turns({"product": lambda: torch.mm(a, b)}, 6)["product"]
    return 2 * 1024**3 / min(times[1:]) / 1e6


def training_operations(length: int, chunk: int) -> float:
    """Floating-point operations of our forward and backward products, masked half included."""
    f, e = FEATURES, WIDTH
    forward = chunk * (f + e) + 2 * f * e
    backward = chunk * (2 * e + 3 * f) + 5 * f * e
    return 2.0 * length * HEADS * (forward + backward)


class Measured(NamedTuple):
    """Results of one implementation at one length."""

    setting: tuple[str, str, str, int]  # dtype, mode, way, length
    cpu: float  # ms
    wall: float  # ms
    megabytes: float
    ratio: float  # of its CPU time to ours; median over the turns
    wall_ratio: float
    error: float

    @property
    def line(self) -> str:
        """CSV."""
        return (
            f"{','.join(map(str, self.setting))},{self.cpu:.1f},{self.wall:.1f},"
            f"{self.megabytes:.0f},{self.ratio:.2f},{self.wall_ratio:.2f},{self.error:.0e}"
        )

    @property
    def cells(self) -> str:
        """Markdown."""
        return (
            f"| {' | '.join(map(str, self.setting))} | {self.cpu:.0f} | {self.wall:.0f} | "
            f"{self.megabytes:.0f} | {self.ratio:.1f}× |"
        )


def verdicts_of(found: list[Measured]) -> list[str]:
    """Whether our speed-ups reach their targets."""
    times = {row.setting: row.cpu for row in found}
    verdicts: list[str] = []
    for (dtype, mode, ours, other, length), target in TARGETS.items():
        own, theirs = (times.get((dtype, mode, way, length)) for way in (ours, other))
        if own is not None and theirs is not None:
            reached = "reached" if theirs / own >= target else "not reached"
            verdicts.append(
                f"{dtype}, {mode}, {length}: {ours} is {theirs / own:.1f} times faster than "
                f"{other}, target {target:g}: {reached}"
            )
    return verdicts


def measure(
    everything: dict[str, Way], length: int, dtype: torch.dtype, *, train: bool, repeats: int
) -> list[Measured]:
    """Measures all implementations that support a length."""
    chosen = {
        name: way
        for name, way in everything.items()
        if (way.half or dtype == torch.float32) and length <= (way.longest or length)
    }
    tensors = inputs(length, dtype, train=train)
    wall, cpu = (timed(chosen, tensors, repeats, train=train, cpu=clock) for clock in (False, True))
    return [
        Measured(
            (str(dtype)[6:], "train" if train else "forward", name, length),
            statistics.median(cpu[name]),
            statistics.median(wall[name]),
            in_new_process(grown, name, length, dtype, train=train),
            times_as_fast(cpu, OURS, name),
            times_as_fast(wall, OURS, name),
            error(way, length, dtype),
        )
        for name, way in chosen.items()
    ]


def share_of_peak(found: Measured, rates: dict[str, float]) -> str:
    """Rate of our training step, compared with that of large products."""
    dtype, _, _, length = found.setting
    how = tiling(torch.device("cpu"), getattr(torch, dtype), torch.float32)
    rate = training_operations(length, how.chunk) / found.cpu / 1e6
    share = rate / rates[dtype]
    target = ""
    if dtype == "bfloat16":
        target = f", target {PEAK_SHARE:.0%}: {'' if share >= PEAK_SHARE else 'not '}reached"
    return (
        f"{dtype}, train, {length}: {rate:.0f} GFLOP/s, {share:.0%} of large products of that "
        f"type; factors are {str(how.dtype)[6:]}{target}"
    )


def main() -> None:
    """Prints CSV, targets and, with `--table`, a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="only these besides ours")
    parser.add_argument("--table", action="store_true", help="also print Markdown")
    options = parser.parse_args()
    print_machine("torch")
    print("# threads: 1 for CPU time, 2 for wall")
    print(f"# b=1 h={HEADS} f={FEATURES} e={WIDTH}; softmax: h={HEADS} d=e={WIDTH}")
    rates = {str(dtype)[6:]: product_rate(dtype) for dtype in (torch.float32, torch.bfloat16)}
    print(f"# products of 1024 x 1024, GFLOP/s at 1 thread: {rates}")
    everything = ways()
    if options.ways is not None:
        unknown = [name for name in options.ways if name not in everything]
        if unknown:
            parser.error(f"--ways: found {unknown}, expected some of {[*everything]}")
        everything = {name: everything[name] for name in (OURS, *options.ways)}
    print(
        "dtype,mode,way,length,cpu_ms_1_thread,wall_ms_2_threads,peak_MB,"
        "ours_times_faster,ours_times_faster_wall,error_from_float64"
    )
    rows, verdicts = [], []
    for dtype in (torch.float32, torch.bfloat16):
        for train in (False, True):
            able = dict(everything)
            for length in sorted(options.lengths):
                found = measure(able, length, dtype, train=train, repeats=options.repeats)
                print("\n".join(row.line for row in found), flush=True)
                rows += found
                for row in found:
                    if row.cpu > TOO_SLOW_MS:
                        del able[row.setting[2]]
                verdicts += verdicts_of(found)
                if train and length == 2048:
                    verdicts.append(share_of_peak(found[0], rates))
    print("\n".join(f"# {verdict}" for verdict in verdicts))
    if options.table:
        print("\n| dtype | mode | way | N | CPU ms | wall ms | peak MB | ours is faster |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(row.cells for row in rows))


if __name__ == "__main__":
    main()
