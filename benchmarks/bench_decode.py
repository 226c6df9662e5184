"""Generation by a released model: speed, time per token at far positions, and memory that stays.

Run from the top of the repository: `python -m benchmarks.bench_decode`. Prints CSV. The long
sequence is written in a process of its own, so that its memory is that of one piece alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from app.continuation import MusicOptions, Result, generate_piece, load_music_model
from relpe.sampling import SamplingOptions, sample


def resident_megabytes() -> float:
    """Resident size of this process now; not a number where Linux does not tell it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Anything:
    """A rule that allows all tokens for ever."""

    def __init__(self, size: int) -> None:
        self.allowed = np.ones(size, bool)

    def advance(self, token: int) -> Anything:
        """Itself."""
        return self


def main() -> None:
    """Prints speed of pieces, then time per token and memory along one long sequence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="piano")
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--bars", type=int, default=32)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    model = load_music_model(options.model, "cpu")
    print(f"# {platform.processor() or platform.machine()}, torch {torch.__version__}")
    print(f"# {' '.join(sys.argv)}")
    print("threads,variations,tokens_per_second,bars_per_second,music_seconds_per_second")
    for threads in options.threads:
        torch.set_num_threads(threads)
        for variations in (1, 4):
            music = MusicOptions(bars=options.bars, seed=0, variations=variations)
            result = list(generate_piece(model, music))[-1]
            assert isinstance(result, Result)
            seconds = sum(float(p.score.seconds_at(p.score.end_ticks)) for p in result.pieces)
            print(
                f"{threads},{variations},{result.tokens_per_second:.0f},"
                f"{result.bars * variations / result.seconds:.2f},{seconds / result.seconds:.1f}"
            )

    print("token,ms_per_token,resident_MB")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own:
        marks = [count for count in (1000, 10_000) if count < options.tokens] + [options.tokens]
        rows = own.submit(long_sequence, options.model, marks, options.threads[0]).result()
    for count, milliseconds, megabytes in rows:
        print(f"{count},{milliseconds:.2f},{megabytes:.0f}")


def long_sequence(
    model_name: str, marks: list[int], threads: int
) -> list[tuple[int, float, float]]:
    """One sequence up to the last of `marks`, numbers of tokens that rise; a row for each of them.

    A row is the number, the median milliseconds of the last 1,000 tokens, and the megabytes that
    this process holds then.
    """
    torch.set_num_threads(threads)
    model = load_music_model(model_name, "cpu")
    rules = [Anything(model.decoder.config.vocabulary_size)]
    steps = sample(
        model.decoder,
        model.decoder.init_state(1),
        torch.tensor([1]),
        0,
        rules,
        SamplingOptions(),
        [torch.Generator().manual_seed(0)],
    )
    recent: deque[float] = deque(maxlen=1000)
    rows: list[tuple[int, float, float]] = []
    last = time.perf_counter()
    for count, _ in enumerate(steps, 1):
        now = time.perf_counter()
        recent.append(1000 * (now - last))
        last = now
        if count in marks:
            rows.append((count, statistics.median(recent), resident_megabytes()))
        if count >= marks[-1]:
            break
    return rows


if __name__ == "__main__":
    main()
