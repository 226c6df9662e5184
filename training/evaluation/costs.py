"""What a model costs: parameters, operations, time and memory of a forward pass."""

from __future__ import annotations

import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

_REPEATS, _SECONDS = 5, 2.0


def _fused_attention(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *_: object, **__: object
) -> int:
    """Return operations of attention by its shapes (b, h, l, d), (b, h, s, d) and (b, h, s, e)."""
    return 2 * math.prod(q[:3]) * k[2] * (q[3] + v[3])


_MISSING = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused_attention}
"""Operations that torch does not count by itself."""


def costs(
    model: torch.nn.Module, call: Callable[[], object], examples: int, unit: str = "example"
) -> dict[str, Any]:
    """Return costs of `call`, a forward pass of a model on a batch of `examples`, for results.json.

    - `parameters`: of the whole model.
    - `flops_per_example`: floating-point operations in matrix products, convolutions and fused
      attention of torch, where a product and a sum are two. Not counted: elementwise operations,
      softmax, norms, sums over positions, Fourier transforms, sorting, and random draws.
    - `seconds_per_example`: of the middle one of up to five calls after a first one.
    - `peak_memory_gib`: peak memory that torch has allocated on the GPU in these calls, or on the
      CPU the peak resident set of the process so far, if the system knows it.

    With another `unit`, keys end with its name.
    """
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with torch.no_grad():
        counter = FlopCounterMode(display=False, custom_mapping=_MISSING)
        with _frozen(model), counter:
            call()
        durations: list[float] = []
        while not durations or (len(durations) < _REPEATS and sum(durations) < _SECONDS):
            started = _now(device)
            call()
            durations.append(_now(device) - started)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        f"flops_per_{unit}": counter.get_total_flops() / examples,
        f"seconds_per_{unit}": statistics.median(durations) / examples,
        f"{unit}s_at_once": examples,
        "peak_memory_gib": _peak_memory_gib(device),
    }


@contextmanager
def _frozen(model: torch.nn.Module) -> Iterator[None]:
    """Return a model without gradients: the counter follows those of all inputs of its modules."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def _now(device: torch.device) -> float:
    """Wait for all work on the device, and return the seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _peak_memory_gib(device: torch.device) -> float | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 2**30


def costs_line(figures: Mapping[str, Any]) -> str:
    """Return the costs in one line."""
    (unit,) = (key.removeprefix("flops_per_") for key in figures if key.startswith("flops_per_"))
    flops, seconds = figures[f"flops_per_{unit}"], figures[f"seconds_per_{unit}"]
    line = (
        f"{figures['parameters']:,} parameters; per {unit} {flops / 1e6:,.2f} MFLOPs of matrix "
        f"products and {1000 * seconds:,.3f} ms ({figures[f'{unit}s_at_once']:,} at once)"
    )
    if figures["peak_memory_gib"] is not None:
        line += f"; peak memory {figures['peak_memory_gib']:.2f} GiB"
    return line
