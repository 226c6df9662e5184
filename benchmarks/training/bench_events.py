"""Speed of training steps: models in which every token passes the blocks, and with events.

Run from the top of the repository: `python -m benchmarks.training.bench_events --data data/pop909`.
The models have the shape of `recall/base.yaml` and train on windows of the validation split, on one
thread, in float32 or with `--bfloat16`, in turns. Prints the median CPU time of a step, with the
shares of the forward pass, the backward pass and the optimizer, and tokens and notes per second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

import training
from benchmarks.timing import csv_output, run
from relpe.models.decoder import DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig
from tokenization.presets import load_tokenizer
from tokenization.remi.vocabulary import closing_ids
from training.config import OptimizerConfig, build, read_yaml
from training.data.corpus import Corpus, windows
from training.experiment import build_experiment
from training.learning.chunked_loss import negative_log_likelihoods
from training.learning.muon import Muon, parameter_groups

HYBRID = build(
    tuple[LayerConfig, ...],  # pyright: ignore[reportArgumentType]
    [
        {"count": 3},
        {"attention": {"kind": "windowed", "span": 640}, "encoding": {"kind": "algebraic"}},
    ],
)
DELTA = build(
    tuple[LayerConfig, ...],  # pyright: ignore[reportArgumentType]
    [
        {"count": 3, "attention": {"kind": "delta"}, "encoding": {"kind": "algebraic"}},
        {"attention": {"kind": "windowed", "span": 640}, "encoding": {"kind": "algebraic"}},
    ],
)


class Trained:
    """A model in training, and the CPU times of its steps."""

    def __init__(
        self, config: DecoderConfig, optimizer: OptimizerConfig, *, bfloat16: bool
    ) -> None:
        self.bfloat16 = bfloat16
        torch.manual_seed(0)
        self.decoder = config.build()
        groups = parameter_groups(self.decoder, 0.1, orthogonalized=True)
        dtype = torch.bfloat16 if bfloat16 else torch.float32
        self.optimizer = Muon(groups, lr=1e-3, betas=optimizer.betas, dtype=dtype)
        self.times: list[tuple[float, float, float]] = []

    def step(self, batch: torch.Tensor) -> None:
        """Train one step on tokens (b, l + 1)."""
        moments = [time.process_time()]
        state = self.decoder.init_state(len(batch), seed=1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            [nats] = negative_log_likelihoods(self.decoder, batch, state)
        moments.append(time.process_time())
        (nats / batch[:, 1:].numel()).backward()
        moments.append(time.process_time())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        moments.append(time.process_time())
        times = np.diff(moments)
        self.times.append((float(times[0]), float(times[1]), float(times[2])))


def main(
    data: Path,
    *,
    length: int = 1024,
    rows: int = 8,
    steps: int = 4,
    models: Sequence[str] = ("flat", "events", "events, 3:1"),
    bfloat16: bool = False,
) -> None:
    """Measure all models in turns."""
    torch.set_num_threads(1)
    path = Path(training.__file__).parent / "configs" / "recall" / "base.yaml"
    experiment = build_experiment(read_yaml(path))
    tokenizer = load_tokenizer(data)
    flat = replace(experiment.task.model, vocabulary_size=len(tokenizer.vocabulary))
    events = EventsConfig(closing=EventsConfig.ranges(closing_ids(tokenizer.vocabulary)))
    configs = {
        "flat": flat,
        "events": replace(flat, events=events),
        "flat, 3:1": replace(flat, layers=HYBRID),
        "events, 3:1": replace(flat, layers=HYBRID, events=events),
        "events, delta 3:1": replace(flat, layers=DELTA, num_heads=4, events=events),
    }
    trained = {
        name: Trained(configs[name], experiment.optimizer, bfloat16=bfloat16) for name in models
    }
    steps += 1  # the first is not counted
    corpus = Corpus.load(data, "validation")
    tokens = torch.from_numpy(windows(corpus, tokenizer, length, steps * rows))
    names = np.array(tokenizer.vocabulary.names)
    notes = np.char.startswith(names, "Pitch_") | np.char.startswith(names, "Drum_")
    share = float(notes[tokens[:, 1:].numpy()].mean())
    for batch in tokens.split(rows):
        for model in trained.values():
            model.step(batch)
    columns = ("forward", "backward", "optimizer", "tokens_per_s", "notes_per_s", "ratio")
    out = csv_output("model", "parameters", "seconds", *columns, packages=["torch"])
    first = 0.0
    for name, model in trained.items():
        size = sum(weight.numel() for weight in model.decoder.parameters())
        times = np.array(model.times[1:])
        seconds = median(times.sum(1).tolist())
        shares = times.sum(0) / times.sum()
        speed = rows * length / seconds
        first = first or speed
        out(name, size, seconds, *shares, speed, speed * share, speed / first)


if __name__ == "__main__":
    run(main)
