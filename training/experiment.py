"""Building of experiments from plain values or from the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.config import ExperimentConfig, build, read_yaml
from training.errors import TrainingError
from training.tasks.copying import CopyingTask
from training.tasks.images.cifar10 import Cifar10Task
from training.tasks.images.digits import DigitsTask
from training.tasks.images.mnist import MnistTask
from training.tasks.images.mnist1d import Mnist1dTask
from training.tasks.images.pixels import PixelsTask
from training.tasks.lra.image import LraImageTask
from training.tasks.lra.listops import ListOpsTask
from training.tasks.lra.pathfinder import PathfinderTask
from training.tasks.lra.retrieval import LraRetrievalTask
from training.tasks.lra.text import LraTextTask
from training.tasks.music import MusicTask
from training.tasks.permutations import PermutationsTask
from training.tasks.recall import RecallTask
from training.tasks.series.classes import SeriesTask
from training.tasks.series.forecasting import ForecastingTask
from training.tasks.series.harmonization import HarmonizationTask
from training.tasks.series.piano_rolls import PianoRollTask
from training.tasks.task import Task
from training.tasks.transduction.sequences import SequenceTransductionTask
from training.tasks.transduction.translation import TranslationTask
from training.tasks.transduction.tree_task import TreeTask

TASKS: dict[str, type[Task]] = {
    "music": MusicTask,
    "recall": RecallTask,
    "copying": CopyingTask,
    "permutations": PermutationsTask,
    "listops": ListOpsTask,
    "lra_text": LraTextTask,
    "lra_retrieval": LraRetrievalTask,
    "lra_image": LraImageTask,
    "pathfinder": PathfinderTask,
    "cifar10": Cifar10Task,
    "mnist": MnistTask,
    "mnist1d": Mnist1dTask,
    "digits": DigitsTask,
    "pixels": PixelsTask,
    "sequence_transduction": SequenceTransductionTask,
    "tree_transduction": TreeTask,
    "translation": TranslationTask,
    "series": SeriesTask,
    "forecasting": ForecastingTask,
    "piano_rolls": PianoRollTask,
    "harmonization": HarmonizationTask,
}


def build_experiment(mapping: Mapping[str, Any], where: str = "config") -> ExperimentConfig:
    """Build an experiment from plain values; `kind` selects the task.

    Raises:
        TrainingError: a value is invalid; the message names its key within `where`.
    """
    values = dict(mapping)
    section = values.get("task")
    if not isinstance(section, dict):
        raise TrainingError(f"{where}.task: missing, expected a section that describes a task")
    kind = section.get("kind", "music")
    if kind not in TASKS:
        raise TrainingError(
            f"{where}.task.kind: found {kind!r}, expected one of {', '.join(TASKS)}"
        )
    values["task"] = build(TASKS[kind], section, f"{where}.task")
    return build(ExperimentConfig, values, where)


def is_run(folder: Path) -> bool:
    """Return whether a folder was written by `relpe-train fit`."""
    return (folder / "config.yaml").is_file()


def read_experiment(folder: Path) -> ExperimentConfig:
    """Read the experiment of a run from its config.yaml.

    Raises:
        TrainingError: config.yaml is missing or damaged.
    """
    path = folder / "config.yaml"
    return build_experiment(read_yaml(path), str(path))
