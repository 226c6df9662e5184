"""Generation by a released model: speed, time per token at far positions, and memory that stays.

Run from the top of the repository: `python -m benchmarks.bench_decode`. Prints CSV.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import sys
import time

import numpy as np
import torch

from app.continuation import MusicOptions, Result, generate_piece, load_music_model
from relpe.sampling import SamplingOptions, sample


def resident_megabytes() -> float:
    """Peak resident size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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

    torch.set_num_threads(options.threads[0])
    print("token,ms_per_token,peak_MB")
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
    recent: list[float] = []
    last = time.perf_counter()
    for count, _ in enumerate(steps, 1):
        now = time.perf_counter()
        recent.append(1000 * (now - last))
        last = now
        if count in (1000, 10_000) or count == options.tokens:
            print(f"{count},{statistics.median(recent[-1000:]):.2f},{resident_megabytes():.0f}")
            if count == options.tokens:
                break


if __name__ == "__main__":
    main()
