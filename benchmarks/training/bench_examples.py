"""Training examples: kinds, padding, and time as a share of a training step.

Run from the top of the repository: `python -m benchmarks.training.bench_examples DATA
mixtures/band`. Prints CSV. DATA is a prepared corpus; length, batch size and shares are those
of the config. `padding` is the share of an example of that kind that would be padding if no other
document followed it. The step trains the model of the config, with new weights, on such examples,
in float32 on one thread; times are CPU times, medians of several steps.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path

import torch

import training
from benchmarks.timing import csv_output, run
from training.config import TrainerConfig, read_yaml
from training.data.documents import Documents
from training.experiment import build_experiment
from training.learning.chunked_loss import negative_log_likelihoods
from training.learning.seeding import generator


def main(
    data: Path, config: str, /, *, length: int | None = None, examples: int = 500, steps: int = 3
) -> None:
    """Draw examples of a corpus, and train on some of them."""
    torch.set_num_threads(1)
    path = Path(training.__file__).parent / "configs" / f"{config}.yaml"
    settings = [f"task.data={data}", *([f"task.length={length}"] if length else [])]
    task = build_experiment(read_yaml(path, settings)).task
    source = task.build_data(TrainerConfig()).examples
    assert isinstance(source, Documents)
    number, padding = Counter[str](), Counter[str]()
    room = task.length + 1
    documents, left = 0, 0
    for step in range(examples):
        drawn = source.draw(generator(0, step, "data"))
        documents += len(drawn)
        left += max(room - sum(len(one.ids) for one in drawn), 0)
        number[drawn[0].kind] += 1
        padding[drawn[0].kind] += max(room - len(drawn[0].ids), 0)
    out = csv_output("kind", "share", "padding", packages=["torch"])
    for kind, count in number.most_common():
        out(kind, count / examples, padding[kind] / count / room)
    out("documents per example", "padding left", "ms per example", "ms per step", "share of a step")
    times: list[tuple[float, float]] = []
    module = task.build_module(build_experiment(read_yaml(path)).optimizer, TrainerConfig())
    for step in range(steps + 1):
        started = time.process_time()
        batch = torch.from_numpy(source[step])
        middle = time.process_time()
        state = module.decoder.init_state(len(batch), seed=1)
        for nats in negative_log_likelihoods(module.decoder, batch, state):
            (nats / batch.numel()).backward()
        times.append((middle - started, time.process_time() - middle))
    drawing, training_ = (statistics.median(column) for column in zip(*times[1:], strict=True))
    step_time = drawing + training_
    out(
        *(documents / examples, left / examples / room),
        *(1e3 * drawing / task.batch_size, 1e3 * step_time, drawing / step_time),
    )


if __name__ == "__main__":
    run(main)
