"""Training of a model in the folder of a run, and resuming of runs."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from tokenization.presets import load_tokenizer
from training.config import ExperimentConfig
from training.errors import TrainingError
from training.files import LOCK, alone_in
from training.learning.distributed import (
    Processes,
    choose_environment,
    choose_strategy,
    find_processes,
)
from training.runs.callbacks import Checkpoints, InterruptedRunError, Report
from training.runs.device import (
    Arithmetic,
    choose_arithmetic,
    fast_products,
    resume_arithmetic,
)
from training.runs.lineage import first_weights
from training.runs.loggers import build_loggers, check_loggers
from training.runs.pictures import Pictures
from training.runs.record import FirstWeights, check_same_run, clear_run, describe_segment, read_run
from training.runs.samples import Samples
from training.runs.weights import (
    CheckpointFiles,
    fill,
    keep_styles,
    load_decoder,
    model_folder,
    read_checkpoint,
    start_from,
)
from training.tasks.module import TaskModule
from training.tasks.music import MusicData, MusicTask
from training.tasks.task import TaskData

logger = logging.getLogger(__name__)

_EXPECTED_WARNINGS = (
    ".*does not have many workers.*",
    ".*isinstance.treespec, LeafSpec.*",
    ".*GPU available but not used.*",
    ".*AccumulateGrad node.s stream does not match.*",  # ddp keeps the nodes
    ".*DataLoader will create.*",  # the number of workers is a setting
    ".*FSDP2-wrapped module .* returned a view tensor.*",  # views are never changed in place
)


@dataclass(frozen=True)
class Result:
    """Outcome of training until the run ended or was stopped."""

    step: int
    tokens: int
    """Tokens of all steps, padding included."""
    minutes: float
    """Minutes by the clock of the config, including time before the run was resumed."""
    validation: float | None
    """Last validation loss in nats per token, or per example for classifiers."""
    accuracy: float | None = None
    """Share of right classes in the last validation; only for classifiers."""
    stopped_by: int | None = None
    """Signal that stopped the run; None if its budget is used up."""
    rank: int = 0
    """Rank of this process."""


def fit(
    config: ExperimentConfig,
    folder: Path,
    *,
    fresh: bool = False,
    init_from: str | Path | None = None,
    show: bool = True,
) -> Result:
    """Train a model, resuming from `last.ckpt` if the folder has one.

    `fresh` removes an existing run first. `init_from` is the folder of another run or of a released
    model; a new run starts from its weights. Without validation pieces, `best.ckpt` equals
    `last.ckpt`. `show` displays progress on the terminal.

    Raises:
        TrainingError: the data and the configuration do not match each other or the run that is
            resumed.
    """
    processes = find_processes(config.trainer, os.environ)
    if processes.rank:  # only one process logs and writes
        logging.getLogger("training").setLevel(logging.WARNING)
        alone = nullcontext()
    else:
        _check_folder(folder, fresh=fresh)
        alone = alone_in(folder)
    with alone:
        segment = _open(config, folder, processes, fresh=fresh, init_from=init_from)
        module, step, stopped_by = segment.module, segment.step, None
        if module.budget.progress(step) >= 1 and not (segment.is_due or segment.samples_are_due):
            logger.info("%s: nothing to do, the budget of this run is used up", folder)
        else:
            _write_start(segment, fresh=fresh)
            step, stopped_by = _train(segment, show=show and not processes.rank)
    return Result(
        step=step,
        tokens=step * config.task.tokens_per_step,
        minutes=module.budget.elapsed() / 60,
        validation=module.validation_loss,
        accuracy=module.validation.get("validation/accuracy"),
        stopped_by=stopped_by,
        rank=processes.rank,
    )


@dataclass(frozen=True)
class _Segment:
    """A segment of a run, from one start of the command to its end."""

    config: ExperimentConfig
    folder: Path
    processes: Processes
    arithmetic: Arithmetic
    data: MusicData | TaskData
    module: TaskModule[Any]
    """The model, with its weights at the start of the segment."""
    earlier: dict[str, Any] | None
    """Contents of run.json; None for a new run."""
    first: FirstWeights | None = None
    """Origin of the initial weights of a new run; None if they are random."""
    step: int = 0
    """Step of the checkpoint to resume from."""
    is_due: bool = False
    """Whether the validation of that step is still due."""
    samples_are_due: bool = False
    """Whether only the samples of that step are still due."""


def _open(
    config: ExperimentConfig,
    folder: Path,
    processes: Processes,
    *,
    fresh: bool,
    init_from: str | Path | None,
) -> _Segment:
    """Load everything that a segment needs and check that it matches; write nothing."""
    settings = config.trainer
    check_loggers(settings)
    last = folder / "last.ckpt"
    earlier = read_run(folder) if last.exists() and not fresh else None
    if earlier is None:
        arithmetic = choose_arithmetic(settings, processes)
    else:
        arithmetic = resume_arithmetic(settings, earlier, folder)
    data = config.task.build_data(settings, processes)
    module = config.task.build_module(config.optimizer, settings)
    segment = _Segment(config, folder, processes, arithmetic, data, module, earlier)
    if earlier is not None:
        check_same_run(config, folder, earlier, data.facts, init_from)
        checkpoint = _resume(module, last, sharded=settings.strategy == "fsdp")
        return replace(
            segment,
            step=checkpoint["global_step"],
            is_due=Checkpoints.is_due(checkpoint),
            samples_are_due=Samples.are_due(checkpoint, folder),
        )
    if init_from is None:
        return segment
    weights, origin = load_decoder(init_from)
    first = first_weights(init_from, origin, config.task.tokenizer)
    start_from(module.decoder, weights, init_from)
    if config.task.tokenizer is not None:
        before = load_tokenizer(model_folder(init_from))
        keep_styles(module.decoder, before, config.task.tokenizer)
    return replace(segment, first=first)


def _check_folder(folder: Path, *, fresh: bool) -> None:
    """Raise TrainingError if the folder has files that do not belong to a run to resume."""
    if folder.exists() and not folder.is_dir():
        raise TrainingError(f"{folder}: is a file, expected a folder; choose another with --run")
    if fresh or (folder / "last.ckpt").exists() or not folder.exists():
        return
    if (folder / "best.ckpt").exists():
        raise TrainingError(
            f"{folder}: the run has no last.ckpt; copy best.ckpt to last.ckpt to resume from it, "
            "or start again with --fresh"
        )
    # a run that was killed before its first checkpoint starts over
    others = [path for path in folder.iterdir() if path.name != LOCK]
    if others and not (folder / "run.json").exists():
        raise TrainingError(f"{folder}: has files but is not a run; choose a new folder with --run")


def _resume(module: TaskModule[Any], last: Path, *, sharded: bool) -> dict[str, Any]:
    """Restore weights and elapsed time; return the checkpoint.

    Lightning restores everything else.
    """
    other = "copy best.ckpt over it, or " if last.with_name("best.ckpt").exists() else ""
    checkpoint = read_checkpoint(last, f"{other}start again with --fresh")
    # fsdp stores the optimizer's states in the order of the model, other strategies by group
    if sharded and not checkpoint["sharded"]:
        raise TrainingError(
            f"{last}: written without fsdp, so fsdp cannot resume from it; leave out "
            "trainer.strategy, or start a new run from its weights with --init-from"
        )
    fill(module.decoder, checkpoint, last)
    module.budget.earlier = checkpoint["elapsed_seconds"]
    return checkpoint


def _write_start(segment: _Segment, *, fresh: bool) -> None:
    """Record the start of a segment in the log and in the run's folder."""
    config, folder = segment.config, segment.folder
    if segment.earlier is not None:
        logger.info("%s: resuming from step %d", folder, segment.step)
    parameters = sum(parameter.numel() for parameter in segment.module.decoder.parameters())
    logger.info("%s parameters, %s, %s, %d threads", f"{parameters:,}", *segment.arithmetic)
    if not segment.data.validates:
        logger.warning(
            "%s: the split 'validation' is empty, so the best weights cannot be found; best.ckpt "
            "will contain the last weights",
            config.task.data,
        )
    steps = -(-config.trainer.token_budget // config.task.tokens_per_step)
    segment.module.budget.warn_of_warmup(steps)
    if segment.processes.rank == 0:
        if fresh:
            clear_run(folder)
        describe_segment(
            config,
            folder,
            segment.data.facts,
            parameters,
            segment.arithmetic,
            earlier=segment.earlier,
            step=segment.step,
            first=segment.first,
            processes=segment.processes.world,
        )
        tokenizer = config.task.tokenizer
        if tokenizer is not None:
            tokenizer.save(folder)


def _train(segment: _Segment, *, show: bool) -> tuple[int, int | None]:
    """Run Lightning's Trainer; return the last step, and the signal that stopped it."""
    with warnings.catch_warnings(), fast_products(segment.arithmetic.device):
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        trainer = _build_trainer(segment, show=show)
        resumed = None if segment.earlier is None else segment.folder / "last.ckpt"
        try:
            trainer.fit(
                segment.module, datamodule=segment.data, ckpt_path=resumed, weights_only=True
            )
        except InterruptedRunError as stop:
            logger.info("%s: %s; the same command resumes the run", segment.folder, stop)
            return trainer.global_step, stop.number
    return trainer.global_step, None


def _build_trainer(segment: _Segment, *, show: bool) -> pl.Trainer:
    config, folder, processes = segment.config, segment.folder, segment.processes
    settings, validates = config.trainer, segment.data.validates
    callbacks: list[pl.Callback] = [
        Report(settings.log_every, config.task.tokens_per_step, show=show),
        Checkpoints(folder, settings, validates=validates),
    ]
    if isinstance(config.task, MusicTask):  # only music has samples
        # one process writes them, but with fsdp no process has all weights
        samples = 0 if settings.strategy == "fsdp" else settings.samples
        callbacks.append(Samples(folder, config.task.data, samples))
    if settings.pictures and settings.strategy != "fsdp":  # which shards the weights
        callbacks.append(Pictures())
    environment = choose_environment(processes, os.environ)
    trainer = pl.Trainer(
        accelerator="gpu" if segment.arithmetic.device == "cuda" else "cpu",
        devices=processes.devices,
        num_nodes=processes.nodes,
        strategy=choose_strategy(settings, processes),
        plugins=[CheckpointFiles(), *([] if environment is None else [environment])],
        precision=segment.arithmetic.precision,
        max_epochs=-1,
        val_check_interval=settings.validate_every,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        limit_val_batches=None if validates else 0,
        logger=not processes.rank
        and build_loggers(config, folder, segment.step, is_due=segment.is_due),
        callbacks=callbacks,
        log_every_n_steps=settings.log_every,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    if trainer.world_size != processes.world:  # some rows would not be trained on
        raise TrainingError(
            f"Lightning found {trainer.world_size} processes, expected {processes.world} "
            f"({processes.devices} on each of {processes.nodes} nodes); check trainer.devices, "
            "trainer.nodes and how the processes were started"
        )
    return trainer
