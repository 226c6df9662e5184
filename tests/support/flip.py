"""An encoding that is not part of the package, written as CONTRIBUTING.md says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe import QueryKeyEncoding


@dataclass(frozen=True, kw_only=True)
class FlipConfig:
    """Flips the sign of every second feature at odd positions."""

    kind: Literal["flip"] = "flip"

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Flip:
        """Module."""
        return Flip(head_dim)


class Flip(QueryKeyEncoding[Tensor, tuple[()]]):
    """See `FlipConfig`."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
        self.strength = nn.Parameter(torch.ones(()))

    def codes_at(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        """Signs (1, l, 1, d)."""
        odd = (positions[..., :1, None] % 2).expand(-1, -1, 1, self.out_features).clone()
        odd[..., ::2] = 0
        return 1 - 2 * odd, state

    def encode(self, q: Tensor, k: Tensor, codes: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Signed queries and keys."""
        return q * codes * self.strength, k * codes
