"""Memory and time of one training step, forward and backward, at several lengths.

Run from the top of the repository: `python -m benchmarks.training.bench_training`. Prints CSV. Each
case trains the model of a config, with new weights, on one example of random tokens, in float32 on
one thread, in a separate process. The example is processed as a whole, with recomputed activations,
or in chunks. `peak_MB` is the peak resident memory of that process. `base_MB` is the peak before
the step: torch, the weights and a step of 32 tokens.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import training
from training.config import read_yaml
from training.experiment import build_experiment
from training.learning.chunked_loss import compute_again, negative_log_likelihoods

CONFIGS = ("recall/flat_delta", "recall/flat_windowed")
WAYS = ("whole", "recomputed", "chunks", "truncated")


def main() -> None:
    """Measures all cases, each in a separate process; with `--one`, one case in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 65536])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["chunks", "truncated"])
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--one", action="store_true", help="measure the first case here")
    options = parser.parse_args()
    if options.one:
        print(measure(options.configs[0], options.lengths[0], options.ways[0], options.chunk))
        return
    print(f"# {platform.machine()}, torch {torch.__version__}")
    print(f"# {' '.join(sys.argv)}")
    print("config,length,way,chunk,base_MB,peak_MB,seconds", flush=True)
    for config in options.configs:
        for length in options.lengths:
            for way in options.ways:
                case = ["--configs", config, "--lengths", str(length), "--ways", way]
                command = [sys.executable, "-m", "benchmarks.training.bench_training", "--one"]
                subprocess.run([*command, *case, "--chunk", str(options.chunk)], check=True)


def measure(config: str, length: int, way: str, chunk: int) -> str:
    """One row of the table."""
    torch.set_num_threads(1)
    path = Path(training.__file__).parent / "configs" / f"{config}.yaml"
    model = build_experiment(read_yaml(path)).task.model
    torch.manual_seed(0)
    decoder = model.build()
    if way == "recomputed":
        compute_again(decoder)
    tokens = torch.randint(1, model.vocabulary_size, (1, length + 1))
    cut = chunk if way in ("chunks", "truncated") else None

    def step(batch: torch.Tensor) -> None:
        state = decoder.init_state(1, seed=1)
        truncated = way == "truncated"
        for nats in negative_log_likelihoods(decoder, batch, state, cut, truncated=truncated):
            (nats / (batch.shape[1] - 1)).backward()

    step(tokens[:, :33])
    base = peak_megabytes()
    started = time.monotonic()
    step(tokens)
    seconds = time.monotonic() - started
    taken = "" if cut is None else cut
    return f"{config},{length},{way},{taken},{base:.0f},{peak_megabytes():.0f},{seconds:.1f}"


def peak_megabytes() -> float:
    """Peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
