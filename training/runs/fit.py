"""Builds trainer, loggers and callbacks of a run, and runs it."""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl

from tokenization.presets import load_tokenizer
from training.errors import TrainingError
from training.learning.distributed import NOT_OURS, choose_plugins, choose_strategy, find_processes
from training.runs.callbacks import Checkpoints, InterruptedRunError, Report, Samples
from training.runs.device import choose_arithmetic, resume_arithmetic
from training.runs.lineage import FirstWeights, first_weights
from training.runs.loggers import build_loggers, check_loggers
from training.runs.record import check_same_run, clear_run, describe_session, read_run
from training.runs.weights import CheckpointFiles, fill, load_decoder, read_checkpoint, start_from

if TYPE_CHECKING:
    from pathlib import Path

    from training.config import ExperimentConfig, TrainerConfig
    from training.tasks.music import MusicModule

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    step: int
    tokens: int
    """Tokens that all steps have read, padding included."""
    minutes: float
    """Wall-clock minutes of all sessions."""
    validation: float | None
    """Nats per token at the end."""
    stopped_by: int | None = None
    """The signal that ended the run; None: its budget is spent."""
    rank: int = 0
    """Which of the run's processes says so."""

    @property
    def finished(self) -> bool:
        """Whether the budget is spent."""
        return self.stopped_by is None


def fit(
    config: ExperimentConfig,
    folder: Path,
    *,
    fresh: bool = False,
    init_from: Path | None = None,
    show: bool = True,
) -> Result:
    """Train, going on from `last.ckpt` where the folder holds one.

    `fresh` starts anew over an old run, of which nothing is left; `init_from` is a run or a
    checkpoint folder whose weights a new run starts from. Without pieces to validate on `best.ckpt`
    is the same as `last.ckpt`.

    Raises:
        TrainingError: data, configuration and an earlier session of the run do not fit.
    """
    settings: TrainerConfig = config.trainer
    processes = find_processes(settings, os.environ)
    if processes.rank:  # one process speaks for all
        logging.getLogger("training").setLevel(logging.WARNING)
        show = False
    last = folder / "last.ckpt"
    resume = last if last.exists() and not fresh else None
    if processes.rank == 0 and not fresh:
        _check_folder(folder)
    earlier: dict[str, Any] | None = None
    first: FirstWeights | None = None
    check_loggers(settings)
    if resume is None:
        arithmetic = choose_arithmetic(settings, processes)
    else:
        earlier = read_run(folder)
        arithmetic = resume_arithmetic(settings, earlier, folder)
    data = config.task.build_data(settings, processes)
    module: MusicModule = config.task.build_module(config.optimizer, settings)

    def result(step: int, stopped_by: int | None = None) -> Result:
        return Result(
            step=step,
            tokens=step * config.task.tokens_per_step,
            minutes=module.budget.elapsed() / 60,
            validation=module.validation.get("validation/nats_per_token"),
            stopped_by=stopped_by,
            rank=processes.rank,
        )

    start, is_due = 0, False
    if earlier is not None:
        check_same_run(config, folder, earlier, data.facts, init_from)
        other = "put best.ckpt in its place, or " if (folder / "best.ckpt").exists() else ""
        checkpoint = read_checkpoint(last, f"{other}start anew with --fresh")
        # states of the optimizer are numbered by the model there, elsewhere by its groups
        if settings.strategy == "fsdp" and not checkpoint.get("sharded"):
            raise TrainingError(
                f"{last}: written without fsdp, which cannot go on from it; leave trainer.strategy "
                "out, or give its weights to a new run with --init-from"
            )
        fill(module.decoder, checkpoint, last)
        start, is_due = checkpoint["global_step"], Checkpoints.is_due(checkpoint)
        module.budget.earlier = checkpoint["elapsed_seconds"]
        del checkpoint
        if module.budget.progress(start) >= 1 and not is_due:
            logger.info("%s: the budget of this run is spent", folder)
            return result(start)
        logger.info("%s: goes on from step %d", folder, start)
    elif init_from is not None:
        weights, origin = load_decoder(init_from)
        first = first_weights(init_from, origin, data.facts["vocabulary"])
        start_from(module.decoder, weights, init_from)
    if (
        fresh
        and processes.rank == 0
        and any((folder / name).exists() for name in ("run.json", "last.ckpt", "best.ckpt"))
    ):  # nothing of a folder that holds no run
        clear_run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = sum(parameter.numel() for parameter in module.decoder.parameters())
    logger.info("%s parameters, %s, %s, %d threads", f"{parameters:,}", *arithmetic)
    if not data.validates:
        logger.warning(
            "%s: the split 'validation' holds no pieces, so nothing tells which weights are best: "
            "best.ckpt will be the last ones",
            config.task.data,
        )
    steps = -(-settings.token_budget // config.task.tokens_per_step)
    if steps <= config.optimizer.warmup_steps:
        logger.warning(
            "the budget of %d steps ends while the learning rate still warms up, over %d steps "
            "(optimizer.warmup_steps): little will be learnt",
            *(steps, config.optimizer.warmup_steps),
        )
    if processes.rank == 0:
        describe_session(
            config,
            folder,
            data.facts,
            parameters,
            arithmetic,
            earlier=earlier,
            step=start,
            first=first,
            processes=processes.world,
        )
        load_tokenizer(config.task.data).save(folder)
    report = Report(settings.log_every, config.task.tokens_per_step, show=show)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        # how many draw the examples was asked for
        warnings.filterwarnings("ignore", message=".*DataLoader will create.*")
        for message in NOT_OURS:
            warnings.filterwarnings("ignore", message=message)
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        trainer = pl.Trainer(
            accelerator="gpu" if arithmetic.device == "cuda" else "cpu",
            devices=processes.devices,
            num_nodes=processes.nodes,
            strategy=choose_strategy(settings, processes),
            plugins=[CheckpointFiles(), *choose_plugins(processes, os.environ)],
            precision=arithmetic.precision,
            max_epochs=-1,
            val_check_interval=settings.validate_every,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            limit_val_batches=None if data.validates else 0,
            logger=(
                False if processes.rank else build_loggers(config, folder, start, is_due=is_due)
            ),
            callbacks=[
                report,
                Checkpoints(folder, settings, validates=data.validates),
                # one process writes them, and with fsdp none has the weights
                Samples(
                    folder,
                    config.task.data,
                    0 if settings.strategy == "fsdp" else settings.samples,
                ),
            ],
            log_every_n_steps=settings.log_every,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            inference_mode=False,
            use_distributed_sampler=False,
            default_root_dir=folder,
        )
        stopped_by = None
        try:
            trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
        except InterruptedRunError as stop:
            logger.info("%s: %s; the same command goes on from there", folder, stop)
            stopped_by = stop.number
    return result(trainer.global_step, stopped_by)


def _check_folder(folder: Path) -> None:
    """Raises TrainingError for a folder whose files a new run would mix with or write over."""
    if (folder / "last.ckpt").exists() or not folder.exists():
        return
    if not folder.is_dir():
        raise TrainingError(f"{folder}: is a file, expected a folder; name another with --run")
    if (folder / "best.ckpt").exists():
        raise TrainingError(
            f"{folder}: holds a run without last.ckpt; copy best.ckpt there to go on from it, or "
            "start anew with --fresh"
        )
    # a run that was killed before its first checkpoint begins again
    if not (folder / "run.json").exists() and any(folder.iterdir()):
        raise TrainingError(f"{folder}: holds other files and no run; name a new folder with --run")
