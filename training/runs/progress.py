"""The progress of a run: metrics for the logs, and a bar with the time left."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tqdm import tqdm

from training.config import ExperimentConfig
from training.runs.device import memory_in_use
from training.runs.loggers import Log
from training.tasks.module import TaskModule

logger = logging.getLogger(__name__)

FORETOLD = 5
"""Steps of a segment after which it is foretold whether the budget ends before the warm-up."""


class Progress:
    """Writes loss, speed, memory and remaining time to the logs and the terminal."""

    def __init__(
        self,
        module: TaskModule[Any],
        config: ExperimentConfig,
        loggers: Sequence[Log],
        *,
        show: bool,
    ) -> None:
        self._module, self._loggers, self._show = module, loggers, show
        self._log_every = config.trainer.log_every
        self._tokens_per_step = config.task.tokens_per_step
        self.losses: list[float] = []
        """The losses since the last entry; in a checkpoint, so that a resumed run logs the same."""
        self._timed = 0
        """Steps since the last entry in this segment, which took `_seconds`."""
        self._seconds = 0.0
        self._since: float | None = None
        self._line_shown = float("-inf")
        self._first = module.step
        self._start = (module.budget.progress(module.step), time.monotonic())
        self._bar: tqdm[Any] | None = None
        if show and sys.stderr.isatty():
            self._bar = tqdm(total=100.0, bar_format="{percentage:5.1f}%|{bar}|{postfix}")

    def begin_step(self) -> None:
        """Start timing, unless the previous step is still timed, as is the loading of data."""
        if self._since is None:
            self._since = time.monotonic()

    def pause(self) -> None:
        """Stop timing; checkpoints and loading of data are timed, validations are not."""
        self._take_time()
        self._since = None

    def _take_time(self) -> float:
        """Add the time since the last call; return the current time."""
        now = time.monotonic()
        self._seconds += 0.0 if self._since is None else now - self._since
        return now

    def end_step(self, loss: float) -> None:
        """Log the metrics every `log_every` steps."""
        module, step = self._module, self._module.step
        self.losses.append(loss)
        self._since = self._take_time()
        self._timed += 1
        if step == self._first + FORETOLD:
            module.budget.foresee(step, FORETOLD, self._start[0])
        if step % self._log_every:
            return
        tokens = self._timed * self._tokens_per_step
        loss = sum(self.losses) / len(self.losses)
        metrics = {
            f"train/nats_per_{module.target}": loss,
            "learning_rate": module.budget.learning_rate(step - 1),
            "gradient_norm": module.gradient_norm,
            "tokens_per_second": tokens / max(self._seconds, 1e-9),
            **memory_in_use(module.fabric.device),
            **module.encoding_metrics(),
        }
        self.losses, self._timed, self._seconds = [], 0, 0.0
        self._log(metrics)
        self._show_progress(module.budget.progress(step), step, loss, metrics)

    def log_validation(self) -> None:
        """Log the result of a validation."""
        module, right = self._module, self._module.validation.get("validation/accuracy")
        self._log(module.validation)
        if self._show:
            with tqdm.external_write_mode(file=sys.stderr):
                logger.info(
                    "step %d: validation %.4f nats per %s%s",
                    *(module.step, module.validation_loss, module.target),
                    "" if right is None else f", {right:.1%} right",
                )

    def _log(self, metrics: dict[str, float]) -> None:
        step = self._module.step
        spent = {
            "tokens": step * self._tokens_per_step,
            "seconds": self._module.budget.elapsed(),
        }
        for log in self._loggers:
            log.log_metrics(spent | metrics, step)

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

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()
