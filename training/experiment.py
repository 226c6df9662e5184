"""The tasks there are, and experiments of them, from plain values or from a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.config import ExperimentConfig, build, read_yaml
from training.errors import TrainingError
from training.tasks.music import MusicTask

Task = MusicTask
TASKS: dict[str, type[Task]] = {"music": MusicTask}


def build_experiment(mapping: Mapping[str, Any], where: str = "config") -> ExperimentConfig:
    """Experiment of plain values; its task is built by its kind.

    Raises:
        TrainingError: a value does not fit; names its place within `where`.
    """
    values = dict(mapping)
    section = values.get("task")
    if not isinstance(section, dict):
        raise TrainingError(f"{where}.task: missing, expected the section of a task")
    kind = section.get("kind", "music")
    if kind not in TASKS:
        raise TrainingError(
            f"{where}.task.kind: found {kind!r}, expected one of {', '.join(TASKS)}"
        )
    values["task"] = build(TASKS[kind], section, f"{where}.task")
    return build(ExperimentConfig, values, where)


def is_run(folder: Path) -> bool:
    """Whether `relpe-train fit` has written the folder."""
    return (folder / "config.yaml").is_file()


def read_experiment(folder: Path) -> ExperimentConfig:
    """Experiment of a run folder, as its last session resolved it.

    Raises:
        TrainingError: config.yaml is missing or damaged.
    """
    path = folder / "config.yaml"
    return build_experiment(read_yaml(path), str(path))
