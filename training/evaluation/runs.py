"""Evaluation of runs of all tasks but music, and tables of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from relpe.files import write_text
from relpe.models.config import to_plain
from training.config import ExperimentConfig
from training.errors import TrainingError
from training.evaluation.costs import costs, costs_line
from training.evaluation.options import EvaluateOptions
from training.experiment import TASKS, read_experiment
from training.files import markdown
from training.runs.device import choose_device
from training.runs.weights import Origin, load_run, round_as_released
from training.tasks.task import Results, Split, Task


def evaluate_run(options: EvaluateOptions) -> list[str]:
    """Measure a run on the data of its task and write results.json; return lines to print.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run or its data cannot be used.
    """
    if options.split not in get_args(Split):
        raise TrainingError(f"--split {options.split}: expected train, validation or test")
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: Task = experiment.task
    if options.data is not None:
        task = replace(task, data=options.data)
    model, origin = load_run(folder, options.weights)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    round_as_released(model)
    model.to(choose_device(options.device, "--device")).eval()
    split: Any = options.split
    measured = task.evaluate(model, folder, split, options.batch_size or task.evaluated_at_once)
    cost = costs(model, measured.call, measured.batch_size)
    results = facts_of_run(options.model, experiment, origin, cost) | measured.results
    output = options.output or folder / "evaluation"
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / "results.json", json.dumps(results, indent=1) + "\n")
    measured.write(output)
    lines = task.summary(results)
    return [*lines, costs_line(cost)] if lines else run_table({options.model: results})


def task_of(results: Results) -> type[Task] | None:
    """Return the class of the task of some results; None: music."""
    kind = results.get("settings", {}).get("task", {}).get("kind")
    return TASKS.get(kind)


def run_table(entries: Mapping[str, Results]) -> list[str]:
    """Return a Markdown table: rows for each configuration, with mean and deviation over its seeds.

    The deviation is that of a sample, with n - 1; there is none for a single run.
    """
    rows: list[dict[str, str]] = []
    for names, runs in by_settings(entries):
        first = runs[0]
        task = task_of(first)
        assert task is not None
        seeds = ", ".join(str(results["seed"]) for results in runs)
        rows += [
            {
                "task": cells["task"],
                "attention": first["attention"],
                "encoding": first["encoding"],
                "parameters": f"{first['parameters']:,}",
                **cells,
                "seeds": seeds,
                "runs": ", ".join(names),
            }
            for cells in task.columns(runs)
        ]
    return markdown([[*rows[0]], *([*row.values()] for row in rows)])


def write_runs(entries: Mapping[str, Results], output: Path) -> Path:
    """Write the table of some runs of one task to report.md in a folder; return its path."""
    results: Sequence[Results] = [*entries.values()]
    task = task_of(results[0])
    assert task is not None
    output.mkdir(parents=True, exist_ok=True)
    notes = [line for note in task.notes(results) for line in ("", note)]
    write_text(output / "report.md", "\n".join([*run_table(entries), *notes, ""]))
    return output / "report.md"


def facts_of_run(
    model: str, experiment: ExperimentConfig, origin: Origin, costs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the results of any evaluation say about a run.

    The `settings` are equal for runs that differ in their seeds only.
    """
    settings = to_plain(experiment)
    model_of, plain = experiment.task.model, settings["task"]["model"]
    attentions = [one.attention or model_of.attention for one in getattr(model_of, "layers", ())]
    attentions = attentions or [model_of.attention]
    encodings = [one["encoding"] or plain["encoding"] for one in plain.get("layers", ())]
    encodings = encodings or [plain["encoding"]]
    budget = [settings["trainer"][key] for key in ("token_budget", "time_budget_minutes")]
    return {
        "model": model,
        "weights": origin._asdict(),
        "seed": experiment.trainer.seed,
        "parameters": costs["parameters"],
        "costs": costs,
        "attention": ", ".join(dict.fromkeys(one.name for one in attentions)),
        "encoding": ", ".join(dict.fromkeys(map(encoding_name, encodings))),
        "settings": {
            "task": settings["task"],
            "optimizer": settings["optimizer"],
            "budget": budget,
        },
    }


def encoding_name(encoding: Mapping[str, Any]) -> str:
    """Return the name of an encoding for tables: its kind, and its structure if it has one."""
    structure = encoding.get("structure")
    return encoding["kind"] if structure is None else f"{encoding['kind']}, {structure['kind']}"


def by_settings(
    entries: Mapping[str, Mapping[str, Any]],
) -> list[tuple[list[str], list[Mapping[str, Any]]]]:
    """Return names and results of the runs of each configuration, which differ in their seeds."""
    groups: dict[str, tuple[list[str], list[Mapping[str, Any]]]] = {}
    for name, results in entries.items():
        measured = [results.get(key) for key in ("task", "data", "split", "settings")]
        names, runs = groups.setdefault(json.dumps(measured, sort_keys=True), ([], []))
        names.append(name)
        runs.append(results)
    return [*groups.values()]
