"""Exponential moving average of the weights of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.learning.distributed import shard_like, whole


class Average:
    """Exponential moving average of a module's parameters (Polyak & Juditsky, 1992)."""

    def __init__(self, module: nn.Module, decay: float | None) -> None:
        self._module = module
        self._decay = decay
        self._mean: list[Tensor] = []
        self._updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Update the average with the current weights.

        It is the plain mean of the first 1 / (1 - decay) updates, then an exponential one.
        """
        if self._decay is None:
            return
        self._updates += 1
        weights = list(self._module.parameters())
        if not self._mean:
            self._mean = [weight.detach().clone() for weight in weights]
            return
        share = max(1 - self._decay, 1 / self._updates)
        self._mean = [shard_like(m, w) for m, w in zip(self._mean, weights, strict=True)]
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap weights and average; do nothing before the first update."""
        # copy_ on the parameters, not on .data, so that caches detect the change
        weights = list(self._module.parameters())
        self._mean = [shard_like(m, w) for m, w in zip(self._mean, weights, strict=False)]
        for weight, mean in zip(weights, self._mean, strict=False):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"mean": [whole(mean) for mean in self._mean], "updates": self._updates}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self._mean = list(state["mean"])
        self._updates = int(state["updates"])
