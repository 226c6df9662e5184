"""Training of a model in the folder of a run, and resuming of runs."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

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
from training.runs.device import (
    Arithmetic,
    choose_arithmetic,
    fast_products,
    resume_arithmetic,
)
from training.runs.lineage import first_weights
from training.runs.loggers import Log, build_loggers, check_loggers
from training.runs.loop import Loop
from training.runs.progress import Progress
from training.runs.record import FirstWeights, check_same_run, clear_run, describe_segment, read_run
from training.runs.samples import Samples
from training.runs.weights import (
    fill,
    keep_styles,
    load_decoder,
    model_folder,
    read_checkpoint,
    start_from,
)
from training.tasks.module import TaskModule
from training.tasks.music import MusicTask
from training.tasks.task import TaskData

logger = logging.getLogger(__name__)

_EXPECTED_WARNINGS = (
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
        logging.getLogger("training").setLevel(logging.ERROR)
        alone = nullcontext()
    else:
        _check_folder(folder, fresh=fresh)
        alone = alone_in(folder)
    with alone:
        segment = _open(config, folder, processes, fresh=fresh, init_from=init_from)
        module, stopped_by = segment.module, None
        spent = module.budget.progress(module.step) >= 1
        if spent and not (segment.is_due or segment.samples_are_due):
            logger.info("%s: nothing to do, the budget of this run is used up", folder)
        else:
            _write_start(segment, fresh=fresh)
            stopped_by = _train(segment, show=show and not processes.rank)
    return Result(
        step=module.step,
        tokens=module.step * config.task.tokens_per_step,
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
    data: TaskData
    module: TaskModule[Any]
    """The model, with its weights at the start of the segment."""
    earlier: dict[str, Any] | None
    """Contents of run.json; None for a new run."""
    first: FirstWeights | None = None
    """Origin of the initial weights of a new run; None if they are random."""
    checkpoint: dict[str, Any] | None = None
    """The checkpoint to resume from."""

    @property
    def is_due(self) -> bool:
        """Whether the validation of its step is still due."""
        held = {} if self.checkpoint is None else self.checkpoint["callbacks"]["Checkpoints"]
        return held.get("due") == self.module.step

    @property
    def samples_are_due(self) -> bool:
        """Whether only the samples of its step are still due."""
        return self.checkpoint is not None and Samples.are_due(self.checkpoint, self.folder)


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
        return replace(segment, checkpoint=_resume(module, last))
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


def _resume(module: TaskModule[Any], last: Path) -> dict[str, Any]:
    """Restore weights, step and elapsed time; return the checkpoint, which has everything else."""
    other = "copy best.ckpt over it, or " if last.with_name("best.ckpt").exists() else ""
    checkpoint = read_checkpoint(last, f"{other}start again with --fresh")
    if checkpoint.get("sharded"):
        raise TrainingError(
            f"{last}: written with fsdp by an earlier version, expected a checkpoint of this one; "
            "start a new run from its weights with --init-from"
        )
    fill(module.decoder, checkpoint, last, averaged=False)
    module.step, module.budget.earlier = checkpoint["global_step"], checkpoint["elapsed_seconds"]
    return checkpoint


def _write_start(segment: _Segment, *, fresh: bool) -> None:
    """Record the start of a segment in the log and in the run's folder."""
    config, folder = segment.config, segment.folder
    if segment.earlier is not None:
        logger.info("%s: resuming from step %d", folder, segment.module.step)
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
            step=segment.module.step,
            first=segment.first,
            processes=segment.processes.world,
        )
        tokenizer = config.task.tokenizer
        if tokenizer is not None:
            tokenizer.save(folder)


def _train(segment: _Segment, *, show: bool) -> int | None:
    """Train; return the signal that stopped it."""
    config, folder, module, data = segment.config, segment.folder, segment.module, segment.data
    settings = config.trainer
    with warnings.catch_warnings(), fast_products(segment.arithmetic.device):
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        fabric = _start_processes(segment)
        data.pinned = fabric.device.type == "cuda"
        module.begin(fabric, segment.checkpoint)
        # only music has samples; one process writes them, but with fsdp no process has all weights
        sampled = isinstance(config.task, MusicTask) and settings.strategy != "fsdp"
        samples = Samples(folder, config.task.data, settings.samples if sampled else 0)
        loggers: list[Log] = []
        if fabric.is_global_zero:
            loggers = build_loggers(config, folder, module.step, is_due=segment.is_due)
        progress = Progress(module, config, loggers, show=show)
        loop = Loop(module, data, folder, settings, progress, loggers, samples)
        failed = True
        try:
            stopped_by = loop.run(segment.checkpoint, samples_are_due=segment.samples_are_due)
            failed = stopped_by is not None
        finally:
            progress.close()
            samples.wait()
            for log in loggers:
                log.close(failed=failed)
    if stopped_by is not None:
        logger.info("%s: stopped at step %d; the same command resumes the run", folder, module.step)
    return stopped_by


def _start_processes(segment: _Segment) -> Fabric:
    """Return the device and the processes of a run, which start if they have not been started."""
    processes = segment.processes
    environment = choose_environment(processes, os.environ)
    fabric = Fabric(
        accelerator="gpu" if segment.arithmetic.device == "cuda" else "cpu",
        devices=processes.devices,
        num_nodes=processes.nodes,
        strategy=choose_strategy(segment.config.trainer, processes),
        plugins=[] if environment is None else [environment],
        precision=segment.arithmetic.precision,
    )
    if fabric.world_size != processes.world:  # some rows would not be trained on
        raise TrainingError(
            f"Fabric found {fabric.world_size} processes, expected {processes.world} "
            f"({processes.devices} on each of {processes.nodes} nodes); check trainer.devices, "
            "trainer.nodes and how the processes were started"
        )
    fabric.launch()
    return fabric
