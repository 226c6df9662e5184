"""Builds trainer, loggers and callbacks of a run, and runs it."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers import TensorBoardLogger

from tokenization.tokenizer import load_tokenizer
from training.callbacks import Checkpoints, CsvLog, InterruptedRunError, Report
from training.config import ExperimentConfig, TrainerConfig, build, plain
from training.errors import TrainingError
from training.tasks.music import MusicTask

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    accelerator = choose_device(settings)
    data = config.task.build_data(settings.seed)
    module: MusicModule = config.task.build_module(config.optimizer, settings)
    last = folder / "last.ckpt"
    if fresh:
        for name in ("last.ckpt", "best.ckpt", "metrics.csv"):
            (folder / name).unlink(missing_ok=True)
    resume = last if last.exists() else None
    folder.mkdir(parents=True, exist_ok=True)
    if resume is not None:
        _check_same_run(config, folder, data.facts["hash"])
        checkpoint = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
        module.budget.earlier = checkpoint["elapsed_seconds"]
        if module.budget.progress(checkpoint["global_step"]) >= 1:
            logger.info("%s: the budget of this run is spent", folder)
            return Result(checkpoint["global_step"], None, finished=True)
        logger.info("%s: goes on from step %d", folder, checkpoint["global_step"])
        del checkpoint
    elif init_from is not None:
        from training.evaluate import load_decoder

        module.decoder.load_state_dict(load_decoder(init_from).state_dict())
    precision = choose_precision(settings, accelerator)
    parameters = sum(parameter.numel() for parameter in module.decoder.parameters())
    logger.info("%s parameters, %s, %s", f"{parameters:,}", accelerator, precision)
    _describe_run(config, folder, data.facts, parameters, precision)
    load_tokenizer(config.task.data).save(folder)
    report = Report(settings.log_every, config.task.tokens_per_step, show=show)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        trainer = pl.Trainer(
            accelerator="gpu" if accelerator == "cuda" else accelerator,
            devices=1,
            precision=precision,
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
    return Result(trainer.global_step, module.validation.get("validation/nats_per_token"), finished)


def choose_device(settings: TrainerConfig) -> str:
    """The device to compute on: cpu or cuda; sets the number of threads.

    Raises:
        TrainingError: a GPU is asked for and there is none.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("trainer.device is cuda, found no GPU; use cpu or auto")
    if settings.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return settings.device


def choose_precision(settings: TrainerConfig, device: str) -> Literal["32-true", "bf16-mixed"]:
    """Lightning's name of the precision; auto times a matrix product in both.

    bfloat16 is far slower than float32 on a CPU without instructions for it, and several times
    faster on one with them.
    """
    bf16 = settings.precision == "bf16"
    if settings.precision == "auto":
        bf16 = _time_product(torch.bfloat16, device) < 0.8 * _time_product(torch.float32, device)
    return "bf16-mixed" if bf16 else "32-true"


def _time_product(dtype: torch.dtype, device: str) -> float:
    # Large enough for a GPU to be busy; small enough where bfloat16 is emulated.
    size = 4096 if device == "cuda" else 256
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        float((matrix @ matrix)[0, 0])
        best = min(best, time.perf_counter() - started)
    return best


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
    precision: str,
) -> None:
    """Store the resolved configuration and what made the run."""
    _write(folder / "config.yaml", yaml.safe_dump(plain(config), sort_keys=False))
    run = {
        "command": " ".join(["relpe-train", *sys.argv[1:]]),
        "commit": commit(),
        "parameters": parameters,
        "precision": precision,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": version("pytorch-lightning"),
        "data": {key: value for key, value in facts.items() if key != "refused"},
    }
    _write(folder / "run.json", json.dumps(run, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


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
