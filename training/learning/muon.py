"""Muon: momentum whose singular values are all brought to one (Jordan et al., 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from training.learning.distributed import shared_like, whole

if TYPE_CHECKING:
    from collections.abc import Callable

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration; five rounds bring singular values to about 0.7 to 1.2."""
MOMENTUM = 0.95
ADAMW_RMS = 0.2
"""Root mean square of an update over the learning rate, as AdamW's: both share one learning rate
(Liu et al., 2025, section 2.2)."""


class Muon(torch.optim.AdamW):
    """Muon for groups with `parts` > 0, AdamW for all others.

    `parts` is the number of matrices that a weight stacks along its rows (queries, keys and values
    are 3); each is orthogonalized by itself. Computed in float32: bfloat16 is slow on some CPUs.
    """

    def __init__(
        self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]
    ) -> None:
        super().__init__([{"parts": 0, **group} for group in groups], lr=lr, betas=betas)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """State from a checkpoint; AdamW expects a number of steps for every weight."""
        for held in state["state"].values():
            if held:
                held.setdefault("step", torch.tensor(0.0))
        super().__setstate__(state)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all weights; the loss that the closure gives, where there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["parts"]:
                for weight in group["params"]:
                    self._orthogonal_step(weight, group)
        super().step()  # passes over what has no gradient left
        return loss

    @torch.no_grad()
    def _orthogonal_step(self, weight: Tensor, group: dict[str, Any]) -> None:
        if weight.grad is None:
            return
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        # a matrix of which processes hold shares is orthogonalized whole, by each of them
        update = whole(weight.grad.lerp(momentum, MOMENTUM)).unflatten(0, (group["parts"], -1))
        update = shared_like(orthogonalize(update.float()).flatten(0, 1), weight)
        rows, columns = weight.shape[0] // group["parts"], weight.shape[1]
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-group["lr"] * ADAMW_RMS * max(rows, columns) ** 0.5)
        weight.grad = None


def orthogonalize(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Nearly orthogonal matrices (n, rows, columns) with the singular vectors of `matrices`."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
