"""Training examples: kinds, padding, and time as a share of a training step.

Run from the top of the repository: `python -m benchmarks.training.bench_examples DATA
mixtures/band`. Prints CSV. DATA is a prepared corpus; length, batch size and shares are those
of the config. `padding` is the share of an example of that kind that would be padding if no other
document followed it. The step trains the model of the config, with new weights, on such examples,
in float32 on one thread; times are CPU times, medians of several steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from pathlib import Path

import torch

import training
from training.config import TrainerConfig, read_yaml
from training.data.documents import Documents
from training.experiment import build_experiment
from training.learning.chunked_loss import negative_log_likelihoods
from training.learning.seeding import generator


def main() -> None:
    """Draws examples of a corpus, and trains on some of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("config", help="a config of training/configs, such as mixtures/band")
    parser.add_argument("--length", type=int, help="tokens per example; default: as in the config")
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = Path(training.__file__).parent / "configs" / f"{options.config}.yaml"
    length = [f"task.length={options.length}"] if options.length else []
    task = build_experiment(read_yaml(path, [f"task.data={options.data}", *length])).task
    examples = task.build_data(TrainerConfig()).examples
    assert isinstance(examples, Documents)
    number, padding = Counter[str](), Counter[str]()
    room = task.length + 1
    documents, left = 0, 0
    for step in range(options.examples):
        drawn = examples.draw(generator(0, step, "data"))
        documents += len(drawn)
        left += max(room - sum(len(one.ids) for one in drawn), 0)
        number[drawn[0].kind] += 1
        padding[drawn[0].kind] += max(room - len(drawn[0].ids), 0)
    print("kind,share,padding")
    for kind, count in number.most_common():
        print(f"{kind},{count / options.examples:.3f},{padding[kind] / count / room:.3f}")
    print("documents per example,padding left,ms per example,ms per step,share of a step")
    times: list[tuple[float, float]] = []
    module = task.build_module(build_experiment(read_yaml(path)).optimizer, TrainerConfig())
    for step in range(options.steps + 1):
        started = time.process_time()
        batch = torch.from_numpy(examples[step])
        middle = time.process_time()
        state = module.decoder.init_state(len(batch), seed=1)
        for nats in negative_log_likelihoods(module.decoder, batch, state):
            (nats / batch.numel()).backward()
        times.append((middle - started, time.process_time() - middle))
    drawing, training_ = (statistics.median(column) for column in zip(*times[1:], strict=True))
    print(
        f"{documents / options.examples:.2f},{left / options.examples / room:.4f},"
        f"{1e3 * drawing / task.batch_size:.1f},{1e3 * (drawing + training_):.0f},"
        f"{drawing / (drawing + training_):.4f}"
    )


if __name__ == "__main__":
    main()
