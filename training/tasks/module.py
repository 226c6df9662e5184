"""Training of a model: what the modules of all tasks have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from relpe.encodings.offset.windows import Windows
from relpe.models.checkpoint import AnyModel
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError
from training.learning.averaging import Average
from training.learning.chunked_loss import compute_again
from training.learning.distributed import shard, summed, total, whole
from training.learning.movement import Movement
from training.learning.muon import Muon, parameter_groups
from training.learning.schedule import Budget
from training.learning.seeding import noise_seed

ModelT = TypeVar("ModelT", bound=AnyModel)
BuiltT = TypeVar("BuiltT", bound=AnyModel, covariant=True)


class Buildable(Protocol[BuiltT]):
    """The configuration of a model."""

    def build(self) -> BuiltT:
        """A model with new weights. Raises ValueError if the configuration is inconsistent."""
        ...


def new_model(config: Buildable[BuiltT], seed: int, axes: int) -> BuiltT:
    """A model with random weights that depend only on the seed.

    `axes` is the number of axes of the positions in the data of its task.

    Raises:
        TrainingError: the configuration of the model is inconsistent, or does not fit the data.
    """
    torch.manual_seed(seed)
    try:
        model = config.build()
    except ValueError as error:
        raise TrainingError(f"task.model: {error}") from error
    if model.num_axes > axes:
        raise TrainingError(
            f"task.model.encoding reads {model.num_axes} axes of positions, but those of this task "
            f"have {axes}; choose another encoding"
        )
    return model


class TaskModule(pl.LightningModule, ABC, Generic[ModelT]):
    """A model with its loss, optimizer and budget.

    One batch of Lightning is a whole step of one process. Micro-batches and chunks are iterated
    here, so that callbacks never run in the middle of a step.
    """

    target: ClassVar[Literal["token", "example"]] = "token"
    """What is predicted, in the names of losses: `train/nats_per_token`."""

    def __init__(
        self,
        decoder: ModelT,
        task: Any,  # noqa: ANN401 - it has `tokens_per_step`
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        super().__init__()
        self._task = task
        self.automatic_optimization = False
        self.decoder = decoder  # its name in checkpoints, for all kinds of models
        self.settings = optimizer
        self.budget = Budget(trainer, optimizer, task.tokens_per_step)
        self.average = Average(decoder, trainer.ema_decay)
        self.movement = Movement(decoder.named_encoding_parameters())
        self.gradient_norm = math.nan
        self.skipped = 0
        self.validation: dict[str, float] = {}
        self._trainer_settings = trainer
        self._shares = trainer.strategy == "fsdp"
        self._sums: list[tuple[float, int]] = []
        self.asked_to_stop = False
        """Whether this process has received a signal to stop."""
        self.stops = False
        """Whether any process had received one in the last step."""
        if trainer.activation_checkpointing:
            compute_again(decoder)
        if trainer.compile:
            decoder.compile()

    def configure_model(self) -> None:
        """With fsdp, shard the weights."""
        if self._shares and not isinstance(self.decoder, FSDPModule):
            shard(self.decoder, self.device_mesh)

    @property
    def validation_loss(self) -> float | None:
        """Nats per target in the last validation; None before the first."""
        return self.validation.get(f"validation/nats_per_{self.target}")

    @property
    def window(self) -> Windows | None:
        """The learned windows, if any; a property, so that they are not stored twice."""
        return self.decoder.training_window()

    @abstractmethod
    def losses(self, batch: Any, state: Any) -> Iterator[Tensor]:  # noqa: ANN401 - of the task
        """Sums of the negative log-likelihood of the targets of a batch, in nats.

        Their gradients are computed one after another, before the next sum is requested.
        """

    def num_losses(self, batch: Any) -> int:  # noqa: ANN401
        """Number of these sums."""
        return 1

    @abstractmethod
    def num_targets(self, batch: Any) -> Tensor:  # noqa: ANN401
        """Number of targets of a batch: tokens or examples that are predicted."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:  # noqa: ANN401
        """Compute the gradients of a whole step, the same in all processes.

        The loss is the mean negative log-likelihood in nats per token over the rows of all
        processes. If there is a window, its penalty is added for the gradients, but it is not part
        of the returned value. The noise depends on the step.
        """
        optimizer = self.optimizers(use_pl_optimizer=True)
        assert isinstance(optimizer, LightningOptimizer)
        optimizer.zero_grad(set_to_none=True)
        with nullcontext() if self.window is None else self.window.one_step():
            self._agree_on_spans()
            count = summed(self.trainer, self.num_targets(batch).double()).clamp(min=1)
            nats = self.gradients(batch, count)
        norm = torch.nn.utils.clip_grad_norm_(
            self.decoder.parameters(), self.settings.max_gradient_norm
        )
        # the only values that are copied from the device, together
        nats, count, norm = self._agree(nats, count, whole(norm))
        self._check(norm)
        optimizer.step()
        self.average.update()
        return {"nats_per_target": torch.tensor(nats / count)}

    def gradients(self, batch: Any, count: Tensor) -> Tensor:  # noqa: ANN401
        """Accumulate the gradients of all micro-batches and chunks; return the loss in nats.

        Gradients are divided by `count`, the number of tokens in all processes.
        """
        seed, step = self._trainer_settings.seed, self.global_step
        noise = noise_seed(seed, step)
        features = noise_seed(seed, self.decoder.last_redraw(step, seed))
        nats = torch.zeros((), dtype=torch.float64, device=batch.device)
        parts = batch.chunk(self._trainer_settings.accumulate)
        left = sum(map(self.num_losses, parts))
        for part in parts:
            state = self.decoder.init_state(len(part), seed=noise, feature_seed=features)
            for value in self.losses(part, state):
                left -= 1
                # strategies average gradients over processes
                loss = value * (self.trainer.world_size / count).to(value.dtype)
                if self.window is not None and not left:
                    loss = loss + self.window.penalty()
                # autocast is for the forward pass only
                with self._alone(left > 0), torch.autocast(batch.device.type, enabled=False):
                    self.manual_backward(loss)
                nats += value.detach()
        return nats

    @contextmanager
    def _alone(self, alone: bool) -> Iterator[None]:
        """Skip the synchronisation of gradients if `alone`: more of the step follows."""
        model = self.trainer.model
        if isinstance(model, DistributedDataParallel) and alone:
            with model.no_sync():
                yield
            return
        if isinstance(self.decoder, FSDPModule):
            self.decoder.set_requires_gradient_sync(not alone)
        yield

    def _agree(self, nats: Tensor, count: Tensor, norm: Tensor) -> tuple[float, float, float]:
        """Sum of nats over processes; count and norm, which are the same in all of them.

        Every process stops if one of them was asked to. For a time budget, the clock of rank 0
        counts.
        """
        seconds = 0.0 if self.global_rank else self.budget.elapsed()
        mine = torch.tensor([seconds, float(self.asked_to_stop)], dtype=torch.float64)
        # on a GPU, a copy from pinned memory does not wait
        mine = (mine.pin_memory() if nats.is_cuda else mine).to(nats.device, non_blocking=True)
        sums = summed(self.trainer, torch.cat([nats[None], mine]))
        others = torch.stack([count, norm.to(count)])
        total_nats, seconds, stops, tokens, size = torch.cat([sums, others]).tolist()
        self.stops = stops > 0
        self._set_clock(seconds)
        return total_nats, tokens, size

    def _set_clock(self, seconds: float) -> None:
        """Use the clock of rank 0 for a time budget."""
        limited = self._trainer_settings.time_budget_minutes is not None
        self.budget.agreed = seconds if limited and self.trainer.world_size > 1 else None

    def _agree_on_spans(self) -> None:
        """Use the spans of rank 0, since rounding may differ in other processes."""
        if self.window is not None and self.trainer.world_size > 1:
            spans = self.trainer.strategy.broadcast(self.window.span_state())
            self.window.load_span_state(spans)

    def validation_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """Accumulate the negative log-likelihood of a batch."""
        state = self.decoder.init_state(len(batch))
        nats = sum(float(value) for value in self.losses(batch, state))
        self._sums.append((nats, int(self.num_targets(batch))))

    def on_validation_epoch_start(self) -> None:
        """Validate the averaged weights, if there are any."""
        self.average.swap()

    def on_validation_epoch_end(self) -> None:
        """Store the mean over the batches of all processes for the callbacks."""
        self.average.swap()
        mine = (sum(column) for column in zip(*self._sums, strict=True))
        nats, count = total(self.trainer, *mine)
        self.validation = {f"validation/nats_per_{self.target}": nats / count}
        self._sums.clear()
        if not math.isfinite(nats):
            raise TrainingError(
                f"step {self.global_step}: the validation loss is {nats / count} nats per "
                f"{self.target}; "
                "lower optimizer.learning_rate and start again with --fresh"
            )

    def encoding_metrics(self) -> dict[str, float]:
        """Change of the encoding since the start of the run, and the spans of its window."""
        spans = {} if self.window is None else self.window.metrics()
        return self.movement.changes("encoding_change") | spans

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build Muon with AdamW, or AdamW alone."""
        config = self.settings
        groups = parameter_groups(
            self.decoder,
            config.weight_decay,
            orthogonalized=config.kind == "muon",
            encoding_learning_rate=config.encoding_learning_rate,
        )
        narrow = self.trainer.precision == "bf16-mixed"
        dtype = torch.bfloat16 if narrow else torch.float32
        return Muon(groups, lr=config.learning_rate, betas=config.betas, dtype=dtype)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """Set the learning rates of the step."""
        rate = self.budget.learning_rate(self.global_step)
        for group in self.trainer.optimizers[0].param_groups:
            peak = group.get("peak")
            group["lr"] = (
                rate if peak is None else self.budget.learning_rate(self.global_step, peak)
            )

    def _check(self, norm: float) -> None:
        """Drop gradients if their norm is not finite."""
        self.gradient_norm = norm
        if math.isfinite(self.gradient_norm):
            self.skipped = 0
            return
        self.skipped += 1
        if self.skipped >= 20:
            raise TrainingError(
                f"step {self.global_step}: gradients were not finite 20 times in a row; lower "
                "optimizer.learning_rate, or set task.model.normalize_queries_keys=true"
            )
        for parameter in self.decoder.parameters():
            parameter.grad = None

    def on_fit_start(self) -> None:
        """Start the clock of the time budget, which includes a validation that may be due."""
        self.budget.start()
        self.movement.begin()

    def on_train_start(self) -> None:
        """Set the clock of all processes to that of rank 0."""
        [seconds] = total(self.trainer, 0.0 if self.global_rank else self.budget.elapsed())
        self._set_clock(seconds)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the state that a resumed run needs besides weights and optimizer."""
        checkpoint["elapsed_seconds"] = self.budget.elapsed()
        checkpoint["skipped"] = self.skipped
        checkpoint["average"] = self.average.state()
        checkpoint["encoding_start"] = self.movement.state()
        checkpoint["sharded"] = self._shares
        if self.window is not None:
            checkpoint["spans"] = self.window.span_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state of a run that is resumed."""
        self.budget.earlier = checkpoint["elapsed_seconds"]
        self.average.load(checkpoint["average"])
        self.skipped = checkpoint["skipped"]
        self.movement.load(checkpoint["encoding_start"])
        if self.window is not None:
            self.window.load_span_state(checkpoint["spans"])


class SeededModule(TaskModule[ModelT]):
    """Training with dropout that depends only on (seed, step)."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:  # noqa: ANN401
        """Compute the gradients of a step."""
        seed = noise_seed(self._trainer_settings.seed, self.global_step) + 1 + self.global_rank
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            return super().training_step(batch, batch_idx)
