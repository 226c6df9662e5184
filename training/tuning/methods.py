"""What is learned when a model is tuned: all weights, or corrections of low rank."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.models.decoder import Decoder
from training.learning.muon import parameter_groups
from training.tuning.options import Method

RANK: Final = 16
LEARNING_RATES: Final[dict[Method, float]] = {"low-rank": 3e-4, "full": 1e-4}
"""The best of those that were tried."""


class LowRankLinear(nn.Module):
    """A linear layer whose weight is fixed, plus a learned correction of low rank.

    The output is W x + B A x, with B initially 0. Source: Hu et al. (2022), *LoRA*.
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        rows, columns = linear.weight.shape
        self.linear = linear
        self.down = nn.Parameter(torch.randn(rank, columns) / math.sqrt(columns))
        """A, (r, inputs)."""
        self.up = nn.Parameter(torch.zeros(rows, rank))
        """B, (outputs, r)."""

    @property
    def weight(self) -> Tensor:
        """The fixed weight (outputs, inputs), for code that asks for its shape and type."""
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return self.linear(x) + functional.linear(functional.linear(x, self.down), self.up)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The linear layer with the correction added to its weight."""
        self.linear.weight.add_(self.up @ self.down)
        return self.linear


def prepare(decoder: Decoder, method: Method) -> list[dict[str, Any]]:
    """Make the parameters of a method learnable; return the groups of `Muon`.

    `low-rank` replaces the linear layers and learns their corrections, and with them all small
    parameters: norms, temperatures, convolutions, gates. `finish` undoes the replacement.
    """
    decoder.requires_grad_(requires_grad=True)
    if method == "full":
        return parameter_groups(decoder, 0.0, orthogonalized=True)
    for name, parameter in decoder.named_parameters():
        is_small = parameter.ndim < 2 or any(word in name for word in _SMALL)
        parameter.requires_grad_(is_small)
    for name, module in list(decoder.named_modules()):
        if isinstance(module, nn.Linear) and not any(word in name for word in _SMALL):
            parent, _, own = name.rpartition(".")
            setattr(decoder.get_submodule(parent), own, LowRankLinear(module, RANK))
    learned = [parameter for parameter in decoder.parameters() if parameter.requires_grad]
    return [{"params": learned, "weight_decay": 0.0}]


_SMALL = ("norm", "temperature", "convolution", "gates")
"""Words in the names of small parameters."""


def finish(decoder: Decoder) -> None:
    """Merge the corrections into the weights, so that the model is an ordinary one again."""
    for name, module in list(decoder.named_modules()):
        if isinstance(module, LowRankLinear):
            parent, _, own = name.rpartition(".")
            setattr(decoder.get_submodule(parent), own, module.merged())
    decoder.requires_grad_(requires_grad=False)
