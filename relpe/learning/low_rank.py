"""Corrections of low rank, which are learned instead of the weights of a decoder."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.models.decoder import Decoder

RANK: Final = 16
_SMALL = ("norm", "temperature", "convolution", "gates")
"""Words in the names of small parameters, which are learned themselves."""


class LowRankLinear(nn.Module):
    """A linear layer whose weight is fixed, plus a learned correction of low rank.

    The output is W x + B A x, with B initially 0. Source: Hu et al. (2022), *LoRA*.
    """

    def __init__(
        self, linear: nn.Linear, rank: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        rows, columns = linear.weight.shape
        self.linear = linear
        first = torch.randn(rank, columns, generator=generator) / math.sqrt(columns)
        self.down = nn.Parameter(first.to(linear.weight.device))
        """A, (r, inputs)."""
        self.up = nn.Parameter(linear.weight.new_zeros(rows, rank))
        """B, (outputs, r)."""

    @property
    def weight(self) -> Tensor:
        """The fixed weight (outputs, inputs), for code that asks for its shape and type."""
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return self.linear(x) + functional.linear(functional.linear(x, self.down), self.up)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the linear layer with the correction added to its weight."""
        self.linear.weight.add_(self.up @ self.down)
        return self.linear


def add_corrections(
    decoder: Decoder, generator: torch.Generator | None = None
) -> list[nn.Parameter]:
    """Replace the linear layers by `LowRankLinear`; return the parameters that can be learned.

    These are the corrections and all small parameters: norms, temperatures, convolutions, gates.
    All others are fixed. `merge_corrections` undoes the replacement. `generator` draws the first
    values; None: that of PyTorch.
    """
    for name, parameter in decoder.named_parameters():
        is_small = parameter.ndim < 2 or any(word in name for word in _SMALL)
        parameter.requires_grad_(is_small)
    for name, module in list(decoder.named_modules()):
        if isinstance(module, nn.Linear) and not any(word in name for word in _SMALL):
            _replace(decoder, name, LowRankLinear(module, RANK, generator))
    return [parameter for parameter in decoder.parameters() if parameter.requires_grad]


def merge_corrections(decoder: Decoder) -> None:
    """Merge the corrections into the weights, so that the model is an ordinary one again."""
    for name, module in list(decoder.named_modules()):
        if isinstance(module, LowRankLinear):
            _replace(decoder, name, module.merged())
    decoder.requires_grad_(requires_grad=False)


def _replace(decoder: Decoder, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(decoder.get_submodule(parent), child, module)
