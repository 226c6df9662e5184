"""Weights of linear layers as whole numbers from -127 to 127, relative to the largest of each row.

The compiled decoder rounds weights in the same way, so that its steps have the same weights from a
model in int8 as from one in bfloat16. PyTorch, which reads prompts, has rounded weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

MOST = 127
LARGEST = ".largest"
"""Ending of the name of the largest weights."""


def rounded(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 numbers (n, m) of a weight (n, m) in bfloat16, and each row's largest (n,)."""
    largest = weight.abs().amax(1)
    scale = largest.float().where(largest > 0, 1.0) / MOST
    return (weight.float() / scale[:, None]).round().to(torch.int8), largest


def restored(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights in float32.

    Raises ValueError if the largest weights of one in int8 are missing.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if weight.dtype == torch.int8:
            if name + LARGEST not in weights:
                raise ValueError(f"{name}{LARGEST} is missing, which weights in int8 need")
            # in this order, the largest weight is exact, and is rounded to 127 again
            tensors[name] = weight.float() * weights[name + LARGEST].float()[:, None] / MOST
        elif not is_largest(name, weights):
            tensors[name] = weight.float()
    return tensors


def is_largest(name: str, weights: Mapping[str, object]) -> bool:
    """Return whether a tensor has the largest weights of another one."""
    return name.endswith(LARGEST) and name.removesuffix(LARGEST) in weights


def linear_weights(model: nn.Module) -> set[str]:
    """Return the names of the weights of the linear layers of a model."""
    return {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)
    }
