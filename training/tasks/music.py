"""Music: a decoder that learns to predict the next token of a piece."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from relpe.decoder import DecoderConfig
from tokenization.tokenizer import load_tokenizer
from training.augmentation import NOTHING, Augmentation
from training.corpus import Corpus, Crops, read_facts, windows
from training.errors import TrainingError, check_range
from training.muon import Muon
from training.optimization import Average, Budget, Movement, parameter_groups
from training.repeatable import Steps, noise_seed

if TYPE_CHECKING:
    from torch import Tensor

    from relpe.decoder import Decoder, DecoderState
    from relpe.encodings.windows import Window
    from training.config import OptimizerConfig, TrainerConfig


@dataclass(frozen=True, kw_only=True)
class MusicTask:
    """Next-token prediction on crops of pieces, transposed at random."""

    kind: Literal["music"] = "music"
    data: Path
    """Folder that `relpe-train prepare` has written."""
    model: DecoderConfig
    """The model."""
    length: int = 1024
    """Tokens of an example."""
    batch_size: int = 4
    """Examples of a step."""
    beginnings: float = 0.1
    """Share of the examples that are the beginning of a piece."""
    transposition: tuple[int, int] = (-5, 6)
    """Least and greatest transposition of an example, semitones."""
    augmentation: Augmentation = NOTHING
    """What else is changed in an example of several instruments."""
    validation_windows: int = 64
    """Windows of `length` tokens of the validation split that a validation reads."""

    def __post_init__(self) -> None:
        for name in ("length", "batch_size", "validation_windows"):
            check_range(name, getattr(self, name), 1)
        check_range("beginnings", self.beginnings, 0, 1)
        low, high = self.transposition
        if not -127 <= low <= high <= 127:
            raise TrainingError(
                f"transposition is {self.transposition}, expected least and greatest, -127 to 127"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that a step reads, padding included."""
        return self.batch_size * self.length

    def build_data(self, seed: int) -> MusicData:
        """Data module of the prepared corpus."""
        return MusicData(self, seed)

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> MusicModule:
        """Module with fresh weights that are a function of the seed.

        Raises:
            TrainingError: the model's config contradicts itself.
        """
        torch.manual_seed(trainer.seed)
        try:
            decoder = self.model.build()
        except ValueError as error:
            raise TrainingError(f"task.model: {error}") from error
        return MusicModule(decoder, self, optimizer, trainer)


class MusicData(pl.LightningDataModule):
    """Training crops from the step on where the trainer stands, and validation windows."""

    def __init__(self, task: MusicTask, seed: int) -> None:
        super().__init__()
        self.facts = read_facts(task.data)
        tokenizer = load_tokenizer(task.data)
        if self.facts["vocabulary"] != tokenizer.vocabulary.hash:
            raise TrainingError(f"{task.data}: made with another vocabulary; prepare again")
        if task.model.vocabulary_size < len(tokenizer.vocabulary):
            raise TrainingError(
                f"task.model.vocabulary_size is {task.model.vocabulary_size}, the tokenizer of "
                f"{task.data} has {len(tokenizer.vocabulary)} ids; give the model as many"
            )
        self.crops = Crops(
            corpus=Corpus.load(task.data, "train"),
            tokenizer=tokenizer,
            length=task.length,
            batch_size=task.batch_size,
            seed=seed,
            beginnings=task.beginnings,
            transposition=task.transposition,
            augmentation=task.augmentation,
        )
        held_out = windows(Corpus.load(task.data, "validation"), task.length)
        chosen = np.linspace(0, len(held_out), task.validation_windows, endpoint=False)
        self.held_out = held_out[np.unique(chosen.astype(int))] if len(held_out) else held_out
        self._batch_size = task.batch_size

    @property
    def validates(self) -> bool:
        """Whether there is anything to validate on."""
        return len(self.held_out) > 0

    def train_dataloader(self) -> DataLoader[Tensor]:
        """One batch per step, from the trainer's global step on."""
        start = self.trainer.global_step if self.trainer else 0
        return DataLoader(self.crops, batch_size=None, sampler=Steps(start))  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Tensor]:
        """Windows of the validation split, spread evenly over it."""
        return DataLoader(torch.from_numpy(self.held_out), batch_size=self._batch_size)  # type: ignore[arg-type]


