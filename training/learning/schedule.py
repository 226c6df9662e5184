"""The budget of a run in tokens and in time, and its learning rate."""

from __future__ import annotations

import logging
import math
import time

from training.config import OptimizerConfig, TrainerConfig

logger = logging.getLogger(__name__)


class Budget:
    """Progress of a run in tokens and in time, and the learning rate that depends on it."""

    def __init__(
        self, trainer: TrainerConfig, optimizer: OptimizerConfig, tokens_per_step: int
    ) -> None:
        self.earlier = 0.0
        """Seconds that earlier segments of the run took."""
        self.agreed: float | None = None
        """Elapsed seconds by the clock of rank 0; if None, the clock of this process is used."""
        self._trainer = trainer
        self._optimizer = optimizer
        self._tokens_per_step = tokens_per_step
        self._started: float | None = None
        self._clock = time.process_time if trainer.clock == "cpu" else time.monotonic

    def start(self) -> None:
        """Start the clock of this segment of the run."""
        self._started = self._clock()

    def elapsed(self) -> float:
        """Return the seconds by the clock of the config that all segments of the run took."""
        now = 0.0 if self._started is None else self._clock() - self._started
        return self.earlier + now

    def progress(self, step: int) -> float:
        """Return the share of the budget that is used after `step` steps; the run ends at 1."""
        share = step * self._tokens_per_step / self._trainer.token_budget
        if self._trainer.time_budget_minutes is None:
            return share
        seconds = self.elapsed() if self.agreed is None else self.agreed
        return max(share, seconds / (60 * self._trainer.time_budget_minutes))

    def foresee(self, step: int, num_steps: int, progress_before: float) -> None:
        """Warn if a budget of time will end in warm-up, at the pace of the last `num_steps` steps.

        `progress_before` is the share of the budget that was used before them.
        """
        if self._trainer.time_budget_minutes is None:  # tokens are known before the run
            return
        progress = self.progress(step)
        steps_per_budget = num_steps / max(progress - progress_before, 1e-9)
        self.warn_of_warmup(step + round(steps_per_budget * (1 - progress)))

    def warn_of_warmup(self, steps: int) -> None:
        """Warn if `steps`, those of the whole run, do not exceed the warm-up steps."""
        warmup = self._optimizer.warmup_steps
        if steps <= warmup:
            logger.warning(
                "the budget of about %d steps ends before the warm-up of the learning rate, which "
                "takes %d; the model will learn little. Train longer, or leave warm-up after a "
                "tenth of the steps: --set optimizer.warmup_steps=%d",
                steps,
                warmup,
                max(1, steps // 10),
            )

    def learning_rate(self, step: int, peak: float | None = None) -> float:
        """Return the learning rate: warm-up, then as the `schedule` of the configuration.

        `peak` is the constant rate; if None, it is the `learning_rate` of the configuration.
        """
        config = self._optimizer
        peak = config.learning_rate if peak is None else peak
        warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
        if config.schedule == "rsqrt":
            return (
                peak
                * warm
                * math.sqrt(max(1, config.warmup_steps) / max(step + 1, config.warmup_steps, 1))
            )
        if config.schedule == "cosine":
            return peak * warm * (1 + math.cos(math.pi * min(1.0, self.progress(step)))) / 2
        left = max(0.0, 1 - self.progress(step)) / max(config.decay_share, 1e-9)
        decayed = config.final_share + (1 - config.final_share) * min(1.0, left)
        return peak * warm * decayed
