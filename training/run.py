"""Builds trainer, loggers and callbacks of a run, and runs it."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers import TensorBoardLogger

from relpe.checkpoint import to_plain
from tokenization.tokenizer import load_tokenizer
from training.callbacks import Checkpoints, CsvLog, InterruptedRunError, Report
from training.config import ExperimentConfig, TrainerConfig, build
from training.errors import TrainingError
from training.files import replacing
from training.machine import choose_arithmetic, resume_arithmetic
from training.prepare import LISTS
from training.tasks.music import MusicTask
from training.weights import load_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from training.machine import Arithmetic
    from training.tasks.music import MusicModule

logger = logging.getLogger(__name__)

Task = MusicTask
TASKS: dict[str, type[Task]] = {"music": MusicTask}


def build_experiment(mapping: Mapping[str, Any]) -> ExperimentConfig:
    """Experiment of plain values; its task is built by its kind.

    Raises:
        TrainingError: a value does not fit.
    """
    values = dict(mapping)
    section = values.get("task")
    if not isinstance(section, dict):
        raise TrainingError("config.task: missing, expected the section of a task")
    kind = section.get("kind", "music")
    if kind not in TASKS:
        raise TrainingError(f"config.task.kind: found {kind!r}, expected one of {', '.join(TASKS)}")
    values["task"] = build(TASKS[kind], section, "config.task")
    return build(ExperimentConfig, values)


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
    finished: bool
    """Whether the budget is spent; otherwise a signal ended the run."""


def fit(
    config: ExperimentConfig,
    folder: Path,
    *,
    fresh: bool = False,
    init_from: Path | None = None,
    show: bool = True,
) -> Result:
    """Train, going on from `last.ckpt` where the folder holds one.

    `fresh` starts anew over an old run; `init_from` is a run or a checkpoint folder whose weights
    a new run starts from.

    Raises:
        TrainingError: data, configuration and an earlier session of the run do not fit.
    """
    settings: TrainerConfig = config.trainer
    last = folder / "last.ckpt"
    resume = last if last.exists() and not fresh else None
    if resume is None:
        arithmetic = choose_arithmetic(settings)
    else:
        began = json.loads((folder / "run.json").read_text())
        arithmetic = resume_arithmetic(settings, began, folder)
    data = config.task.build_data(settings.seed)
    module: MusicModule = config.task.build_module(config.optimizer, settings)

    def result(step: int, *, finished: bool) -> Result:
        return Result(
            step=step,
            tokens=step * config.task.tokens_per_step,
            minutes=module.budget.elapsed() / 60,
            validation=module.validation.get("validation/nats_per_token"),
            finished=finished,
        )

    if fresh:
        for name in ("last.ckpt", "best.ckpt", "metrics.csv"):
            (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if resume is not None:
        _check_same_run(config, folder, data.facts["hash"])
        checkpoint = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
        module.budget.earlier = checkpoint["elapsed_seconds"]
        if module.budget.progress(checkpoint["global_step"]) >= 1:
            logger.info("%s: the budget of this run is spent", folder)
            return result(checkpoint["global_step"], finished=True)
        logger.info("%s: goes on from step %d", folder, checkpoint["global_step"])
        del checkpoint
    elif init_from is not None:
        start, _ = load_decoder(init_from)
        module.decoder.load_state_dict(start.state_dict())
    parameters = sum(parameter.numel() for parameter in module.decoder.parameters())
    logger.info("%s parameters, %s, %s, %d threads", f"{parameters:,}", *arithmetic)
    _describe_run(config, folder, data.facts, parameters, arithmetic)
    load_tokenizer(config.task.data).save(folder)
    report = Report(settings.log_every, config.task.tokens_per_step, show=show)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        trainer = pl.Trainer(
            accelerator="gpu" if arithmetic.device == "cuda" else "cpu",
            devices=1,
            precision=arithmetic.precision,
            max_epochs=-1,
            val_check_interval=settings.validate_every,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=[
                CsvLog(folder / "metrics.csv"),
                TensorBoardLogger(folder, name="", version="tensorboard"),
            ],
            callbacks=[report, Checkpoints(folder, settings.checkpoint_every)],
            log_every_n_steps=settings.log_every,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            inference_mode=False,
            use_distributed_sampler=False,
            default_root_dir=folder,
        )
        finished = True
        try:
            trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
        except InterruptedRunError as stop:
            logger.info("%s: %s; the same command goes on from there", folder, stop)
            finished = False
    return result(trainer.global_step, finished=finished)


def _check_same_run(config: ExperimentConfig, folder: Path, data_hash: str) -> None:
    """Refuse to go on with another model, seed or data than the run began with."""
    stored = build_experiment(yaml.safe_load((folder / "config.yaml").read_text()))
    pairs = [
        *(
            (f"task.{key}", stored.task, config.task, key)
            for key in ("model", "length", "batch_size")
        ),
        ("trainer.seed", stored.trainer, config.trainer, "seed"),
    ]
    for name, old, new, key in pairs:
        if getattr(old, key) != getattr(new, key):
            raise TrainingError(
                f"{folder}: began with another {name}; name a new folder with --run, or start "
                "anew with --fresh"
            )
    if json.loads((folder / "run.json").read_text())["data"]["hash"] != data_hash:
        raise TrainingError(f"{folder}: began with other data; name a new folder with --run")


def _describe_run(
    config: ExperimentConfig,
    folder: Path,
    facts: dict[str, Any],
    parameters: int,
    arithmetic: Arithmetic,
) -> None:
    """Store the resolved configuration and what made the run."""
    with replacing(folder / "config.yaml") as path:
        path.write_text(yaml.safe_dump(to_plain(config), sort_keys=False))
    run = {
        "command": " ".join(["relpe-train", *sys.argv[1:]]),
        "commit": commit(),
        "parameters": parameters,
        **arithmetic._asdict(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": version("pytorch-lightning"),
        "data": {key: value for key, value in facts.items() if key not in LISTS},
    }
    with replacing(folder / "run.json") as path:
        path.write_text(json.dumps(run, indent=1) + "\n")


def commit() -> str | None:
    """Commit of the sources, with a plus where they were changed since; None without git."""
    here = os.path.dirname(__file__)  # noqa: PTH120  # git takes a text
    try:
        git = ["git", "-C", here]
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
