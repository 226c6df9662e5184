"""What a run folder says of its run, session by session, and whether another one goes with it."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import torch
import yaml

from relpe.models.checkpoint import to_plain
from training.config import ExperimentConfig
from training.data.corpus_writer import LISTS
from training.errors import TrainingError
from training.experiment import read_experiment
from training.files import read_json, replacing
from training.runs.device import Arithmetic

_FIXED = ("seed", "ema_decay")
"""What of the trainer's settings holds for a whole run: weights depend on it. `machine` sees to
device, precision and threads; budgets and intervals may change."""
_WRITTEN = (
    *("last.ckpt", "best.ckpt", "metrics.csv", "config.yaml", "run.json", "tokenizer.json"),
    *("tensorboard", "wandb", "samples", "evaluation"),
)


@dataclass(frozen=True, kw_only=True)
class PastSession:
    """One start of the command."""

    step: int = 0
    """Step that it went on from."""
    command: str | None = None
    commit: str | None = None
    machine: str | None = None
    python: str | None = None
    torch: str | None = None
    lightning: str | None = None


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """One run on the way to some weights; None is what nothing says."""

    name: str
    """Of its folder."""
    steps: int | None = None
    """Steps up to the weights that were taken."""
    tokens: int | None = None
    """Tokens that these steps have read, padding included."""
    weights: str | None = None
    """SHA-256 of the weights that were taken, as of `weights.digest`."""
    source: str | None = None
    """What its data was prepared from."""
    data: str | None = None
    """Hash of the prepared corpus."""
    device: str | None = None
    precision: str | None = None
    threads: int | None = None
    sessions: tuple[PastSession, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstWeights:
    """Weights that a run starts from, as its run.json keeps them."""

    path: str
    digest: str | None = None
    """SHA-256, as of `weights.digest`; run.json of earlier versions does not hold it."""
    history: tuple[PastRun, ...] = ()


def read_run(folder: Path) -> dict[str, Any]:
    """What `run.json` holds; that of earlier versions as one session.

    Raises:
        TrainingError: it is missing or damaged.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise TrainingError(f"{folder}: found no run.json, expected a run folder")
    run = read_json(path, ("data", "precision", "threads"), "start anew with --fresh")
    if "sessions" not in run:
        run["sessions"] = [
            {one.name: run.pop(one.name, one.default) for one in fields(PastSession)}
        ]
    return run


def past_session(session: dict[str, Any]) -> PastSession:
    """A session of run.json."""
    names = [field.name for field in fields(PastSession)]
    return PastSession(**{name: session[name] for name in names if name in session})


def clear_run(folder: Path) -> None:
    """Remove all that a run has written into its folder, and what was measured of it.

    Nothing is removed from a folder that holds no run.
    """
    if not any((folder / name).exists() for name in ("run.json", "last.ckpt", "best.ckpt")):
        return
    for path in (folder / name for name in _WRITTEN):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def check_same_run(
    config: ExperimentConfig,
    folder: Path,
    run: dict[str, Any],
    facts: dict[str, Any],
    init_from: Path | None,
) -> None:
    """Refuse to go on with other settings, data or first weights than the run began with.

    Raises:
        TrainingError: names the first setting that differs.
    """
    remedy = "name a new folder with --run, or start anew with --fresh"
    if _of_data(run["data"]) != _of_data(facts):
        raise TrainingError(f"{folder}: began with other data; {remedy}")
    held = run.get("init_from")
    began = held["path"] if isinstance(held, dict) else held or "fresh ones"
    if init_from is not None and str(init_from) != began:
        raise TrainingError(
            f"{folder}: began with other weights ({began}) than --init-from {init_from}; {remedy}"
        )
    old, new = _lasting(read_experiment(folder)), _lasting(config)
    for name, began, now in _differences(old, new):
        raise TrainingError(f"{folder}: began with another {name} ({began}, now {now}); {remedy}")


def _of_data(facts: dict[str, Any]) -> tuple[str, dict[str, tuple[int, int]]]:
    """What may not change of data: the hash is that of all splits, whichever a file is in."""
    splits = facts.get("splits", {})
    return facts["hash"], {name: (s["files"], s["tokens"]) for name, s in splits.items()}


def _lasting(config: ExperimentConfig) -> dict[str, Any]:
    """What of an experiment may not change from one session to the next."""
    plain = to_plain(config)
    del plain["task"]["data"]  # a folder can be moved; its hash is compared
    return plain | {"trainer": {key: plain["trainer"][key] for key in _FIXED}}


def _differences(old: object, new: object, name: str = "") -> Iterator[tuple[str, object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{name}.{key}" if name else key
            yield from _differences(old.get(key), new.get(key), inner)
    elif old != new:
        yield name, old, new


def describe_session(
    config: ExperimentConfig,
    folder: Path,
    facts: dict[str, Any],
    parameters: int,
    arithmetic: Arithmetic,
    *,
    earlier: dict[str, Any] | None,
    step: int,
    first: FirstWeights | None,
    processes: int = 1,
) -> None:
    """Store the resolved configuration and what makes the run.

    `earlier` is what run.json held, `first` the weights that a new run starts from if not fresh.
    """
    with replacing(folder / "config.yaml") as path:
        path.write_text(yaml.safe_dump(to_plain(config), sort_keys=False))
    session = {
        "step": step,
        "command": shlex.join(["relpe-train", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": _machine(arithmetic),
        "processes": processes,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": version("pytorch-lightning"),
        "environment": _environment(),
    }
    before: dict[str, Any] = earlier or {"sessions": [], "init_from": to_plain(first)}
    run = {
        "sessions": [*before["sessions"], session],
        "init_from": before.get("init_from"),
        "parameters": parameters,
        "seeds": {
            "trainer.seed": config.trainer.seed,
            "task.model.noise_seed": config.task.model.noise_seed,
        },
        **arithmetic._asdict(),
        "data": {key: value for key, value in facts.items() if key not in LISTS},
    }
    with replacing(folder / "run.json") as path:
        path.write_text(json.dumps(run, indent=1) + "\n")


def _machine(arithmetic: Arithmetic) -> str:
    """Processor, how many cores, and the GPU that computes, in one line."""
    gpu = [torch.cuda.get_device_name()] if arithmetic.device == "cuda" else []
    return ", ".join([_processor(), f"{os.cpu_count()} CPUs", *gpu])


def _processor() -> str:
    """Architecture and, where Linux says it, name of the processor."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} ({names[0]})" if names else platform.machine()


@cache
def _environment() -> dict[str, Any]:
    """System, how torch was built and what it uses here, and the version of every package."""
    built = torch.__config__.show().splitlines()[1:]
    return {
        "system": platform.platform(),
        "torch": {
            "commit": torch.version.git_version,
            "build": [line.strip(" -") for line in built if "Build settings" not in line],
        },
        "packages": dict(sorted((found.name, found.version) for found in distributions())),
    }


def _commit() -> str | None:
    """Commit of the sources, with a plus where they were changed since; None without git."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        command = ["git", "-C", here, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None
