"""CPU time of a training step, compared with another checkout of this repository.

Run from the top of the repository; the other checkout is any commit from cfc8723 on:

    git worktree add ../before cfc8723
    python -m benchmarks.training.bench_step ../before --precision bf16

Prints the median CPU seconds of a step of each checkout and their ratio. A step is forward and
backward pass, clipping and optimizer, with new weights and random tokens, on one thread. Checkouts
alternate, each time in a new process, since other programs on the machine slow down both. No corpus
is needed; `--tokenizer` names the tokenizer of the config's corpus.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenization.presets import PRESETS

STEP = """
import json, sys, time, warnings
from dataclasses import replace
from pathlib import Path
root, config, precision, data, steps = *sys.argv[1:5], int(sys.argv[5])
sys.path.insert(0, root)
warnings.simplefilter("ignore")
import pytorch_lightning as pl
import torch
from training.config import read_yaml
from training.experiment import build_experiment
torch.set_num_threads(1)
experiment = build_experiment(read_yaml(Path(root) / "training" / "configs" / f"{config}.yaml"))
task = replace(experiment.task, data=Path(data))
module = task.build_module(experiment.optimizer, experiment.trainer)
module.trainer = pl.Trainer(
    accelerator="cpu", precision=precision, logger=False, enable_checkpointing=False
)
optimizer = module.configure_optimizers()
tokens = torch.randint(1, task.model.vocabulary_size, (task.batch_size, task.length + 1))

def step():
    begun = time.process_time()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        state = module.decoder.init_state(len(tokens), seed=1)
        for nats in module.losses(tokens, state):
            with torch.autocast("cpu", enabled=False):
                (nats / tokens.numel()).backward()
    torch.nn.utils.clip_grad_norm_(module.decoder.parameters(), 1.0)
    optimizer.step()
    return time.process_time() - begun

step()  # allocates memory
print(json.dumps([step() for _ in range(steps)]))
"""
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}


def main() -> None:
    """Measures both checkouts alternately."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--config", default="piano/long")
    parser.add_argument("--tokenizer", choices=PRESETS, default="piano")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="measured steps per process")
    options = parser.parse_args()
    found: dict[Path, list[float]] = {options.other.resolve(): [], Path.cwd(): []}
    with tempfile.TemporaryDirectory() as data:
        PRESETS[options.tokenizer].build().save(Path(data))
        case = [options.config, PRECISIONS[options.precision], data, str(options.steps)]
        for _ in range(options.rounds):
            for root, seconds in found.items():
                command = [sys.executable, "-c", STEP, str(root), *case]
                done = subprocess.run(command, cwd=root, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                seconds += json.loads(done.stdout.splitlines()[-1])
    other, this = (statistics.median(seconds) for seconds in found.values())
    print("config,precision,other_s,this_s,ratio")
    print(f"{options.config},{options.precision},{other:.3f},{this:.3f},{other / this:.2f}")


if __name__ == "__main__":
    main()
