"""Kernels of flash-linear-attention, if installed and correct.

The package is optional, for NVIDIA GPUs, and cannot be imported with every version of Triton. A
kernel is used only in bfloat16, and only after a check of its results, once per process. Otherwise
ordinary matrix products compute the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

TOLERANCE = 0.03
"""Tolerance of the check, relative to the norm; bfloat16 has 8 significant bits."""


def is_candidate(v: Tensor) -> bool:
    """Return whether kernels can be used for values like `v`, if they are correct."""
    return v.device.type == "cuda" and v.dtype == torch.bfloat16


def checked(
    module: str, name: str, difference: Callable[[Callable[..., Any]], float]
) -> Callable[..., Any] | None:
    """Return an operation of the package, if available and its relative `difference` is small."""
    try:
        operation = getattr(import_module(module), name)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - its decorators raise all kinds of errors at import
        log.warning("flash-linear-attention is not used, since its import failed: %s", error)
        return None
    try:
        relative_error = difference(operation)
    except Exception as error:  # noqa: BLE001 - as do its compilers
        log.warning("flash-linear-attention is not used, since its test failed: %s", error)
        return None
    if relative_error > TOLERANCE:
        log.warning(
            "flash-linear-attention is not used: its relative error is %.3g, expected below %.3g",
            relative_error,
            TOLERANCE,
        )
        return None
    return operation


def relative_difference(exact: Sequence[Tensor], approximate: Sequence[Tensor]) -> float:
    """Return the largest difference in norm of corresponding tensors, relative to the first's."""
    return max(
        float((a.detach() - b.detach()).norm() / a.detach().norm().clamp(min=1e-6))
        for a, b in zip(exact, approximate, strict=True)
    )
