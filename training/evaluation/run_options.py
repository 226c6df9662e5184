"""Settings and results that evaluations of runs without a corpus have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from relpe.files import atomic_write
from relpe.models.checkpoint import AnyModel
from training.config import MOST_THREADS, ExperimentConfig
from training.errors import TrainingError, check_range
from training.runs.device import choose_device
from training.runs.weights import round_as_released


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Settings of the evaluation of a run."""

    model: str
    """Folder of the run."""
    weights: str = "best"
    batch_size: int = 32
    device: str = "auto"
    threads: int | None = None
    """CPU threads of torch; None: its default."""
    output: Path | None = None
    """Folder for results; None: `evaluation` in the run's folder."""

    def __post_init__(self) -> None:
        check_range("--batch-size", self.batch_size, 1)
        check_range("--threads", self.threads, 1, MOST_THREADS)

    def make_ready(self, model: AnyModel) -> None:
        """Round the weights as for a release, and move the model to the device, to be measured."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        round_as_released(model)
        model.to(choose_device(self.device, "--device")).eval()

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.output or Path(self.model) / "evaluation"

    def write(self, results: dict[str, Any]) -> None:
        """Write results.json."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / "results.json") as path:
            path.write_text(json.dumps(results, indent=1) + "\n")


@dataclass(frozen=True, kw_only=True)
class SplitOptions(RunOptions):
    """Settings of the evaluation of a run on a split of its data."""

    data: Path | None = None
    """Folder of the data; None: that of the run."""
    split: str = "test"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in ("train", "validation", "test"):
            raise TrainingError(f"--split {self.split}: expected train, validation or test")

    def task_of(self, experiment: ExperimentConfig) -> Any:  # noqa: ANN401
        """The task of a run, on the chosen data."""
        task = experiment.task
        return task if self.data is None else replace(task, data=self.data)
