"""The task `music`: next-token prediction with a decoder."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from relpe.encodings.offset.windows import Windows
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi, families_of
from tokenization.remi.vocabulary import Families, closing_ids
from tokenization.tokenizer import Tokenizer
from training.config import OptimizerConfig, TrainerConfig
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus, read_facts, windows
from training.data.documents import Documents, DocumentShares
from training.data.examples import Crops, Examples
from training.errors import TrainingError, check_range
from training.learning.averaging import Average
from training.learning.chunked_loss import compute_again, negative_log_likelihoods, num_predicted
from training.learning.distributed import (
    ALONE,
    Processes,
    leave_signals,
    rows_of,
    shard,
    summed,
    total,
    whole,
)
from training.learning.movement import Movement
from training.learning.muon import Muon, parameter_groups
from training.learning.schedule import Budget
from training.learning.seeding import Steps, noise_seed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MusicTask:
    """Next-token prediction on randomly transposed parts of pieces."""

    kind: Literal["music"] = "music"
    data: Path
    """Folder of a corpus written by `relpe-train prepare`."""
    model: DecoderConfig
    """Configuration of the model."""
    length: int = 1024
    """Tokens per example."""
    batch_size: int = 4
    """Examples per step, in all processes and micro-batches together."""
    chunk: int | None = None
    """Tokens of an example that pass through the model at a time, which bounds the memory of
    activations; the state is kept between chunks. None: all tokens at once."""
    truncated: bool = False
    """Whether gradients stop at chunk boundaries; if not, chunks do not change the results."""
    beginnings: float = 0.1
    """Share of examples that are the beginning of a piece."""
    transposition: tuple[int, int] = (-5, 6)
    """Minimum and maximum transposition of an example in semitones."""
    augmentation: Augmentation = NOTHING
    """Further random changes to examples with several instruments."""
    documents: DocumentShares | None = None
    """Kinds of documents, for corpora of version 2; None: the defaults of `DocumentShares`."""
    validation_windows: int = 64
    """Number of windows of `length` tokens in a validation."""

    def __post_init__(self) -> None:
        for name in ("length", "batch_size", "validation_windows"):
            check_range(name, getattr(self, name), 1)
        check_range("chunk", self.chunk, 1)
        if self.truncated and self.chunk is None:
            raise TrainingError("truncated is true without a chunk; set the chunk too")
        check_range("beginnings", self.beginnings, 0, 1)
        low, high = self.transposition
        if not -127 <= low <= high <= 127:
            raise TrainingError(
                f"transposition is {self.transposition}, expected a minimum and a maximum between "
                "-127 and 127"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step, padding included."""
        return self.batch_size * self.length

    def build_data(self, trainer: TrainerConfig, processes: Processes = ALONE) -> MusicData:
        """Build the data module of one process.

        Raises:
            TrainingError: the corpus does not match the model or the tokenizer, or the batch cannot
                be divided among the processes.
        """
        return MusicData(self, trainer, processes)

    def decoder_config(self, folder: Path) -> DecoderConfig:
        """The configuration of the decoder.

        If the config does not state which tokens close an event, these are taken from the tokenizer
        in `folder`, which is that of the data or of a run.
        """
        events = self.model.events
        if events is None or events.closing:
            return self.model
        ids = closing_ids(load_tokenizer(folder).vocabulary)
        return replace(self.model, events=replace(events, closing=events.ranges(ids)))

    def build_module(self, optimizer: OptimizerConfig, trainer: TrainerConfig) -> MusicModule:
        """Build the module, with random weights that depend only on the seed.

        Raises:
            TrainingError: the configuration of the model is inconsistent.
        """
        torch.manual_seed(trainer.seed)
        try:
            decoder = self.decoder_config(self.data).build()
        except ValueError as error:
            raise TrainingError(f"task.model: {error}") from error
        families = families_of(load_tokenizer(self.data))
        return MusicModule(decoder, self, optimizer, trainer, families)


