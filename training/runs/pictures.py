"""Pictures of the positional encoding during training, in TensorBoard."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import TensorBoardLogger

from relpe.inspect.plots import draw, pictures
from training.tasks.module import TaskModule


class Pictures(pl.Callback):
    """Draws what the encoding has learned after each validation; see `relpe.inspect`."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: TaskModule[Any]) -> None:  # type: ignore[override]
        """Draw the weights of the current step."""
        boards = [log for log in trainer.loggers if isinstance(log, TensorBoardLogger)]
        if not boards:
            return
        for name, picture in pictures(pl_module.decoder).items():
            for board in boards:
                board.experiment.add_figure(f"encoding/{name}", draw(picture), trainer.global_step)
