"""What encodings and attentions can recall, copy and track: accuracy on generated tasks.

    python -m benchmarks.training.bench_tasks --runs FOLDER
    python -m benchmarks.training.bench_tasks --runs FOLDER --table

The first command trains and evaluates a small model for each row, task and seed, 40 to 200
CPU seconds each, one after another: all rows of a task, then the next task, then the next seed. It
skips those that are done, so that it may be stopped at any time, and the same command resumes it.
The second prints the tables of what is done so far. `--list` prints the runs and trains nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path

import training
from training.cli import main as relpe_train

CONFIGS = Path(training.__file__).parent / "configs" / "tasks"
TASKS = ("recall", "copying", "parity", "s3", "s5")
SINE = "{kind: sine_spe, num_sines: 5, num_realizations: 32, gated: true}"
CONV = "{kind: conv_spe, num_realizations: 32, gated: true}"
FAVOR = "{kind: linear, feature_map: {kind: favor}}"
DECAY = "{kind: linear, half_lives: [4, 1024]}"
WINDOW = "{kind: windowed, span: 64}"
ROWS = {
    "linear, none": ("{kind: linear}", "{kind: none}"),
    "linear, sine SPE": ("{kind: linear}", SINE),
    "linear, convolutional SPE": ("{kind: linear}", CONV),
    "linear (FAVOR+), algebraic": (FAVOR, "{kind: algebraic}"),
    "linear with decay, none": (DECAY, "{kind: none}"),
    "linear with decay, sine SPE": (DECAY, SINE),
    "delta, none": ("{kind: delta}", "{kind: none}"),
    "delta, algebraic": ("{kind: delta}", "{kind: algebraic}"),
    "delta, selective RoPE": ("{kind: delta}", "{kind: selective_rope}"),
    "delta with negative eigenvalues, none": (
        "{kind: delta, negative_eigenvalues: true}",
        "{kind: none}",
    ),
    "window of 64, SIREN": (WINDOW, "{kind: siren}"),
    "window of 64, ALiBi": (WINDOW, "{kind: alibi}"),
    "window of 64, RoPE": (WINDOW, "{kind: rope}"),
    "softmax, none": ("{kind: softmax}", "{kind: none}"),
    "softmax, RoPE": ("{kind: softmax}", "{kind: rope}"),
    "softmax, selective RoPE": ("{kind: softmax}", "{kind: selective_rope}"),
    "softmax, algebraic": ("{kind: softmax}", "{kind: algebraic}"),
    "linear, none, with a pointer": ("{kind: linear}", "{kind: none}"),
}
"""Attention and encoding of each row, as settings of `relpe-train fit`."""
POINTER = f"{{gates: {{similar: [-20, {', '.join(str(4 + n) for n in range(25))}]}}}}"
"""A pointer that is sure of any match, and surer of longer ones."""


def main() -> int:
    """Trains what is missing, or prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print the tables")
    parser.add_argument("--list", action="store_true", help="print the runs")
    options = parser.parse_args()
    if options.table:
        for task in options.tasks:
            print("\n".join(table(options.runs, task, options.rows, options.seeds)))
        return 0
    for seed, task, row in itertools.product(options.seeds, options.tasks, options.rows):
        folder = folder_of(options.runs, task, row, seed)
        done = (folder / "evaluation" / "results.json").exists()
        if options.list:
            print(folder, "done" if done else "")
        elif not done:
            code = run(folder, task, row, seed)
            if code:
                return code
    return 0


def folder_of(runs: Path, task: str, row: str, seed: int) -> Path:
    """Folder of a run."""
    name = "".join(letter if letter.isalnum() else "_" for letter in row)
    return runs / task / f"{name}_{seed}"


def run(folder: Path, task: str, row: str, seed: int) -> int:
    """Trains and evaluates one model; returns the exit code."""
    attention, encoding = ROWS[row]
    settings = (
        f"task.model.attention={attention}",
        f"task.model.encoding={encoding}",
        f"trainer.seed={seed}",
        *((f"task.model.pointer={POINTER}",) if "pointer" in row else ()),
    )
    fit = ["fit", "--config", str(CONFIGS / f"{task}.yaml"), "--run", str(folder)]
    code = relpe_train([*fit, *(part for one in settings for part in ("--set", one))])
    return code or relpe_train(["evaluate", "--run", str(folder), "--threads", "1"])


def table(runs: Path, task: str, rows: list[str], seeds: list[int]) -> list[str]:
    """Lines of a table: token accuracy and exact match at each size, means over seeds."""
    lines: list[str] = []
    for row in rows:
        paths = (folder_of(runs, task, row, seed) / "evaluation" for seed in seeds)
        found = [
            json.loads((path / "results.json").read_text())
            for path in paths
            if (path / "results.json").exists()
        ]
        if not found:
            continue
        if not lines:
            sizes = " | ".join(found[0]["answers"])
            lines += [f"{task}, chance {found[0]['chance']:.1%}", ""]
            lines += [f"| attention, encoding | {sizes} | seeds |"]
            lines += ["|---|" + "---|" * (len(found[0]["answers"]) + 1)]
        cells = [_cell([one["answers"][size] for one in found]) for size in found[0]["answers"]]
        lines.append(f"| {row} | {' | '.join(cells)} | {len(found)} |")
    return [*lines, ""]


def _cell(answers: list[dict[str, float]]) -> str:
    """Token accuracy, its standard deviation over seeds if there are several, and exact match."""
    tokens = [100 * one["tokens"] for one in answers]
    spread = f" ± {statistics.stdev(tokens):.0f}" if len(tokens) > 1 else ""
    exact = statistics.mean(100 * one["examples"] for one in answers)
    return f"{statistics.mean(tokens):.0f}{spread}, {exact:.0f}"


if __name__ == "__main__":
    sys.exit(main())
