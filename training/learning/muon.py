"""The optimizer Muon (Jordan et al., 2024) and its parameter groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from relpe.encodings.base import Encoding
from training.learning.distributed import shard_like, whole

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration; five iterations bring singular values to 0.7 … 1.2."""
MOMENTUM = 0.95
ADAMW_RMS = 0.2
"""Root mean square of an update, divided by the learning rate. It is close to that of AdamW, so
that both can use the same learning rate (Liu et al., 2025, section 2.2)."""

_UNDECAYED = ("embedding", "bias", "norm", "temperature", "convolution")
"""Parameters whose name contains one of these have no weight decay. The same is true of
one-dimensional parameters, and of all parameters of encodings: frequencies, angles and widths may
have any magnitude."""


def parameter_groups(
    module: nn.Module,
    weight_decay: float,
    *,
    orthogonalized: bool,
    encoding_learning_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups: weight matrices with decay, one group per value of `parts`; then the rest.

    `parts` is the number of matrices that are stacked in a weight which Muon updates, and 0 for
    parameters that AdamW updates. With `orthogonalized`, Muon updates the matrices of the blocks
    and of the local decoder of events; otherwise AdamW updates everything. With an `encoding_learning_rate`, the parameters of
    encodings form the last group, which has this rate as its `peak`.
    """
    parts = [part for part in module.modules() if isinstance(part, Encoding)]
    of_encodings = {id(parameter) for part in parts for parameter in part.parameters()}
    groups: dict[int, list[nn.Parameter]] = {0: [], 1: [], 2: [], 3: []}
    others: list[nn.Parameter] = []
    encodings: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if id(parameter) in of_encodings:
            (others if encoding_learning_rate is None else encodings).append(parameter)
        elif parameter.ndim < 2 or any(word in name for word in _UNDECAYED):
            others.append(parameter)
        elif not orthogonalized or not name.startswith(("blocks.", "events.")):
            groups[0].append(parameter)
        elif name.endswith("attention.project_in.weight"):
            groups[3].append(parameter)
        else:
            groups[2 if "project_in" in name else 1].append(parameter)
    decayed = [
        {"params": parameters, "parts": parts, "weight_decay": weight_decay}
        for parts, parameters in groups.items()
        if parameters
    ]
    undecayed = {"parts": 0, "weight_decay": 0.0}
    own = {"params": encodings, **undecayed, "peak": encoding_learning_rate}
    return [*decayed, {"params": others, **undecayed}, *([own] if encodings else [])]


class Muon(torch.optim.AdamW):
    """Muon for groups with `parts` > 0, AdamW for all others.

    `parts` is the number of matrices that are stacked along the rows of a weight (3 for queries,
    keys and values). Each is orthogonalised separately, in `dtype`: bfloat16, as in the original
    code, where the processor is fast in it. On a GPU, AdamW is one kernel for all weights.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        on_gpu = all(weight.is_cuda for group in groups for weight in group["params"])
        super().__init__(
            [{"parts": 0, **group} for group in groups], lr=lr, betas=betas, fused=on_gpu or None
        )
        self._dtype = dtype

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state, with the step count that AdamW expects for every weight."""
        for held in state["state"].values():
            if held:
                held.setdefault("step", torch.tensor(0.0))
        super().__setstate__(state)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all weights; return the loss of the closure, if any."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if group["parts"]:
                for weight in group["params"]:
                    self._orthogonal_step(weight, group)
        super().step()  # skips weights without a gradient
        return loss

    @torch.no_grad()
    def _orthogonal_step(self, weight: Tensor, group: dict[str, Any]) -> None:
        if weight.grad is None:
            return
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        # every process orthogonalises the whole matrix, even if it holds only a shard
        update = whole(weight.grad.lerp(momentum, MOMENTUM)).unflatten(0, (group["parts"], -1))
        update = orthogonalize(update.to(self._dtype)).to(weight.dtype)
        update = shard_like(update.flatten(0, 1), weight)
        rows, columns = weight.shape[0] // group["parts"], weight.shape[1]
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-group["lr"] * ADAMW_RMS * max(rows, columns) ** 0.5)
        weight.grad = None


def orthogonalize(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices (n, rows, columns) with the singular vectors of `matrices`."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
