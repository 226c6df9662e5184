"""Accuracy of a classifier on the test examples of its task, and comparison of runs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from relpe.models.config import to_plain
from training.errors import TrainingError
from training.evaluation.costs import costs
from training.evaluation.run_options import RunOptions
from training.experiment import read_experiment
from training.files import replacing
from training.runs.weights import load_classifier_of
from training.tasks.classification.task import ClassificationTask


@dataclass(frozen=True, kw_only=True)
class ClassesOptions(RunOptions):
    """Settings of an evaluation."""

    data: Path | None = None
    """Folder of the data; None: that of the run."""
    split: str = "test"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in ("train", "validation", "test"):
            raise TrainingError(
                f"--split {self.split}: expected train, validation or test for a classifier"
            )


def evaluate_classes(options: ClassesOptions) -> dict[str, Any]:
    """Measure the accuracy of a run on a split of its task; write results.json.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run or its data cannot be used.
    """
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: ClassificationTask = experiment.task
    if options.data is not None:
        task = replace(task, data=options.data)
    model, origin = load_classifier_of(folder, options.weights)
    options.make_ready(model)
    name: Any = options.split
    examples = task.test_set() if name == "test" else task.split(name)
    right, nats = 0, 0.0
    starts = range(0, len(examples), options.batch_size)
    with torch.inference_mode():
        for start in tqdm(starts, desc="evaluate", disable=None, delay=2):
            stop = min(start + options.batch_size, len(examples))
            batch = task.batch(examples, range(start, stop)).to(model.norm.weight.device)
            logits = batch.logits(model)
            right += int((logits.argmax(-1) == batch.labels).sum())
            nats += float(cross_entropy(logits, batch.labels, reduction="sum"))
    count = min(options.batch_size, len(examples))
    first = task.batch(examples, range(count)).to(model.norm.weight.device)
    found = costs(model, lambda: first.logits(model), count)
    results = {
        "model": options.model,
        "weights": origin._asdict(),
        "task": task.kind,
        "data": task.origin,
        "split": options.split,
        "seed": experiment.trainer.seed,
        "parameters": found["parameters"],
        "attention": task.model.attention.name,
        "encoding": task.model.encoding.kind,
        "settings": _without_seed(to_plain(experiment)),
        "examples": len(examples),
        "accuracy": right / len(examples),
        "nats_per_example": nats / len(examples),
        "costs": found,
    }
    options.write(results)
    return results


def _without_seed(plain: dict[str, Any]) -> dict[str, Any]:
    """Settings in which runs of several seeds are equal."""
    return {
        "task": plain["task"],
        "optimizer": plain["optimizer"],
        "budget": [plain["trainer"]["token_budget"], plain["trainer"]["time_budget_minutes"]],
    }


def classes_line(results: Mapping[str, Any]) -> str:
    """The accuracy with its standard error and the number of examples, in one line."""
    share, count = results["accuracy"], results["examples"]
    error = math.sqrt(share * (1 - share) / count)
    return (
        f"{results['task']} ({results['data']}), {results['split']}: {share:.2%} of {count:,} "
        f"examples right (± {error:.2%}), {results['nats_per_example']:.4f} nats per example"
    )


def classes_table(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A Markdown table: a row for each configuration, with mean and deviation over its seeds.

    The deviation is that of a sample, with n - 1; there is none for a single run.
    """
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name, results in entries.items():
        key = json.dumps(
            [results[k] for k in ("task", "data", "split", "settings")], sort_keys=True
        )
        groups.setdefault(key, []).append((name, results))
    lines = [
        "| task | attention | encoding | parameters | accuracy | seeds | examples | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for runs in groups.values():
        of = runs[0][1]
        shares = [100 * results["accuracy"] for _, results in runs]
        spread = f" ± {statistics.stdev(shares):.2f}" if len(shares) > 1 else ""
        seeds = ", ".join(str(results["seed"]) for _, results in runs)
        task = f"{of['task']} ({of['data']}), {of['split']}"
        cells = [task, of["attention"], of["encoding"], f"{of['parameters']:,}"]
        cells += [f"{statistics.mean(shares):.2f}{spread} %", seeds, f"{of['examples']:,}"]
        lines.append("| " + " | ".join([*cells, ", ".join(name for name, _ in runs)]) + " |")
    return lines


def write_classes(entries: Mapping[str, Mapping[str, Any]], output: Path) -> Path:
    """Write the table of some runs to report.md in a folder; return its path."""
    output.mkdir(parents=True, exist_ok=True)
    note = "Mean accuracy and standard deviation (n - 1) over the seeds of each configuration."
    with replacing(output / "report.md") as path:
        path.write_text("\n".join([*classes_table(entries), "", note, ""]), encoding="utf-8")
    return output / "report.md"