class MusicData(pl.LightningDataModule):
    """Training examples, starting at the trainer's current step, and validation windows."""

    def __init__(
        self, task: MusicTask, trainer: TrainerConfig, processes: Processes = ALONE
    ) -> None:
        super().__init__()
        self.facts = read_facts(task.data)
        tokenizer = load_tokenizer(task.data)
        if self.facts["vocabulary"] != tokenizer.vocabulary.hash:
            raise TrainingError(
                f"{task.data}: the vocabularies of the corpus and of its tokenizer differ; prepare "
                "the corpus again"
            )
        known, used = task.model.vocabulary_size, len(tokenizer.vocabulary)
        sizes = (
            f"task.model.vocabulary_size is {known}, but the tokenizer of {task.data} has {used} "
            "ids"
        )
        if known < used:
            raise TrainingError(f"{sizes}; set task.model.vocabulary_size={used}")
        if known > used and not processes.rank:
            logger.warning(
                "%s; the other ids are unused. Check that the config is meant for this data", sizes
            )
        rows = rows_of(processes, task.batch_size, trainer.accumulate)
        self.examples = _examples(task, tokenizer, rows, trainer.seed)
        longest = self.examples.corpus.longest
        if task.length > 2 * longest:
            raise TrainingError(
                f"task.length is {task.length}, but the longest piece of {task.data} has {longest} "
                f"tokens, so examples would be mostly padding; use --set task.length={longest}"
            )
        validation = Corpus.load(task.data, "validation")
        self.held_out = windows(validation, tokenizer, task.length, task.validation_windows)
        self._rows = len(rows) // trainer.accumulate
        self._workers = trainer.workers
        self._processes = processes

    @property
    def validates(self) -> bool:
        """Whether there are validation windows."""
        return len(self.held_out) > 0

    def train_dataloader(self) -> DataLoader[Tensor]:
        """The rows of this process: one batch per step, starting at the trainer's global step."""
        start = self.trainer.global_step if self.trainer else 0
        return DataLoader(
            self.examples,  # type: ignore[arg-type]
            batch_size=None,
            sampler=Steps(start),
            num_workers=self._workers,
            worker_init_fn=leave_signals if self._workers else None,
            pin_memory=self._on_gpu,
        )

    def val_dataloader(self) -> DataLoader[Tensor]:
        """The validation windows of this process.

        All processes have the same number of windows, since they run the model together. The last
        windows may be padding.
        """
        world = self._processes.world
        padding = np.zeros((-len(self.held_out) % world, self.held_out.shape[1]), np.int64)
        mine = np.concatenate([self.held_out, padding])[self._processes.rank :: world]
        return DataLoader(
            torch.from_numpy(mine),  # type: ignore[arg-type]
            batch_size=self._rows,
            pin_memory=self._on_gpu,
        )

    @property
    def _on_gpu(self) -> bool:
        """Whether batches are copied to a GPU, which pinned memory makes asynchronous."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"


def _examples(task: MusicTask, tokenizer: Tokenizer, rows: range, seed: int) -> Examples:
    """The training examples of one process. Raises TrainingError."""
    settings: dict[str, Any] = {
        "corpus": Corpus.load(task.data, "train"),
        "tokenizer": tokenizer,
        "length": task.length,
        "batch_size": len(rows),
        "first_row": rows.start,
        "seed": seed,
        "beginnings": task.beginnings,
        "transposition": task.transposition,
        "augmentation": task.augmentation,
    }
    if isinstance(tokenizer, Remi) and tokenizer.families.has_plans:
        return Documents(**settings, shares=task.documents or DocumentShares())
    if task.documents is not None:
        raise TrainingError(
            f"task.documents is set, but the tokenizer of {task.data} has no documents; leave it "
            "out, or prepare the corpus with --tokenizer piano-2 or multitrack-2"
        )
    return Crops(**settings)


class MusicModule(pl.LightningModule):
    """A decoder with its loss, optimizer and budget.

    One batch of Lightning is a whole step of one process. Micro-batches and chunks are iterated
    here, so that callbacks never run in the middle of a step.
    """

    def __init__(
        self,
        decoder: Decoder,
        task: MusicTask,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
        families: Families,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.decoder = decoder
        self.settings = optimizer
        self.budget = Budget(trainer, optimizer, task.tokens_per_step)
        self.average = Average(decoder, trainer.ema_decay)
        self.movement = Movement(decoder.named_encoding_parameters())
        self.gradient_norm = math.nan
        self.skipped = 0
        self.validation: dict[str, float] = {}
        self._task, self._trainer_settings, self._families = task, trainer, families
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
    def window(self) -> Windows | None:
        """The learned windows, if any; a property, so that they are not stored twice."""
        return self.decoder.training_window()

    def losses(self, batch: Tensor, state: DecoderState) -> Iterator[Tensor]:
        """Sums of the negative log-likelihood of tokens; see `negative_log_likelihoods`."""
        return negative_log_likelihoods(
            self.decoder,
            batch,
            state,
            self._task.chunk,
            truncated=self._task.truncated,
            families=self._families,
        )

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Tensor]:
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
            count = summed(self.trainer, num_predicted(batch).double()).clamp(min=1)
            nats = self.gradients(batch, count)
        norm = torch.nn.utils.clip_grad_norm_(
            self.decoder.parameters(), self.settings.max_gradient_norm
        )
        # the only values that are copied from the device, together
        nats, count, norm = self._agree(nats, count, whole(norm))
        self._check(norm)
        optimizer.step()
        self.average.update()
        return {"nats_per_token": torch.tensor(nats / count)}

    def gradients(self, batch: Tensor, count: Tensor) -> Tensor:
        """Accumulate the gradients of all micro-batches and chunks; return the loss in nats.

        Gradients are divided by `count`, the number of tokens in all processes.
        """
        seed, step = self._trainer_settings.seed, self.global_step
        noise = noise_seed(seed, step)
        features = noise_seed(seed, self.decoder.last_redraw(step, seed))
        nats = torch.zeros((), dtype=torch.float64, device=batch.device)
        parts = batch.chunk(self._trainer_settings.accumulate)
        cut = self._task.chunk if self._task.truncated else None
        left = len(parts) * math.ceil((batch.shape[1] - 1) / (cut or batch.shape[1]))
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

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Accumulate the negative log-likelihood of a batch of windows."""
        state = self.decoder.init_state(len(batch))
        nats = sum(float(value) for value in self.losses(batch, state))
        self._sums.append((nats, int(num_predicted(batch))))

    def on_validation_epoch_start(self) -> None:
        """Validate the averaged weights, if there are any."""
        self.average.swap()

    def on_validation_epoch_end(self) -> None:
        """Store the mean over the windows of all processes for the callbacks."""
        self.average.swap()
        mine = (sum(column) for column in zip(*self._sums, strict=True))
        nats, count = total(self.trainer, *mine)
        self.validation = {"validation/nats_per_token": nats / count}
        self._sums.clear()
        if not math.isfinite(nats):
            raise TrainingError(
                f"step {self.global_step}: the validation loss is {nats / count} nats per token; "
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

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
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
        # older versions used automatic optimisation, which stores the step count elsewhere
        steps = "epoch_loop.manual_optimization.optim_step_progress"
        for number in ("ready", "completed"):
            checkpoint["loops"]["fit_loop"][steps]["total"][number] = checkpoint["global_step"]
        self.budget.earlier = checkpoint["elapsed_seconds"]
        self.average.load(checkpoint["average"])
        # checkpoints of older versions may not have the following
        self.skipped = checkpoint.get("skipped", 0)
        self.movement.load(checkpoint.get("encoding_start", {}))
        if self.window is not None and "spans" in checkpoint:
            self.window.load_span_state(checkpoint["spans"])
