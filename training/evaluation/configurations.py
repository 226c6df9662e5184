"""What results say about the configuration of a run, and runs that differ in their seeds only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relpe.models.config import to_plain
from training.config import ExperimentConfig
from training.runs.weights import Origin


def facts_of_run(
    model: str, experiment: ExperimentConfig, origin: Origin, costs: Mapping[str, Any]
) -> dict[str, Any]:
    """What the results of any evaluation say about a run.

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
    """Name of an encoding for tables: its kind, and its structure if it has one."""
    structure = encoding.get("structure")
    return encoding["kind"] if structure is None else f"{encoding['kind']}, {structure['kind']}"


def by_settings(
    entries: Mapping[str, Mapping[str, Any]],
) -> list[tuple[list[str], list[Mapping[str, Any]]]]:
    """Names and results of the runs of each configuration, which differ in their seeds."""
    groups: dict[str, tuple[list[str], list[Mapping[str, Any]]]] = {}
    for name, results in entries.items():
        measured = [results.get(key) for key in ("task", "data", "split", "settings")]
        names, runs = groups.setdefault(json.dumps(measured, sort_keys=True), ([], []))
        names.append(name)
        runs.append(results)
    return [*groups.values()]
