"""Callbacks of a run: progress, checkpoints and signals."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from tqdm import tqdm

from training.config import TrainerConfig
from training.learning.distributed import any_of
from training.runs.device import memory_in_use
from training.tasks.module import TaskModule

logger = logging.getLogger(__name__)

FORETOLD = 5
"""Steps of a segment after which it is foretold whether the budget ends before the warm-up."""


class InterruptedRunError(Exception):
    """A signal stopped the run, after a checkpoint was written."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.number = number
        """The number of the signal."""


class Report(pl.Callback):
    """Writes loss, speed, memory and remaining time to the logs and the terminal."""

    def __init__(self, log_every: int, tokens_per_step: int, *, show: bool) -> None:
        self._log_every = log_every
        self._tokens_per_step = tokens_per_step
        self._show = show
        self._losses: list[torch.Tensor] = []
        self._timed = 0
        """Steps since the last entry in this segment, which took `_seconds`."""
        self._seconds = 0.0
        self._since: float | None = None
        self._line_shown = -1e9
        self._bar: tqdm[Any] | None = None
        self._start = (0.0, 0.0)
        self._first = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: TaskModule[Any]) -> None:  # type: ignore[override]
        """Open the progress bar."""
        self._start = (pl_module.budget.progress(trainer.global_step), time.monotonic())
        self._first = trainer.global_step
        if self._show and sys.stderr.isatty():
            self._bar = tqdm(total=100.0, bar_format="{percentage:5.1f}%|{bar}|{postfix}")

    def state_dict(self) -> dict[str, Any]:
        """The losses since the last entry, so that the next one is that of an uninterrupted run."""
        return {"losses": [float(loss) for loss in self._losses]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the losses."""
        self._losses = [torch.tensor(loss) for loss in state_dict["losses"]]

    def on_train_batch_start(self, *_: object) -> None:  # type: ignore[override]
        """Start timing, unless the previous step is still timed, as is the loading of data."""
        if self._since is None:
            self._since = time.monotonic()

    def _take_time(self) -> float:
        """Add the time since the last call; return the current time."""
        now = time.monotonic()
        self._seconds += 0.0 if self._since is None else now - self._since
        return now

    def on_validation_start(self, *_: object) -> None:  # type: ignore[override]
        """Stop timing; checkpoints and loading of data are timed, validations are not."""
        self._take_time()
        self._since = None

    def on_train_batch_end(  # type: ignore[override]
        self,
        trainer: pl.Trainer,
        pl_module: TaskModule[Any],
        outputs: dict[str, torch.Tensor],
        *_: object,
    ) -> None:
        """Log the metrics every `log_every` steps."""
        self._losses.append(outputs["nats_per_target"])  # the loss may include penalties
        self._since = self._take_time()
        self._timed += 1
        step = trainer.global_step
        if step == self._first + FORETOLD:
            pl_module.budget.foresee(step, self._start[0], FORETOLD)
        if step % self._log_every:
            return
        tokens = self._timed * self._tokens_per_step
        loss = float(torch.stack(self._losses).mean())
        metrics = {
            "tokens": step * self._tokens_per_step,
            "seconds": pl_module.budget.elapsed(),
            f"train/nats_per_{pl_module.target}": loss,
            "learning_rate": pl_module.budget.learning_rate(step - 1),
            "gradient_norm": pl_module.gradient_norm,
            "tokens_per_second": tokens / max(self._seconds, 1e-9),
            **memory_in_use(pl_module.device),
            **pl_module.encoding_metrics(),
        }
        self._losses, self._timed, self._seconds = [], 0, 0.0
        for log in trainer.loggers:
            log.log_metrics(metrics, step)
        self._show_progress(pl_module.budget.progress(step), step, loss, metrics)

    def _show_progress(
        self, progress: float, step: int, loss: float, metrics: dict[str, float]
    ) -> None:
        done, started = self._start
        spent = time.monotonic() - started
        left = spent * max(0.0, 1 - progress) / max(progress - done, 1e-9)
        text = (
            f"step {step}, loss {loss:.3f}, "
            f"{metrics['tokens_per_second']:,.0f} tokens/s, {timedelta(seconds=int(left))} left"
        )
        for key, name in (("memory_gib", ""), ("gpu_memory_gib", " on the GPU")):
            text += f", {metrics[key]:.1f} GiB{name}" if key in metrics else ""
        if self._bar is not None:
            self._bar.n = min(100.0, 100 * progress)
            self._bar.set_postfix_str(text)
        elif self._show and time.monotonic() - self._line_shown > 30:
            self._line_shown = time.monotonic()
            logger.info("%5.1f%%  %s", 100 * progress, text)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: TaskModule[Any]) -> None:  # type: ignore[override]
        """Log the result of a validation."""
        step = trainer.global_step
        spent = {"tokens": step * self._tokens_per_step, "seconds": pl_module.budget.elapsed()}
        for log in trainer.loggers:
            log.log_metrics(spent | pl_module.validation, step)
        if self._show:
            value = pl_module.validation_loss
            assert value is not None
            with tqdm.external_write_mode(file=sys.stderr):
                logger.info(
                    "step %d: validation %.4f nats per %s%s",
                    *(step, value, pl_module.target, accuracy_text(pl_module.validation)),
                )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def accuracy_text(validation: Mapping[str, float]) -> str:
    """The share of right classes of a validation, after a comma; "" if it has none."""
    share = validation.get("validation/accuracy")
    return "" if share is None else f", {share:.1%} right"


class Checkpoints(pl.Callback):
    """Writes the checkpoints `last.ckpt` and `best.ckpt`.

    `last.ckpt` is written at regular intervals, after validations and on a signal. Without
    validation both have the same weights.
    """

    def __init__(self, folder: Path, settings: TrainerConfig, *, validates: bool) -> None:
        self._folder = folder
        self._settings = settings
        self._validates = validates
        self._best = float("inf")
        self._due: int | None = None
        self._signal: int | None = None
        self._module: TaskModule[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._saved = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """The best validation so far, and the step whose validation is due."""
        return {"best": self._best, "due": self._due}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state."""
        self._best, self._due = state_dict["best"], state_dict["due"]

    @classmethod
    def is_due(cls, checkpoint: dict[str, Any]) -> bool:
        """Whether a run that resumes from this checkpoint must validate first."""
        held = checkpoint["callbacks"].get(cls.__qualname__, {})
        return held.get("due") == checkpoint["global_step"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: TaskModule[Any]) -> None:  # type: ignore[override]
        """Handle signals: the first stops the run after the step, the second immediately.

        Also run the validation that was due when the run was stopped, if any.
        """
        self._module = pl_module
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._handlers[number] = signal.signal(number, self._note) or signal.SIG_DFL
            except ValueError:  # not in the main thread
                break
        if self._validates and self._due == trainer.global_step:
            _validate(trainer)
        # the processes do not share a clock yet
        spent = pl_module.budget.progress(trainer.global_step) >= 1
        trainer.should_stop = any_of(trainer, spent)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        assert self._module is not None
        self._module.asked_to_stop = True
        signal.signal(number, self._handlers[number])

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: pl.Trainer, pl_module: TaskModule[Any], *_: object
    ) -> None:
        """Stop when the budget is used up; write checkpoints when they are due."""
        step = trainer.global_step
        if pl_module.budget.progress(step) >= 1:
            trainer.should_stop = True
        stopped_by = None
        if pl_module.stops:  # all processes stop at the same step
            stopped_by = self._signal or signal.SIGTERM
        validation = trainer.should_stop or step % self._settings.validate_every == 0
        self._due = step if validation and self._validates else None
        minutes = (time.monotonic() - self._saved) / 60
        late = any_of(trainer, minutes >= self._settings.checkpoint_minutes)
        if stopped_by or trainer.should_stop or late or step % self._settings.checkpoint_every == 0:
            self._save(trainer, "last.ckpt")
            if not self._validates:
                self._save(trainer, "best.ckpt")
        if stopped_by:
            raise InterruptedRunError(step, stopped_by)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: TaskModule[Any]) -> None:  # type: ignore[override]
        """Write `best.ckpt` if the validation is the best so far, and `last.ckpt`.

        `last.ckpt` stores the best value. If it were not updated, a resumed run would compare with
        an older value and could overwrite a better `best.ckpt`.
        """
        self._due = None
        value = pl_module.validation_loss
        if value is not None and value < self._best:
            self._best = value
            self._save(trainer, "best.ckpt")
        self._save(trainer, "last.ckpt")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Restore the signal handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        trainer.save_checkpoint(self._folder / name)  # atomic: see weights.CheckpointFiles
        self._saved = time.monotonic()


def _validate(trainer: pl.Trainer) -> None:
    """Run a validation now, as Lightning's loop does after a step."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    loop.restarting = False
    trainer.validating = True
    loop.run()
    trainer.training = True
