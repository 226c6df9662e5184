"""Sine SPE, fused, beside the codes themselves multiplied out: time, peak memory, error.

Run from the top of the repository: `python -m benchmarks.bench_encodings`. Both are timed in turns
in one process; memory is the growth of the peak resident size of a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from relpe import reference
from relpe.encodings import sine_spe
from relpe.encodings.sine_spe import SineSPE, SineSPEConfig

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS, FEATURES, SINES, DRAWS = 8, 64, 5, 64


def build() -> SineSPE:
    """The encoding of the comparison, gated."""
    torch.manual_seed(0)
    config = SineSPEConfig(num_sines=SINES, num_realizations=DRAWS)
    return config.build(num_layers=1, num_heads=HEADS, head_dim=FEATURES)


def case(method: str, length: int, *, train: bool) -> Callable[[], torch.Tensor]:
    """A call that encodes one sequence, with gradients if `train`."""
    sine_spe.SHARED_CODE_BYTES = 0
    encoding = build()
    noise = encoding.init_state(0, torch.device("cpu"))
    q, k = torch.randn(2, 1, length, HEADS, FEATURES).requires_grad_(train).unbind(0)
    positions = torch.arange(length)

    def run() -> torch.Tensor:
        with torch.set_grad_enabled(train):
            if method == "fused":
                codes, _ = encoding.prepare(positions[None, :, None], noise)
                a, b = encoding.encode(q, k, codes, 0)
            else:
                a, b = reference.apply_sine_spe(encoding, q, k, positions, noise, 0)
            if train:
                (a.sum() + b.sum()).backward()
        return a.detach()

    return run


def peak_megabytes() -> float:
    """Peak resident size of this process (Linux; getrusage would report the parent's)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _peak(method: str, length: int, train: bool, queue: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    run = case(method, 256, train=train)
    run()
    before = peak_megabytes()
    case(method, length, train=train)()
    queue.put(peak_megabytes() - before)


def peak(method: str, length: int, *, train: bool) -> float:
    """Peak memory of a call, inputs included, in MB."""
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue = context.Queue()
    process = context.Process(target=_peak, args=(method, length, train, queue))
    process.start()
    megabytes = queue.get()
    process.join()
    return megabytes


def main() -> None:
    """Prints a table as CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"# {platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread")
    print(f"# {' '.join(sys.argv)}: h={HEADS} d={FEATURES} k={SINES} r={DRAWS} gated")
    print("mode,method,length,milliseconds,ratio,peak_MB,ratio")
    for train in (False, True):
        runs = {name: case(name, options.length, train=train) for name in ("direct", "fused")}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.repeats):
            for name, run in runs.items():
                started = time.process_time()
                run()
                times[name].append(1000 * (time.process_time() - started))
        ratio = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
        memory = {name: peak(name, options.length, train=train) for name in runs}
        for name, values in times.items():
            against = (ratio, memory["direct"] / memory["fused"]) if name == "fused" else (1.0, 1.0)
            print(
                f"{'train' if train else 'forward'},{name},{options.length},"
                f"{statistics.median(values):.0f},{against[0]:.1f},{memory[name]:.0f},{against[1]:.1f}"
            )


if __name__ == "__main__":
    main()
