"""What a run does beside learning: logs, progress, checkpoints, and a clean end on a signal."""

from __future__ import annotations

import csv
import logging
import signal
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger
from tqdm import tqdm

from training.files import replacing

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from training.tasks.music import MusicModule

logger = logging.getLogger(__name__)

COLUMNS: tuple[str, ...] = (
    "step",
    "tokens",
    "seconds",
    "train/nats_per_token",
    "validation/nats_per_token",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
)


class InterruptedRunError(Exception):
    """A signal ended the run after its checkpoint was written."""


class CsvLog(Logger):
    """Appends to `metrics.csv`, so that a resumed run goes on in the same file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._path.stem

    @property
    def version(self) -> str:
        """There is one version."""
        return ""

    def log_hyperparams(self, *_: object, **__: object) -> None:
        """The run folder holds the configuration."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write one row; what is not measured stays empty."""
        row = {key: metrics[key] for key in COLUMNS if key in metrics} | {"step": step}
        new = not self._path.exists()
        with self._path.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


class Report(pl.Callback):
    """Loss, speed and remaining time: to the logs, and to a progress bar or lines of text."""

    def __init__(self, log_every: int, tokens_per_step: int, *, show: bool) -> None:
        self._log_every = log_every
        self._tokens_per_step = tokens_per_step
        self._show = show
        self._losses: list[torch.Tensor] = []
        self._seconds = 0.0
        self._step_started = 0.0
        self._line_shown = -1e9
        self._bar: tqdm[Any] | None = None
        self._start = (0.0, 0.0)

    def on_train_start(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Open the progress bar."""
        self._start = (pl_module.budget.progress(trainer.global_step), time.monotonic())
        if self._show and sys.stderr.isatty():
            self._bar = tqdm(total=100.0, bar_format="{percentage:5.1f}%|{bar}|{postfix}")

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: torch.Tensor,
        batch_idx: int,
    ) -> None:
        """Start the clock of a step."""
        self._step_started = time.monotonic()

    def on_train_batch_end(  # type: ignore[override]
        self,
        trainer: pl.Trainer,
        pl_module: MusicModule,
        outputs: dict[str, torch.Tensor],
        batch: torch.Tensor,
        batch_idx: int,
    ) -> None:
        """Write a line of the logs every few steps."""
        self._losses.append(outputs["loss"].detach())
        self._seconds += time.monotonic() - self._step_started
        step = trainer.global_step
        if step % self._log_every:
            return
        rate = len(self._losses) * self._tokens_per_step / max(self._seconds, 1e-9)
        metrics = {
            "tokens": step * self._tokens_per_step,
            "seconds": pl_module.budget.elapsed(),
            "train/nats_per_token": float(torch.stack(self._losses).mean()),
            "learning_rate": pl_module.budget.learning_rate(step - 1),
            "gradient_norm": pl_module.gradient_norm,
            "tokens_per_second": rate,
        }
        self._losses.clear()
        self._seconds = 0.0
        for log in trainer.loggers:
            log.log_metrics(metrics, step)
        self._show_progress(pl_module.budget.progress(step), step, metrics)

    def _show_progress(self, progress: float, step: int, metrics: dict[str, float]) -> None:
        done, started = self._start
        spent = time.monotonic() - started
        left = spent * max(0.0, 1 - progress) / max(progress - done, 1e-9)
        text = (
            f"step {step}, loss {metrics['train/nats_per_token']:.3f}, "
            f"{metrics['tokens_per_second']:,.0f} tokens/s, {timedelta(seconds=int(left))} left"
        )
        if self._bar is not None:
            self._bar.n = min(100.0, 100 * progress)
            self._bar.set_postfix_str(text)
        elif self._show and time.monotonic() - self._line_shown > 30:
            self._line_shown = time.monotonic()
            logger.info("%5.1f%%  %s", 100 * progress, text)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Log a validation."""
        step = trainer.global_step
        elapsed = pl_module.budget.elapsed()
        for log in trainer.loggers:
            log.log_metrics({"seconds": elapsed, **pl_module.validation}, step)
        if self._show:
            value = pl_module.validation["validation/nats_per_token"]
            with tqdm.external_write_mode(file=sys.stderr):
                logger.info("step %d: validation %.4f nats per token", step, value)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Checkpoints(pl.Callback):
    """Writes `last.ckpt` every few steps, after validations and on a signal, and `best.ckpt`."""

    def __init__(self, folder: Path, every: int) -> None:
        self._folder = folder
        self._every = every
        self._best = float("inf")
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Value of the best checkpoint so far."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the value of the best checkpoint."""
        self._best = state_dict["best"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen for signals: the first one ends the run after the step, a second one at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._handlers[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread
                return

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        signal.signal(number, self._handlers[number] or signal.SIG_DFL)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: pl.Trainer, pl_module: MusicModule, *_: object
    ) -> None:
        """End the run when its budget is spent; write `last.ckpt` when it is due."""
        if pl_module.budget.progress(trainer.global_step) >= 1:
            trainer.should_stop = True
        if self._signal or trainer.should_stop or trainer.global_step % self._every == 0:
            self._save(trainer, "last.ckpt")
        if self._signal:
            raise InterruptedRunError(f"stopped at step {trainer.global_step}")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Write `best.ckpt` when the validation is the best so far, and `last.ckpt`.

        `last.ckpt` says what the best is: a run that goes on from one older than the validation
        would replace a better `best.ckpt`.
        """
        value = pl_module.validation["validation/nats_per_token"]
        if value < self._best:
            self._best = value
            self._save(trainer, "best.ckpt")
        self._save(trainer, "last.ckpt")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Give the signals back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._handlers.clear()

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        with replacing(self._folder / name) as partial:
            trainer.save_checkpoint(partial)
