"""Loggers of a run: a CSV file, TensorBoard and Weights & Biases."""

from __future__ import annotations

import csv
import importlib
import secrets
from pathlib import Path
from types import ModuleType
from typing import Any

from relpe.files import atomic_write, write_text
from relpe.inspect.plots import draw, pictures
from relpe.models.config import to_plain
from training.config import ExperimentConfig, TrainerConfig
from training.errors import TrainingError

COLUMNS: tuple[str, ...] = (
    "step",
    "tokens",
    "seconds",
    "train/nats_per_token",
    "validation/nats_per_token",
    "train/nats_per_example",
    "validation/nats_per_example",
    "validation/accuracy",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
    "memory_gib",
    "gpu_memory_gib",
    "encoding_change",
    "mean_span",
    "receptive_field",
    "outgrown_spans",
)
"""Columns of metrics.csv. Classifiers fill those per example and accuracy, other tasks those per
token. `gpu_memory_gib` is empty without a GPU; the last four are empty if the encoding has no
parameters or no window."""


class Log:
    """Where the metrics of a run go."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Write the metrics of a step."""
        raise NotImplementedError

    def draw(self, model: Any, step: int) -> None:  # noqa: ANN401 - of any task
        """Draw what the encoding of a model has learned; only TensorBoard has pictures."""

    def close(self, *, failed: bool) -> None:
        """End logging; `failed`: the run was stopped."""


def build_loggers(
    config: ExperimentConfig, folder: Path, start: int, *, is_due: bool = False
) -> list[Log]:
    """Return the loggers of a segment that starts after step `start`; `is_due` is as in `CsvLog`.

    Raises:
        TrainingError: the package of a logger is not installed.
    """
    loggers: list[Log] = [CsvLog(folder / "metrics.csv", start, is_due=is_due)]
    if "tensorboard" in config.trainer.loggers:
        loggers.append(BoardLog(folder / "tensorboard", start))
    if "wandb" in config.trainer.loggers:
        loggers.append(WandbLog(folder, to_plain(config)))
    return loggers


def check_loggers(settings: TrainerConfig) -> None:
    """Check, before anything is written, that the packages of the loggers are installed.

    Raises:
        TrainingError: the package of a logger is not installed.
    """
    if "wandb" in settings.loggers:
        _import_wandb()


def _import_wandb() -> ModuleType:
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise TrainingError(
            f"trainer.loggers contains wandb, which is not installed ({error}); run pip install "
            "wandb, or remove it from trainer.loggers"
        ) from error


class CsvLog(Log):
    """Appends to `metrics.csv`; a resumed run continues the file.

    Rows after `step` are removed, since a run that was killed repeats these steps. An incomplete
    last row is removed too. If the validation of `step` `is_due`, an earlier row of it is removed.
    """

    def __init__(self, path: Path, step: int = 0, *, is_due: bool = False) -> None:
        self._path = path
        if path.exists():
            with path.open(newline="") as stream:
                rows = [row for row in csv.DictReader(stream) if _is_kept(row, step, is_due=is_due)]
            with atomic_write(path) as partial, partial.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(rows)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Write one row; missing metrics stay empty."""
        row = {key: metrics[key] for key in COLUMNS if key in metrics} | {"step": step}
        new = not self._path.exists()
        with self._path.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def _is_kept(row: dict[str, str | None], step: int, *, is_due: bool) -> bool:
    """Return whether to keep a row of `metrics.csv`; see `CsvLog`."""
    number = row.get("step") or ""
    if None in row.values() or not number.isdecimal() or int(number) > step:
        return False
    validated = any(row.get(name) for name in COLUMNS if name.startswith("validation/"))
    return not (is_due and int(number) == step and validated)


class BoardLog(Log):
    """Logs to TensorBoard, without what a run that was killed wrote after `step`."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder, purge_step=step + 1)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Add a point to the curve of each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def draw(self, model: Any, step: int) -> None:  # noqa: ANN401 - of any task
        """Draw what the encoding has learned; see `relpe.inspect`."""
        for name, picture in pictures(model).items():
            self._writer.add_figure(f"encoding/{name}", draw(picture), step)

    def close(self, *, failed: bool) -> None:
        """Write what is left."""
        self._writer.close()


class WandbLog(Log):
    """Logs to Weights & Biases, where all segments of a run are one run.

    Project, account and mode come from the package's own settings, such as `WANDB_PROJECT` and
    `WANDB_MODE=offline`.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        wandb = _import_wandb()
        named = folder / "wandb" / "id"
        if not named.exists():
            named.parent.mkdir(parents=True, exist_ok=True)
            write_text(named, secrets.token_hex(4))
        self._run = wandb.init(
            dir=str(folder),
            name=folder.name,
            id=named.read_text("utf-8"),
            resume="allow",
            config=config,
        )
        # a resumed run repeats steps, which the default step counter of W&B rejects
        self._run.define_metric("*", step_metric="step")

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Send the metrics of a step."""
        self._run.log({**metrics, "step": step})

    def close(self, *, failed: bool) -> None:
        """End logging."""
        self._run.finish(exit_code=int(failed))
