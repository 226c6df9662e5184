"""Device, precision and threads of a run."""

from __future__ import annotations

import logging
import os
import timeit
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from training.config import TrainerConfig
from training.errors import TrainingError
from training.learning.distributed import ALONE, Processes

Device = Literal["cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]

logger = logging.getLogger(__name__)

PRECISIONS: dict[str, Precision] = {"32": "32-true", "bf16": "bf16-mixed"}
"""Fabric's names of the precisions."""


class Arithmetic(NamedTuple):
    """Hardware settings on which the rounding of the weights depends."""

    device: Device
    precision: Precision
    threads: int
    """CPU threads of torch."""


def choose_arithmetic(settings: TrainerConfig, processes: Processes = ALONE) -> Arithmetic:
    """Choose device, precision and threads of a new run, the same in all processes.

    Raises:
        TrainingError: a GPU is requested but not found.
    """
    device = choose_device(settings.device)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    elif processes.devices > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // processes.devices))
    name = settings.precision
    if name == "auto":
        if processes.world == 1:
            bfloat16 = _bfloat16_is_faster(device)
        else:  # measured times could differ between processes
            bfloat16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        name = "bf16" if bfloat16 else "32"
    return Arithmetic(device, PRECISIONS[name], torch.get_num_threads())


def resume_arithmetic(
    settings: TrainerConfig, stored: Mapping[str, Any], folder: Path
) -> Arithmetic:
    """Restore the arithmetic of the run in `folder` from `stored`, its run.json.

    Warns if it is slow on this machine.

    Raises:
        TrainingError: the settings contradict it, or a GPU is needed but not found.
    """
    kept = Arithmetic(stored["device"], stored["precision"], stored["threads"])
    precision = PRECISIONS.get(settings.precision, settings.precision)
    requested = (settings.device, precision, settings.threads)
    for name, asked, value in zip(Arithmetic._fields, requested, kept, strict=True):
        if asked not in ("auto", None, value):
            raise TrainingError(
                f"{folder}: the run started with {name} {value}, but trainer.{name} is {asked}; "
                "leave it out, choose a new folder with --run, or start again with --fresh"
            )
    if kept.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError(
            f"{folder}: the run started on a GPU, and none was found; resume it on a machine with "
            "a GPU, or start again with --fresh"
        )
    slow = kept.precision == "bf16-mixed" and not _bfloat16_is_faster(kept.device)
    if slow or kept.threads > (os.cpu_count() or 1):
        logger.warning(
            "%s: resuming as the run started, in %s with %d threads, which is slow on this machine",
            *(folder, kept.precision, kept.threads),
        )
    torch.set_num_threads(kept.threads)
    return kept


def choose_device(requested: str, name: str = "trainer.device") -> Device:
    """Choose the device; `auto` selects a GPU if there is one.

    Raises:
        TrainingError: a GPU is requested but not found.
    """
    has_gpu = torch.cuda.is_available()
    if requested == "cuda" and not has_gpu:
        raise TrainingError(f"{name} is cuda, but no GPU was found; use cpu or auto")
    return "cuda" if has_gpu and requested != "cpu" else "cpu"


@contextmanager
def fast_products(device: Device) -> Iterator[None]:
    """Use TF32 for products in float32 on a GPU, within the block."""
    before = torch.get_float32_matmul_precision()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _bfloat16_is_faster(device: Device) -> bool:
    """Return whether bfloat16 is clearly faster than float32; CPUs differ in this."""
    return _time_product(torch.bfloat16, device) < 0.8 * _time_product(torch.float32, device)


def _time_product(dtype: torch.dtype, device: Device) -> float:
    # large enough to keep a GPU busy, small enough for emulated bfloat16
    size = 4096 if device == "cuda" else 256
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    return min(timeit.repeat(lambda: float((matrix @ matrix)[0, 0]), number=1, repeat=4))


def memory_in_use(device: torch.device) -> dict[str, float]:
    """Return the memory of this process in GiB.

    `memory_gib` is its resident set (on Linux); on a GPU, `gpu_memory_gib` is the memory that torch
    has reserved.
    """
    memory: dict[str, float] = {}
    pages = Path("/proc/self/statm")
    if pages.exists():
        resident = int(pages.read_text("ascii").split()[1])
        memory["memory_gib"] = resident * os.sysconf("SC_PAGE_SIZE") / 2**30
    if device.type == "cuda":
        memory["gpu_memory_gib"] = torch.cuda.memory_reserved(device) / 2**30
    return memory
