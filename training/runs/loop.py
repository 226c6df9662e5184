"""The loop of a run: steps, validations, checkpoints and signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from training.config import TrainerConfig
from training.runs.loggers import Log
from training.runs.progress import Progress
from training.runs.samples import Samples
from training.runs.weights import write_checkpoint
from training.tasks.module import TaskModule
from training.tasks.task import TaskData


@dataclass
class Loop:
    """Trains a model; change `run` to train in another way.

    `last.ckpt` is written at regular intervals, after validations and on a signal, `best.ckpt`
    after the best validation. Without validation both have the same weights.
    """

    module: TaskModule[Any]
    data: TaskData
    folder: Path
    settings: TrainerConfig
    progress: Progress
    loggers: Sequence[Log]
    samples: Samples
    best: float = float("inf")
    """The best validation loss."""
    due: int | None = None
    """The step whose validation is due."""
    stopped_by: int | None = None
    """The signal that this process has received."""
    _saved: float = 0.0

    def run(self, checkpoint: dict[str, Any] | None, *, samples_are_due: bool) -> int | None:
        """Train until the budget is used up, or until a signal, which is then returned.

        A `checkpoint` is that from which the run resumes.
        """
        module, settings = self.module, self.settings
        self._saved = time.monotonic()
        if checkpoint is not None:
            held = checkpoint["callbacks"]
            self.progress.losses = held["Report"]["losses"]
            self.best, self.due = held["Checkpoints"]["best"], held["Checkpoints"]["due"]
        with self._signals_noted():
            if samples_are_due:
                self.samples.write(module)
            if self.data.validates and self.due == module.step:
                self._validate()
            ended = module.budget.progress(module.step) >= 1
            batches = iter(self.data.train_dataloader(module.step))
            while not ended:
                self.progress.begin_step()
                batch = module.fabric.to_device(next(batches))
                unsaved = time.monotonic() - self._saved
                module.asked_to_save = unsaved >= 60 * settings.checkpoint_minutes
                loss = module.train_step(batch)  # the same in all processes
                self.progress.end_step(loss)
                ended = module.budget.progress(module.step) >= 1
                due = ended or module.step % settings.validate_every == 0
                self.due = module.step if due and self.data.validates else None
                saves = module.saves or module.step % settings.checkpoint_every == 0
                if ended or module.stops or saves:
                    self._save("last.ckpt", *([] if self.data.validates else ["best.ckpt"]))
                if module.stops:  # all processes stop at the same step
                    return self.stopped_by or signal.SIGTERM
                if self.due is not None:
                    self._validate()
        return None

    def _validate(self) -> None:
        """Validate, and write `best.ckpt` if it is the best so far, and `last.ckpt`.

        `last.ckpt` stores the best value. If it were not updated, a resumed run would compare with
        an older value and could overwrite a better `best.ckpt`.
        """
        module = self.module
        self.progress.pause()
        self.samples.note_due(module.step)
        module.validate(self.data.val_dataloader())
        self.progress.log_validation()
        self.due, value = None, module.validation_loss
        if value is not None and value < self.best:
            self.best = value
            self._save("best.ckpt")
        self._save("last.ckpt")
        self.samples.write(module)
        if self.settings.pictures and self.settings.strategy != "fsdp":  # which shards weights
            for log in self.loggers:
                log.draw(module.decoder, module.step)

    def _save(self, *names: str) -> None:
        held = {
            "Report": {"losses": self.progress.losses},
            "Checkpoints": {"best": self.best, "due": self.due},
            "Samples": {"due": self.samples.due},
        }
        checkpoint = {**self.module.checkpoint(), "callbacks": held}
        for name in names if self.module.fabric.is_global_zero else ():
            write_checkpoint(checkpoint, self.folder / name)
        self._saved = time.monotonic()

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """Return the first signal ends the run after the step, the second immediately."""
        handlers: dict[int, Any] = {}

        def note(number: int, frame: FrameType | None) -> None:
            self.stopped_by, self.module.asked_to_stop = number, True
            signal.signal(number, handlers[number])

        with suppress(ValueError):  # not in the main thread
            for number in (signal.SIGTERM, signal.SIGINT):
                handlers[number] = signal.signal(number, note) or signal.SIG_DFL
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
