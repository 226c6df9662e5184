r"""CPU time of a training step, compared with another checkout of this repository.

Run from the top of the repository; the other checkout is any commit from cfc8723 on:

    git worktree add ../before cfc8723
    python -m benchmarks.training.bench_step ../before --precision bf16

Prints the median CPU seconds of a step of each checkout and their ratio. A step is forward and
backward pass, clipping and optimizer, with new weights and random tokens, on one thread. Checkouts
alternate, each time in a new process, since other programs on the machine slow down both. No corpus
is needed; `--tokenizer` names the tokenizer of the config's corpus.

With `--midi FOLDER`, steps read the MIDI files in a folder, and the last figure is the ratio of
notes per second, also of models with different vocabularies:

    python -m benchmarks.training.bench_step ../before --other-config recall/events_windowed \
        --config release/relpe --tokenizer multitrack-2 --midi data/midi
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.plan import analyse
from tokenization.midi.reader import read_midi
from tokenization.presets import PRESETS
from tokenization.remi.remi import Remi
from training.data.corpus import note_ids
from training.data.reading import Reading

STEP = """
import json, sys, time, warnings
from dataclasses import replace
from pathlib import Path
root, config, precision, data, steps, given = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
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
if given != "random":
    import numpy as np
    read = torch.from_numpy(np.load(given))
    tokens = read[: tokens.numel()].view(tokens.shape)

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
print(json.dumps([tokens.flatten().tolist(), [step() for _ in range(steps)]]))
"""
MOST_TOKENS = 2**17
"""Tokens that are read from MIDI files: enough for a step of any config."""
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}


def main() -> None:
    """Measures both checkouts alternately."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--config", default="recall/events_delta")
    parser.add_argument("--other-config", help="default: the same")
    parser.add_argument("--tokenizer", choices=PRESETS, default="piano-2")
    parser.add_argument("--other-tokenizer", choices=PRESETS, default="piano-2")
    parser.add_argument("--midi", type=Path, help="folder of MIDI files, in place of random tokens")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="measured steps per process")
    options = parser.parse_args()
    found: dict[str, list[float]] = {"other": [], "this": []}
    notes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = {
            "other": (
                options.other.resolve(),
                options.other_config or options.config,
                options.other_tokenizer,
            ),
            "this": (Path.cwd(), options.config, options.tokenizer),
        }
        for _ in range(options.rounds):
            for name, (root, config, preset) in cases.items():
                data, given = Path(folder) / name, "random"
                tokenizer = PRESETS[preset].build()
                if not data.exists():
                    data.mkdir()
                    tokenizer.save(data)
                    if options.midi is not None:
                        np.save(data / "tokens.npy", tokens_of(options.midi, tokenizer))
                if options.midi is not None:
                    given = str(data / "tokens.npy")
                case = [config, PRECISIONS[options.precision], str(data), str(options.steps), given]
                command = [sys.executable, "-c", STEP, str(root), *case]
                done = subprocess.run(command, cwd=root, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                read, seconds = json.loads(done.stdout.splitlines()[-1])
                found[name] += seconds
                notes[name] = int(np.isin(read, note_ids(tokenizer)).sum())
    seconds = {name: statistics.median(times) for name, times in found.items()}
    print("config,precision,other_s,this_s,ratio,other_notes,this_notes,ratio_of_notes_per_s")
    ratio = seconds["other"] / seconds["this"]
    print(
        f"{options.config},{options.precision},{seconds['other']:.3f},{seconds['this']:.3f},"
        f"{ratio:.2f},{notes['other']},{notes['this']},"
        f"{ratio * notes['this'] / notes['other']:.2f}"
    )


def tokens_of(folder: Path, tokenizer: Remi) -> NDArray[np.int64]:
    """The tokens of the MIDI files in a folder, with plans; repeated if too few."""
    pieces: list[NDArray[np.int64]] = []
    for path in sorted(folder.rglob("*.mid")):
        score = Reading().prepared(read_midi(path.read_bytes()))
        pieces.append(tokenizer.encode(score, analyse(score)).ids.astype(np.int64))
        if sum(map(len, pieces)) > MOST_TOKENS:
            break
    if not pieces:
        sys.exit(f"bench_step: {folder}: no MIDI files (*.mid) found")
    return np.resize(np.concatenate(pieces), MOST_TOKENS)


if __name__ == "__main__":
    main()
