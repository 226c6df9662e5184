"""Accuracy of a classifier on the test examples of its task, and comparison of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from relpe.files import atomic_write
from training.evaluation.configurations import by_settings, facts_of_run, mean_of
from training.evaluation.costs import costs
from training.evaluation.run_options import SplitOptions
from training.experiment import read_experiment
from training.runs.weights import load_classifier_of
from training.tasks.classification.task import ClassificationTask


@dataclass(frozen=True, kw_only=True)
class ClassesOptions(SplitOptions):
    """Settings of an evaluation."""


def evaluate_classes(options: ClassesOptions) -> dict[str, Any]:
    """Measure the accuracy of a run on a split of its task; write results.json.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run or its data cannot be used.
    """
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: ClassificationTask = options.task_of(experiment)
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
    results = facts_of_run(options.model, experiment, origin, found) | {
        "task": task.kind,
        "data": task.origin,
        "split": options.split,
        "examples": len(examples),
        "accuracy": right / len(examples),
        "nats_per_example": nats / len(examples),
    }
    options.write(results)
    return results


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
    lines = [
        "| task | attention | encoding | parameters | accuracy | seeds | examples | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for names, runs in by_settings(entries):
        of = runs[0]
        share = mean_of([100 * results["accuracy"] for results in runs], 2)
        seeds = ", ".join(str(results["seed"]) for results in runs)
        task = f"{of['task']} ({of['data']}), {of['split']}"
        cells = [task, of["attention"], of["encoding"], f"{of['parameters']:,}"]
        cells += [f"{share} %", seeds, f"{of['examples']:,}", ", ".join(names)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def write_classes(entries: Mapping[str, Mapping[str, Any]], output: Path) -> Path:
    """Write the table of some runs to report.md in a folder; return its path."""
    output.mkdir(parents=True, exist_ok=True)
    note = "Mean accuracy and standard deviation (n - 1) over the seeds of each configuration."
    with atomic_write(output / "report.md") as path:
        path.write_text("\n".join([*classes_table(entries), "", note, ""]), encoding="utf-8")
    return output / "report.md"
