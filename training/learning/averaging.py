"""Running mean of the weights of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.learning.distributed import shared_like, whole


class Average:
    """Exponential running mean of a module's parameters (Polyak & Juditsky, 1992)."""

    def __init__(self, module: nn.Module, decay: float | None) -> None:
        self._module = module
        self._decay = decay
        self._mean: list[Tensor] = []
        self._updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take the present weights into the mean; the first ones count as many as there are."""
        if self._decay is None:
            return
        self._updates += 1
        weights = list(self._module.parameters())
        if not self._mean:
            self._mean = [weight.detach().clone() for weight in weights]
            return
        share = max(1 - self._decay, 1 / self._updates)
        self._mean = [shared_like(m, w) for m, w in zip(self._mean, weights, strict=True)]
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and mean; does nothing before the first update."""
        # not their data: what is kept for a version of the weights has to see the change
        weights = list(self._module.parameters())
        self._mean = [shared_like(m, w) for m, w in zip(self._mean, weights, strict=False)]
        for weight, mean in zip(weights, self._mean, strict=False):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"mean": [whole(mean) for mean in self._mean], "updates": self._updates}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what a checkpoint kept."""
        self._mean = list(state["mean"])
        self._updates = int(state["updates"])
