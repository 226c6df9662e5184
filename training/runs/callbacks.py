"""Callbacks of a run: progress, checkpoints, signals and samples."""

from __future__ import annotations

import logging
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning.utilities.seed import isolate_rng
from tqdm import tqdm

from tokenization.presets import load_tokenizer
from training.config import TrainerConfig
from training.continuations import continuations, write_sample
from training.data.corpus import Corpus
from training.learning.distributed import any_of, whole
from training.runs.device import memory_in_use
from training.runs.weights import fill
from training.tasks.music import MusicModule

logger = logging.getLogger(__name__)

PROMPT_BARS = 4
"""Bars of the prompt of a sample."""
NEW_BARS = 8
"""New bars of a sample."""
SAMPLE_SECONDS = 30.0
"""Time limit for samples: generation ends with the first bar completed after it."""


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

    def on_train_batch_start(self, *_: object) -> None:  # type: ignore[override]
        """Start timing a step."""
        self._step_started = time.monotonic()

    def on_train_batch_end(  # type: ignore[override]
        self,
        trainer: pl.Trainer,
        pl_module: MusicModule,
        outputs: dict[str, torch.Tensor],
        *_: object,
    ) -> None:
        """Log the metrics every `log_every` steps."""
        self._losses.append(outputs["nats_per_token"])  # the loss may include penalties
        self._seconds += time.monotonic() - self._step_started
        step = trainer.global_step
        if step % self._log_every:
            return
        tokens = len(self._losses) * self._tokens_per_step
        metrics = {
            "tokens": step * self._tokens_per_step,
            "seconds": pl_module.budget.elapsed(),
            "train/nats_per_token": float(torch.stack(self._losses).mean()),
            "learning_rate": pl_module.budget.learning_rate(step - 1),
            "gradient_norm": pl_module.gradient_norm,
            "tokens_per_second": tokens / max(self._seconds, 1e-9),
            **memory_in_use(pl_module.device),
            **pl_module.encoding_metrics(),
        }
        self._losses, self._seconds = [], 0.0
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
        for key, name in (("memory_gib", ""), ("gpu_memory_gib", " on the GPU")):
            text += f", {metrics[key]:.1f} GiB{name}" if key in metrics else ""
        if self._bar is not None:
            self._bar.n = min(100.0, 100 * progress)
            self._bar.set_postfix_str(text)
        elif self._show and time.monotonic() - self._line_shown > 30:
            self._line_shown = time.monotonic()
            logger.info("%5.1f%%  %s", 100 * progress, text)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Log the result of a validation."""
        step = trainer.global_step
        spent = {"tokens": step * self._tokens_per_step, "seconds": pl_module.budget.elapsed()}
        for log in trainer.loggers:
            log.log_metrics(spent | pl_module.validation, step)
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
        self._handlers: dict[int, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The best validation so far, and the step whose validation is due."""
        return {"best": self._best, "due": self._due}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; checkpoints of older versions have no `due`."""
        self._best = state_dict["best"]
        self._due = state_dict.get("due")

    @classmethod
    def is_due(cls, checkpoint: dict[str, Any]) -> bool:
        """Whether a run that resumes from this checkpoint must validate first."""
        held = checkpoint["callbacks"].get(cls.__qualname__, {})
        return held.get("due") == checkpoint["global_step"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Handle signals: the first stops the run after the step, the second immediately.

        Also run the validation that was due when the run was stopped, if any.
        """
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
        signal.signal(number, self._handlers[number])

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: MusicModule, *_: object) -> None:  # type: ignore[override]
        """Stop when the budget is used up; write checkpoints when they are due."""
        step = trainer.global_step
        if pl_module.budget.progress(step) >= 1:
            trainer.should_stop = True
        if any_of(trainer, self._signal):  # all processes stop at the same step
            self._signal = self._signal or signal.SIGTERM
        validation = trainer.should_stop or step % self._settings.validate_every == 0
        self._due = step if validation and self._validates else None
        if self._signal or trainer.should_stop or step % self._settings.checkpoint_every == 0:
            self._save(trainer, "last.ckpt")
            if not self._validates:
                self._save(trainer, "best.ckpt")
        if self._signal:
            raise InterruptedRunError(step, self._signal)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Write `best.ckpt` if the validation is the best so far, and `last.ckpt`.

        `last.ckpt` stores the best value. If it were not updated, a resumed run would compare with
        an older value and could overwrite a better `best.ckpt`.
        """
        self._due = None
        value = pl_module.validation["validation/nats_per_token"]
        if value < self._best:
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


class Samples(pl.Callback):
    """Generates continuations of validation pieces after each validation.

    Writes MIDI files and piano rolls to folders such as `samples/step_000500` in the run's folder.
    Prompts and seeds are always the same, so that samples of different steps differ only in the
    weights, which are those just validated. Training is not affected: random states are restored,
    and errors are logged in one line.
    """

    def __init__(self, folder: Path, data: Path, count: int) -> None:
        self._folder = folder / "samples"
        self._data = data
        self._count = count

    def on_validation_end(self, trainer: pl.Trainer, pl_module: MusicModule) -> None:  # type: ignore[override]
        """Write the samples of this step; only rank 0 does this, with gathered weights."""
        if not self._count:
            return
        weights = pl_module.decoder.state_dict()
        held = {
            "state_dict": {name: whole(tensor) for name, tensor in weights.items()},
            "average": pl_module.average.state(),
        }
        if not trainer.is_global_zero:
            return
        step = trainer.global_step
        try:
            with isolate_rng():
                self._write(pl_module, held, self._folder / f"step_{step:06d}")
        # an error in a sample must not end hours of training
        except Exception as error:  # noqa: BLE001
            logger.warning(
                "no samples at step %d: %s: %s; training continues",
                step,
                type(error).__name__,
                error,
            )

    def _write(self, pl_module: MusicModule, held: dict[str, Any], folder: Path) -> None:
        # a separate model, because values that an encoding caches in inference mode have no
        # gradient
        decoder = pl_module.decoder.config.build()
        fill(decoder, held, folder)
        decoder.to(pl_module.device).eval()
        tokenizer = load_tokenizer(self._data)
        prompts = validation_prompts(self._data, self._count)
        last = time.monotonic() + SAMPLE_SECONDS
        pieces = continuations(
            decoder,
            tokenizer,
            [ids for ids, _ in prompts],
            bars=NEW_BARS,
            enough=lambda: time.monotonic() > last,
        )
        folder.mkdir(parents=True, exist_ok=True)
        for number, (ids, (_, bars)) in enumerate(zip(pieces, prompts, strict=True)):
            write_sample(ids, tokenizer, folder / str(number), bars)


def validation_prompts(data: Path, count: int) -> list[tuple[NDArray[np.int64], int]]:
    """First bars of up to `count` pieces of the validation split: ids, and number of bars."""
    corpus = Corpus.load(data, "validation")
    chosen = np.unique(np.linspace(0, len(corpus), count, endpoint=False).astype(int))
    prompts: list[tuple[NDArray[np.int64], int]] = []
    for index in chosen:
        ids, lines = corpus.piece(index).astype(np.int64), corpus.piece_bars(index)
        end = lines[PROMPT_BARS] if len(lines) > PROMPT_BARS else len(ids)
        prompts.append((ids[:end], min(PROMPT_BARS, len(lines))))
    return prompts


def _validate(trainer: pl.Trainer) -> None:
    """Run a validation now, as Lightning's loop does after a step."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    loop.restarting = False
    trainer.validating = True
    loop.run()
    trainer.training = True
