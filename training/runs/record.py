"""The record of a run, run.json: its segments, and checks whether it may be resumed.

A segment is one start of `relpe-train fit`; run.json lists segments under the key `sessions`.
"""

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
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning_fabric.__version__ import version as lightning_version

from relpe.files import write_text
from relpe.models.config import to_plain
from training.config import ExperimentConfig
from training.data.corpus_writer import LISTS
from training.errors import TrainingError
from training.experiment import read_experiment
from training.files import read_json
from training.runs.device import Arithmetic

_FIXED = ("seed", "ema_decay", "compile")
"""Settings of the trainer that may not change within a run, since the weights depend on them. Those
of the hardware are checked in `device`; budgets and intervals may change."""
_WRITTEN = (
    *("last.ckpt", "best.ckpt", "metrics.csv", "config.yaml", "run.json", "tokenizer.json"),
    *("pointer.json", "tensorboard", "wandb", "samples", "evaluation"),
)


@dataclass(frozen=True, kw_only=True)
class PastSegment:
    """A segment of a run: one start of the command."""

    step: int = 0
    """Step from which the segment resumed the run."""
    command: str
    commit: str | None = None
    """Commit of the sources; None: unknown."""
    machine: str
    python: str
    torch: str
    lightning: str


@dataclass(frozen=True, kw_only=True)
class UsedCorpus:
    """A corpus with which a run trained, and whom to name for it; see `CorpusConfig`."""

    name: str
    weight: float = 1.0
    """Share of the training examples."""
    files: int = 0
    """Number of training pieces."""
    tokens: int = 0
    """Number of tokens of these pieces."""
    licence: str = "unknown"
    attribution: str = ""
    changes: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """A run that contributed to weights; unknown values are None."""

    name: str
    """Name of the run's folder."""
    steps: int | None = None
    """Steps up to the weights that were used."""
    tokens: int | None = None
    """Tokens in these steps, padding included."""
    weights: str
    """SHA-256 of the weights that were used, from `weights.digest`."""
    source: str | None = None
    """Source of the data."""
    data: str | None = None
    """Hash of the prepared corpus."""
    corpora: tuple[UsedCorpus, ...] = ()
    """The corpora of the data; none of a generated task."""
    device: str | None = None
    precision: str | None = None
    threads: int | None = None
    sessions: tuple[PastSegment, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstWeights:
    """Initial weights of a run, as stored in its run.json."""

    path: str
    digest: str
    """SHA-256 from `weights.digest`."""
    history: tuple[PastRun, ...]


def read_run(folder: Path) -> dict[str, Any]:
    """Read `run.json`.

    Raises:
        TrainingError: the file is missing, damaged or of an earlier version.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise TrainingError(f"{folder}: found no run.json, expected the folder of a run")
    names = ("sessions", "init_from", "device", "precision", "threads", "data")
    run = read_json(path, names, "train it again with --fresh")
    if isinstance(run["init_from"], str):
        raise TrainingError(
            f"{path}: found only the path of the initial weights, expected their history, so it is "
            "of an earlier version; train it again with --fresh"
        )
    return run


def used_corpora(data: dict[str, Any]) -> tuple[UsedCorpus, ...]:
    """Return the corpora in the contents of data.json."""
    words = [field.name for field in fields(UsedCorpus)]
    return tuple(
        UsedCorpus(
            **{word: one[word] for word in words if word in one},
            **{key: one["splits"]["train"][key] for key in ("files", "tokens")},
        )
        for one in data.get("corpora", ())
    )


def past_segment(segment: dict[str, Any]) -> PastSegment:
    """Return the segment that an entry of run.json describes."""
    return PastSegment(**{field.name: segment[field.name] for field in fields(PastSegment)})


def this_segment(arithmetic: Arithmetic) -> PastSegment:
    """Return the command that is running, as the only segment of a run."""
    return PastSegment(
        command=current_command(),
        commit=current_commit(),
        machine=_machine(arithmetic),
        python=platform.python_version(),
        torch=torch.__version__,
        lightning=lightning_version,
    )


def clear_run(folder: Path) -> None:
    """Remove the files of a run and its evaluation; do nothing if the folder is not a run."""
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
    init_from: str | Path | None,
) -> None:
    """Check that settings, data and initial weights are those of the run that is resumed.

    Raises:
        TrainingError: one of them differs; the message names the first difference.
    """
    remedy = "choose a new folder with --run, or start again with --fresh"
    if _of_data(run["data"]) != _of_data(facts):
        raise TrainingError(f"{folder}: the run started with other data; {remedy}")
    first = run["init_from"]
    began = "random ones" if first is None else first["path"]
    if init_from is not None and str(init_from) != began:
        raise TrainingError(
            f"{folder}: the run started with other weights ({began}) than --init-from {init_from}; "
            f"{remedy}"
        )
    old, new = _lasting(read_experiment(folder)), _lasting(config)
    for name, began, now in differences(old, new):
        raise TrainingError(
            f"{folder}: the run started with another {name} ({began}; it is now {now}); {remedy}"
        )


def _of_data(facts: dict[str, Any]) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the hash of data, which does not depend on the splits, and each split's size."""
    splits = facts.get("splits", {})
    return facts["hash"], {name: (s["files"], s["tokens"]) for name, s in splits.items()}


def _lasting(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings of an experiment that may not change when a run is resumed."""
    plain = to_plain(config)
    del plain["task"]["data"]  # the folder may be moved; its hash is compared
    return plain | {"trainer": {key: plain["trainer"][key] for key in _FIXED}}


def differences(old: object, new: object, name: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield name, old and new value of settings that differ between configs as plain values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{name}.{key}" if name else key
            yield from differences(old.get(key), new.get(key), inner)
    elif old != new:
        yield name, old, new


def describe_segment(
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
    """Write config.yaml and run.json at the start of a segment.

    `earlier` is the contents of run.json. `first` is the origin of a new run's initial weights;
    None: they are random.
    """
    write_text(folder / "config.yaml", yaml.safe_dump(to_plain(config), sort_keys=False))
    segment = to_plain(this_segment(arithmetic)) | {
        "step": step,
        "processes": processes,
        "environment": _environment(),
    }
    before: dict[str, Any] = earlier or {"sessions": [], "init_from": to_plain(first)}
    run = {
        "sessions": [*before["sessions"], segment],
        "init_from": before["init_from"],
        "parameters": parameters,
        "seeds": {
            "trainer.seed": config.trainer.seed,
            "task.model.noise_seed": config.task.model.noise_seed,
        },
        **arithmetic._asdict(),
        "data": {key: value for key, value in facts.items() if key not in LISTS},
    }
    write_text(folder / "run.json", json.dumps(run, indent=1) + "\n")


def _machine(arithmetic: Arithmetic) -> str:
    """Return the processor with its model (on Linux), number of CPUs and GPU, in one line."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text("utf-8").splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    parts = [f"{platform.machine()} ({models[0]})" if models else platform.machine()]
    parts.append(f"{os.cpu_count()} CPUs")
    if arithmetic.device == "cuda":
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


@cache
def _environment() -> dict[str, Any]:
    """Return the operating system, build of torch and versions of all packages."""
    built = torch.__config__.show().splitlines()[1:]
    return {
        "system": platform.platform(),
        "torch": {
            "commit": torch.version.git_version,
            "build": [line.strip(" -") for line in built if "Build settings" not in line],
        },
        "packages": dict(sorted((package.name, package.version) for package in distributions())),
    }


def current_command() -> str:
    """Return the command that is running, as text."""
    return shlex.join(["relpe-train", *sys.argv[1:]])


def current_commit() -> str | None:
    """Return the commit of the sources, with a plus for uncommitted changes; None without git."""

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
