"""Training of a model: what the modules of all tasks have in common."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from relpe.encodings.offset.windows import Windows
from relpe.models.checkpoint import AnyModel
from training.config import OptimizerConfig, TrainerConfig
from training.errors import TrainingError
from training.learning.averaging import Average
from training.learning.chunked_loss import compute_again
from training.learning.distributed import shard_like, summed, total, whole
from training.learning.movement import Movement
from training.learning.muon import Muon, parameter_groups
from training.learning.schedule import Budget
from training.learning.seeding import noise_seed

ModelT = TypeVar("ModelT", bound=AnyModel)
BuiltT = TypeVar("BuiltT", bound=AnyModel, covariant=True)


class Buildable(Protocol[BuiltT]):
    """The configuration of a model."""

    def build(self) -> BuiltT:
        """Return a model with new weights.

        Raise ValueError if the configuration is inconsistent.
        """
        ...


def new_model(config: Buildable[BuiltT], seed: int, axes: int) -> BuiltT:
    """Return a model with random weights that depend only on the seed.

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


class _Call(nn.Module):
    """Calls functions that use a model, so that DDP prepares its gradients."""

    def __init__(self, decoder: AnyModel) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return what the function returns."""
        return function()


class TaskModule(ABC, Generic[ModelT]):
    """A model with its loss, optimizer and budget, and the steps of its training."""

    target: ClassVar[Literal["token", "example"]] = "token"
    """What is predicted, in the names of losses: `train/nats_per_token`."""

    fabric: Fabric
    """The processes and devices of the run; see `begin`."""
    optimizer: Muon

    def __init__(
        self,
        decoder: ModelT,
        task: Any,  # noqa: ANN401 - it has `tokens_per_step`
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
    ) -> None:
        self._task = task
        self.decoder = decoder
        self.settings = optimizer
        self.budget = Budget(trainer, optimizer, task.tokens_per_step)
        self.average = Average(decoder, trainer.ema_decay)
        self.movement = Movement(decoder.named_encoding_parameters())
        self.step = 0
        """Number of steps that the model was trained."""
        self.gradient_norm = math.nan
        self.skipped = 0
        self.validation: dict[str, float] = {}
        self._trainer_settings = trainer
        self.asked_to_stop = self.asked_to_save = False
        """Whether this process has received a signal to stop, and whether a checkpoint is due."""
        self.stops = self.saves = False
        """Whether that was so in any process in the last step."""
        if trainer.activation_checkpointing:
            compute_again(decoder)
        if trainer.compile:
            decoder.compile()

    def begin(self, fabric: Fabric, checkpoint: dict[str, Any] | None = None) -> None:
        """Move the model to the device, or shard it, and build the optimizer.

        A `checkpoint` restores what a resumed run needs besides weights, step and time. The clock
        of the time budget starts, which includes a validation that may be due.
        """
        self.fabric = fabric
        self._call = fabric.setup_module(_Call(self.decoder))
        config = self.settings
        groups = parameter_groups(
            self.decoder,
            config.weight_decay,
            orthogonalized=config.kind == "muon",
            encoding_learning_rate=config.encoding_learning_rate,
        )
        narrow = fabric.strategy.precision.precision == "bf16-mixed"
        dtype = torch.bfloat16 if narrow else torch.float32
        self.optimizer = Muon(groups, lr=config.learning_rate, betas=config.betas, dtype=dtype)
        if checkpoint is not None:
            # a copy, since the file of mapped tensors may change
            self._restore(copy.deepcopy(checkpoint | {"state_dict": None}))
        self.budget.start()
        self.movement.begin()
        # the clock of all processes is that of rank 0
        [seconds] = total(fabric, 0.0 if fabric.global_rank else self.budget.elapsed())
        self._set_clock(seconds)

    @property
    def validation_loss(self) -> float | None:
        """Nats per target in the last validation; None before the first."""
        return self.validation.get(f"validation/nats_per_{self.target}")

    @property
    def window(self) -> Windows | None:
        """The learned windows, if any."""
        return self.decoder.training_window()

    @abstractmethod
    def losses(self, batch: Any, state: Any) -> Iterator[Tensor]:  # noqa: ANN401 - of the task
        """Return the sums of the negative log-likelihood of the targets of a batch, in nats.

        Their gradients are computed one after another, before the next sum is requested.
        """

    def num_losses(self, batch: Any) -> int:  # noqa: ANN401
        """Return the number of these sums."""
        return 1

    @abstractmethod
    def num_targets(self, batch: Any) -> Tensor:  # noqa: ANN401
        """Return the number of targets of a batch: tokens or examples that are predicted."""

    def train_step(self, batch: Any) -> float:  # noqa: ANN401
        """Train one step, the same in all processes; return the loss.

        The loss is the mean negative log-likelihood in nats per target over the rows of all
        processes. If there is a window, its penalty is added for the gradients, but it is not part
        of the returned value. The noise depends on the step.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.budget.learning_rate(self.step, group.get("peak"))
        self.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if self.window is None else self.window.one_step():
            self._agree_on_spans()
            count = summed(self.fabric, self.num_targets(batch).double()).clamp(min=1)
            nats = self.gradients(batch, count)
        norm = torch.nn.utils.clip_grad_norm_(
            self.decoder.parameters(), self.settings.max_gradient_norm
        )
        # the only values that are copied from the device, together
        nats, count, norm = self._agree(nats, count, whole(norm))
        self._check(norm)
        self.optimizer.step()
        self.average.update()
        self.step += 1
        return nats / count

    def gradients(self, batch: Any, count: Tensor) -> Tensor:  # noqa: ANN401
        """Accumulate the gradients of all micro-batches and chunks; return the loss in nats.

        Gradients are divided by `count`, the number of targets in all processes.
        """
        fabric, seed = self.fabric, self._trainer_settings.seed
        noise = noise_seed(seed, self.step)
        features = noise_seed(seed, self.decoder.last_redraw(self.step, seed))
        nats = torch.zeros((), dtype=torch.float64, device=batch.device)
        parts = batch.chunk(self._trainer_settings.accumulate)
        left = sum(map(self.num_losses, parts))

        with fabric.autocast():
            for part in parts:
                state = self.decoder.init_state(len(part), seed=noise, feature_seed=features)
                losses = self.losses(part, state)
                for _ in range(self.num_losses(part)):
                    left -= 1
                    # processes add their gradients once in a step
                    with fabric.no_backward_sync(self._call, enabled=left > 0):
                        value, loss = self._call(partial(self._next, losses, count, last=not left))
                        # autocast is for the forward pass only
                        with torch.autocast(batch.device.type, enabled=False):
                            fabric.backward(loss)
                    nats += value
        return nats

    def _next(
        self, losses: Iterator[Tensor], count: Tensor, *, last: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the next sum, and what has its gradient: strategies average those of processes."""
        value = next(losses)
        loss = value * (self.fabric.world_size / count).to(value.dtype)
        if self.window is not None and last:
            loss = loss + self.window.penalty()
        return value.detach(), loss

    def _agree(self, nats: Tensor, count: Tensor, norm: Tensor) -> tuple[float, float, float]:
        """Return the sum of nats over processes; count and norm, which are the same in all of them.

        Every process stops or saves if one of them was asked to. For a time budget, the clock of
        rank 0 counts.
        """
        seconds = 0.0 if self.fabric.global_rank else self.budget.elapsed()
        asked = float(self.asked_to_stop), float(self.asked_to_save)
        mine = torch.tensor([seconds, *asked], dtype=torch.float64)
        # on a GPU, a copy from pinned memory does not wait
        mine = (mine.pin_memory() if nats.is_cuda else mine).to(nats.device, non_blocking=True)
        sums = summed(self.fabric, torch.cat([nats[None], mine]))
        others = torch.stack([count, norm.to(count)])
        total_nats, seconds, stops, saves, tokens, size = torch.cat([sums, others]).tolist()
        self.stops, self.saves = stops > 0, saves > 0
        self._set_clock(seconds)
        return total_nats, tokens, size

    def _set_clock(self, seconds: float) -> None:
        """Use the clock of rank 0 for a time budget."""
        limited = self._trainer_settings.time_budget_minutes is not None
        self.budget.agreed = seconds if limited and self.fabric.world_size > 1 else None

    def _agree_on_spans(self) -> None:
        """Use the spans of rank 0, since rounding may differ in other processes."""
        if self.window is not None and self.fabric.world_size > 1:
            spans = self.fabric.broadcast(self.window.span_state())
            self.window.load_span_state(spans)

    @torch.no_grad()
    def validate(self, batches: Iterable[Any]) -> None:
        """Measure the averaged weights, or the weights, by the batches of all processes."""
        self.average.swap()
        self.decoder.eval()
        with self.fabric.autocast():
            sums = [self.measure(self.fabric.to_device(batch)) for batch in batches]
        self.decoder.train()
        self.average.swap()
        nats, count, *others = total(self.fabric, *map(sum, zip(*sums, strict=True)))
        if not math.isfinite(nats):
            raise TrainingError(
                f"step {self.step}: the validation loss is {nats / count} nats per {self.target}; "
                "lower optimizer.learning_rate and start again with --fresh"
            )
        self.validation = self.results(nats, count, *others)

    def measure(self, batch: Any) -> tuple[float, ...]:  # noqa: ANN401
        """Return the negative log-likelihood in nats and number of targets of a batch."""
        state = self.decoder.init_state(len(batch))
        nats = sum(float(value) for value in self.losses(batch, state))
        return nats, float(self.num_targets(batch))

    def results(self, nats: float, count: float) -> dict[str, float]:
        """Return results of a validation by their names in logs, from sums of what was measured."""
        return {f"validation/nats_per_{self.target}": nats / count}

    def encoding_metrics(self) -> dict[str, float]:
        """Return change of the encoding since the start of the run, and the spans of its window."""
        spans = {} if self.window is None else self.window.metrics()
        return self.movement.changes("encoding_change") | spans

    def _check(self, norm: float) -> None:
        """Drop gradients if their norm is not finite."""
        self.gradient_norm = norm
        if math.isfinite(self.gradient_norm):
            self.skipped = 0
            return
        self.skipped += 1
        if self.skipped >= 20:
            raise TrainingError(
                f"step {self.step}: gradients were not finite 20 times in a row; lower the "
                "learning rate, or train with task.model.normalize_queries_keys=true"
            )
        for parameter in self.decoder.parameters():
            parameter.grad = None

    def checkpoint(self) -> dict[str, Any]:
        """Return all state of the training, with whole tensors; every process must call this."""
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            number: {name: whole(value) for name, value in held.items()}
            for number, held in optimizer["state"].items()
        }
        weights = self.decoder.state_dict()
        spans = {} if self.window is None else {"spans": self.window.span_state()}
        return {
            "global_step": self.step,
            "state_dict": {f"decoder.{name}": whole(value) for name, value in weights.items()},
            "optimizer_states": [optimizer],
            "elapsed_seconds": self.budget.elapsed(),
            "skipped": self.skipped,
            "average": self.average.state(),
            "encoding_start": self.movement.state(),
            **spans,
        }

    def _restore(self, checkpoint: dict[str, Any]) -> None:
        """Restore what is not known before weights are sharded."""
        self.optimizer.load_state_dict(checkpoint["optimizer_states"][0])
        for weight, held in self.optimizer.state.items():
            held |= {k: shard_like(v, weight) for k, v in held.items() if k != "step"}
        self.average.load(checkpoint["average"])
        self.skipped = checkpoint["skipped"]
        self.movement.load(checkpoint["encoding_start"])
        if self.window is not None:
            self.window.load_span_state(checkpoint["spans"])


class SeededModule(TaskModule[ModelT]):
    """Training with dropout that depends only on (seed, step)."""

    def train_step(self, batch: Any) -> float:  # noqa: ANN401
        """Train one step."""
        seed = noise_seed(self._trainer_settings.seed, self.step) + 1 + self.fabric.global_rank
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            return super().train_step(batch)