class MusicModule(pl.LightningModule):
    """A decoder with its loss, optimizer and budget."""

    def __init__(
        self,
        decoder: Decoder,
        task: MusicTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.settings = optimizer
        self.budget = Budget(trainer, optimizer, task.tokens_per_step)
        self.average = Average(decoder, trainer.ema_decay)
        self.movement = Movement(decoder.encoding.named_parameters())
        self.gradient_norm = math.nan
        self.skipped = 0
        self.validation: dict[str, float] = {}
        self._seed = trainer.seed
        self._sums: list[tuple[float, int]] = []

    @property
    def window(self) -> Window | None:
        """The encoding's window; as an attribute it would stand in checkpoints twice."""
        return self.decoder.encoding.training_window()

    def losses(self, batch: Tensor, state: DecoderState, reduction: str) -> Tensor:
        """Negative log-likelihood of each token after the first, nats; PAD counts nothing."""
        tokens, targets = batch[:, :-1], batch[:, 1:]
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
        logits, _ = self.decoder(tokens, positions, state)
        return cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0, reduction=reduction
        )

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Tensor]:
        """Mean negative log-likelihood, nats per token; the loss adds the penalty of a window.

        The noise is the step's.
        """
        seed = noise_seed(self._seed, self.global_step)
        held = noise_seed(self._seed, self.decoder.last_redraw(self.global_step, self._seed))
        state = self.decoder.init_state(len(batch), seed=seed, feature_seed=held)
        nats = self.losses(batch, state, "mean")
        loss = nats if self.window is None else nats + self.window.penalty()
        return {"loss": loss, "nats_per_token": nats.detach()}

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Add up the negative log-likelihood of a batch of windows."""
        state = self.decoder.init_state(len(batch))
        total = self.losses(batch, state, "sum")
        self._sums.append((float(total), int((batch[:, 1:] != 0).sum())))

    def on_validation_epoch_start(self) -> None:
        """Validate the averaged weights, where there are any."""
        self.average.swap()

    def on_validation_epoch_end(self) -> None:
        """Put the mean over all windows where the callbacks read it."""
        self.average.swap()
        total, count = (sum(column) for column in zip(*self._sums, strict=True))
        self.validation = {"validation/nats_per_token": total / count}
        self._sums.clear()

    def encoding_metrics(self) -> dict[str, float]:
        """How far the encoding is from where it began, and what its window spans."""
        spans = {} if self.window is None else self.window.metrics()
        return self.movement.changes("encoding_change") | spans

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Muon for the matrices of the blocks and AdamW for all else, or AdamW alone."""
        config = self.settings
        groups = parameter_groups(
            self.decoder,
            config.weight_decay,
            orthogonalized=config.kind == "muon",
            encoding_learning_rate=config.encoding_learning_rate,
        )
        return Muon(groups, lr=config.learning_rate, betas=config.betas)

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Set the learning rates of this step."""
        rate = self.budget.learning_rate(self.global_step)
        for group in self.trainer.optimizers[0].param_groups:
            peak = group.get("peak")
            group["lr"] = (
                rate if peak is None else self.budget.learning_rate(self.global_step, peak)
            )

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Scale gradients down to the greatest norm allowed; drop those that are not finite."""
        norm = torch.nn.utils.clip_grad_norm_(
            self.decoder.parameters(), self.settings.max_gradient_norm
        )
        self.gradient_norm = float(norm)
        if math.isfinite(self.gradient_norm):
            self.skipped = 0
            return
        self.skipped += 1
        if self.skipped >= 20:
            raise TrainingError(
                f"step {self.global_step}: gradients were not finite 20 times in a row; lower "
                "optimizer.learning_rate or normalise queries and keys"
            )
        optimizer.zero_grad(set_to_none=True)

    def optimizer_step(self, *args: object, **kwargs: object) -> None:
        """Step, then take the new weights into their average."""
        super().optimizer_step(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they are
        self.average.update()

    def on_fit_start(self) -> None:
        """Let the clock of the time budget run; a validation that was due may come first."""
        self.budget.start()
        self.movement.begin()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what a resumed run needs beside weights and optimizer."""
        checkpoint["elapsed_seconds"] = self.budget.elapsed()
        checkpoint["average"] = self.average.state()
        checkpoint["encoding_start"] = self.movement.state()
        if self.window is not None:
            checkpoint["spans"] = self.window.span_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take over what a former session left."""
        self.budget.earlier = checkpoint["elapsed_seconds"]
        self.average.load(checkpoint["average"])
        # a checkpoint of earlier versions has neither
        self.movement.load(checkpoint.get("encoding_start", {}))
        if self.window is not None and "spans" in checkpoint:
            self.window.load_span_state(checkpoint["spans"])
