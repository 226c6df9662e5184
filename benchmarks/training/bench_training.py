"""Memory and time of one training step, forward and backward, at several lengths.

Run from the top of the repository: `python -m benchmarks.training.bench_training`. Prints CSV. Each
case trains the model of a config, with new weights, on one example of random tokens, in float32 on
one thread, in a separate process. The example is processed as a whole, with recomputed activations,
or in chunks. `peak_MB` is the peak resident memory of that process. `base_MB` is the peak before
the step: torch, the weights and a step of 32 tokens.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

import training
from benchmarks.timing import csv_output, in_new_process, peak_megabytes, run
from training.config import read_yaml
from training.experiment import build_experiment
from training.learning.chunked_loss import compute_again, negative_log_likelihoods

CONFIGS = ("recall/flat_delta", "recall/flat_windowed")
Way = Literal["whole", "recomputed", "chunks", "truncated"]


def main(
    configs: Sequence[str] = CONFIGS,
    lengths: Sequence[int] = (4096, 65536),
    ways: Sequence[Way] = ("chunks", "truncated"),
    chunk: int = 1024,
) -> None:
    """Measure all cases, each in a separate process."""
    columns = ("config", "length", "way", "chunk", "base_MB", "peak_MB", "seconds")
    out = csv_output(*columns, packages=["torch"])
    for config, length, way in itertools.product(configs, lengths, ways):
        cut = chunk if way in ("chunks", "truncated") else None
        out(config, length, way, cut, *in_new_process(measure, config, length, way, cut))


def measure(config: str, length: int, way: Way, cut: int | None) -> tuple[float, float, float]:
    """Return the megabytes before the step, and at most; seconds of the step."""
    torch.set_num_threads(1)
    path = Path(training.__file__).parent / "configs" / f"{config}.yaml"
    model = build_experiment(read_yaml(path)).task.model
    torch.manual_seed(0)
    decoder = model.build()
    if way == "recomputed":
        compute_again(decoder)
    tokens = torch.randint(1, model.vocabulary_size, (1, length + 1))

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
    return base, peak_megabytes(), seconds


if __name__ == "__main__":
    run(main)
