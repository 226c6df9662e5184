"""Typed settings, read from YAML and the command line; does not import torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from relpe.command_line import docstrings
from training.errors import TrainingError, check_range

ConfigT = TypeVar("ConfigT")

MOST_THREADS = 1024
"""Maximum number of threads; far larger numbers would crash the process."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and its learning rate: warm-up, constant, then linear decay."""

    kind: Literal["muon", "adamw"] = "muon"
    """muon: Muon (Jordan et al., 2024) for the matrices of the blocks and AdamW for the rest;
    adamw: AdamW for all parameters."""
    learning_rate: float = 1e-3
    """Peak learning rate, between warm-up and decay."""
    encoding_learning_rate: float | None = None
    """Peak learning rate of the positional encoding; None: the same as `learning_rate`."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the running means of the gradients and of their squares."""
    weight_decay: float = 0.1
    """Weight decay of matrices; biases, norms, embeddings, temperatures and encodings have none."""
    warmup_steps: int = 200
    """Steps over which the learning rate rises from 0 to its peak."""
    schedule: Literal["linear", "rsqrt", "cosine"] = "linear"
    """Learning rate after the warm-up. linear: constant, then linear decay. rsqrt: its peak times
    the square root of warmup_steps / step. cosine: half a cosine to 0 at the end of the budget."""
    decay_share: float = 0.2
    """With linear: share of the budget, at its end, over which the learning rate falls to
    `final_share`."""
    final_share: float = 0.01
    """Final learning rate, as a share of the peak."""
    max_gradient_norm: float = 1.0
    """Gradients with a larger norm are scaled down to this norm."""

    def __post_init__(self) -> None:
        check_range("learning_rate", self.learning_rate, 0)
        check_range("encoding_learning_rate", self.encoding_learning_rate, 0)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise TrainingError(f"betas are {self.betas}, expected two numbers from 0 to below 1")
        check_range("weight_decay", self.weight_decay, 0)
        check_range("warmup_steps", self.warmup_steps, 0)
        check_range("decay_share", self.decay_share, 0, 1)
        check_range("final_share", self.final_share, 0, 1)
        check_range("max_gradient_norm", self.max_gradient_norm, 0, above=True)


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Length, hardware, precision and output of a run."""

    token_budget: int = 20_000_000
    """Number of training tokens after which the run ends (batch_size x length per step)."""
    time_budget_minutes: float | None = None
    """Minutes after which the run ends, including time before it was resumed; None: no limit."""
    clock: Literal["wall", "cpu"] = "wall"
    """What `time_budget_minutes` counts: wall-clock time, or CPU time of all threads of this
    process (not of `workers`). Runs of equal CPU time can be compared on a machine that has other
    work."""
    seed: int = 0
    """Seed of the initial weights, the order of the data and the noise."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto: a GPU if there is one, else the CPU."""
    precision: Literal["auto", "32", "bf16"] = "auto"
    """Precision of matrix products; auto: measure both and use the faster one. On GPUs, products in
    float32 use TF32."""
    threads: int | None = None
    """CPU threads of torch; None: the default of torch."""
    omp_wait_policy: Literal["passive", "active"] | None = None
    """Whether idle OpenMP threads sleep (passive) or spin (active); passive is better on a shared
    machine; None: the default of OpenMP."""
    validate_every: int = 500
    """Steps between validations."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    checkpoint_minutes: float = 10.0
    """Minutes after which a checkpoint is written, if there was none in between."""
    log_every: int = 20
    """Steps between entries in the logs."""
    ema_decay: float | None = None
    """Decay rate of an exponential moving average of the weights, which is then validated and
    exported; None: no average."""
    samples: int = 2
    """Sample continuations that each validation writes as MIDI and piano roll; 0: none."""
    pictures: bool = False
    """Draw the positional encoding in TensorBoard after each validation, which takes seconds."""
    loggers: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)
    """Logs besides metrics.csv: tensorboard, wandb (Weights & Biases), both, or []."""
    devices: int | None = None
    """Processes per node, each with its own GPU, or on the CPU; None: the number started by
    torchrun or srun, else 1."""
    nodes: int | None = None
    """Number of machines; None: the number on which torchrun or srun started processes, else 1."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """ddp: each process holds all weights; fsdp: the weights are sharded among the processes; auto:
    ddp if there are several processes."""
    accumulate: int = 1
    """Micro-batches per step and process, computed one after another to save memory."""
    activation_checkpointing: bool = False
    """Store only the inputs of blocks for the backward pass and recompute the rest, which saves
    memory and takes time."""
    compile: bool = False
    """Compile the model by torch.compile, which takes minutes and makes GPUs faster; needs a C++
    compiler."""
    workers: int = 0
    """Processes that prepare training examples in advance; 0: none, examples are prepared between
    steps."""

    def __post_init__(self) -> None:
        check_range("token_budget", self.token_budget, 1)
        check_range("time_budget_minutes", self.time_budget_minutes, 0, above=True)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_range("threads", self.threads, 1, MOST_THREADS)
        for name in ("validate_every", "checkpoint_every", "log_every"):
            check_range(name, getattr(self, name), 1)
        check_range("checkpoint_minutes", self.checkpoint_minutes, 0, above=True)
        check_range("ema_decay", self.ema_decay, 0, 1)
        check_range("samples", self.samples, 0, 100)
        for name in ("devices", "nodes", "accumulate"):
            check_range(name, getattr(self, name), 1)
        check_range("workers", self.workers, 0, MOST_THREADS)


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """One experiment: a task with its data and model, an optimizer and a trainer."""

    task: Any
    """The task: its data, model and loss; `kind` selects it."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    """Length, hardware and output of the run."""


def read_yaml(
    path: Path, overrides: Iterable[str] = (), *, library: Path | None = None
) -> dict[str, Any]:
    """Read a YAML file; `extends: other.yaml` starts from another file.

    With a folder `library`, `extends: other` means its file `other.yaml`.

    An override has the form `section.key=value`, with the value in YAML. It changes the file as a
    file that extends it would: another `kind` replaces the section.

    Raises:
        TrainingError: a file or an override cannot be read.
    """
    mapping = _read_extended(path, library)
    for override in overrides:
        key, equals, text = override.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise TrainingError(f"--set {override}: expected section.key=value")
        inner = mapping
        for name in names[:-1]:
            inner = inner.get(name, {})
            if not isinstance(inner, dict):
                raise TrainingError(f"--set {override}: {name!r} is a value, expected a section")
        if names[0] == "task":
            check_spelling(names, f"--set {override}")
        change: dict[str, Any] = {names[-1]: _parse(text, f"--set {override}")}
        for name in reversed(names[:-1]):
            change = {name: change}
        mapping = _merge(mapping, change)
    return mapping


def _read_extended(
    path: Path, library: Path | None, heirs: tuple[Path, ...] = ()
) -> dict[str, Any]:
    if not path.is_file():
        raise TrainingError(f"{path}: no such file, expected a YAML configuration")
    mapping = _parse(path.read_bytes(), str(path))
    if not isinstance(mapping, dict):
        raise TrainingError(f"{path}: expected a YAML mapping of sections")
    parent = mapping.pop("extends", None)
    if parent is None:
        return mapping
    if not isinstance(parent, str):
        raise TrainingError(f"{path}: extends is {parent!r}, expected the name of a YAML file")
    base, heirs = path.parent / parent, (*heirs, path.resolve())
    if library is not None and not Path(parent).suffix:
        base = library / f"{parent}.yaml"
    if base.resolve() in heirs:
        raise TrainingError(f"{path}: extends {parent}, which itself extends this file")
    return _merge(_read_extended(base, library, heirs), mapping)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge `over` into `base`; a section of another `kind` replaces that of the base.

    The kinds of optimizer have the same settings, which are kept.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            same = key == "optimizer" or value.get("kind") in (None, old.get("kind"))
            value = _merge(old, value) if same else value
        merged[key] = value
    return merged


@cache
def _loader() -> type:
    """Return the loader of YAML 1.1, except that 1e-3 is a number.

    The import is here because --help does not need the package.
    """
    from yaml import SafeLoader

    class Loader(SafeLoader):
        """See above."""

    number = re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader


def _parse(text: str | bytes, where: str) -> object:
    from yaml import YAMLError, load

    try:
        return load(text, Loader=_loader())  # derives from SafeLoader
    except (YAMLError, ValueError) as error:  # a date such as 2026-13-45 is a ValueError
        raise TrainingError(f"{where}: invalid YAML: {' '.join(str(error).split())}") from error


def build(kind: type[ConfigT], mapping: object, where: str = "config") -> ConfigT:
    """Build a config dataclass from plain values; `kind` selects the member of a union.

    Raises:
        TrainingError: a key is unknown or missing, or a value has the wrong type.
    """
    from relpe.models.checkpoint import CheckpointError
    from relpe.models.config import from_plain

    try:
        return from_plain(kind, mapping, where)
    except CheckpointError as error:
        raise TrainingError(str(error)) from error


def check_names(kind: type, section: object, where: str) -> None:
    """Check the names of a section, like `build`, but without importing torch.

    Raises:
        TrainingError: a name is unknown.
    """
    names = [item.name for item in fields(kind)]
    unknown = [key for key in section if key not in names] if isinstance(section, dict) else []
    if unknown:
        raise TrainingError(f"{where}.{unknown[0]}: unknown, expected one of {', '.join(names)}")


def check_spelling(names: Iterable[str], where: str) -> None:
    """Check that each name is that of a field of some config, without importing torch.

    Whether it belongs to this task is known only when the task is built, after imports of seconds.

    Raises:
        TrainingError: no class has such a field.
    """
    fields_of_configs = {"task"}.union(*map(_fields_in, ("relpe", "tokenization", "training")))
    for name in names:
        if name not in fields_of_configs:
            closest = ", ".join(get_close_matches(name, fields_of_configs)) or "that of a setting"
            raise TrainingError(f"{where}: no setting has the name {name!r}, expected {closest}")


@cache
def _fields_in(package: str) -> frozenset[str]:
    """Return the names that are declared in the classes of a package, read from its files."""
    spec = find_spec(package)
    assert spec is not None
    files = [
        file
        for folder in spec.submodule_search_locations or ()
        for file in Path(folder).rglob("*.py")
    ]
    declared = re.compile(r"^    ([a-z]\w*): ", re.MULTILINE)
    return frozenset(name for file in files for name in declared.findall(file.read_text("utf-8")))


def describe(kind: type, prefix: str) -> list[str]:
    """Return help for the fields of a config dataclass: name, default, docstring, a line each."""
    texts = docstrings(kind)
    return [
        f"  {prefix}.{field.name}={field.default!r}: {texts[field.name]}" for field in fields(kind)
    ]
