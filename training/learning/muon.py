"""The optimizer Muon (Jordan et al., 2024) and its parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from relpe.encodings.base import Encoding
from training.learning.distributed import shard_like, whole

NEWTON_SCHULZ = (
    (8.3019, -24.0424, 17.4699),
    (4.0078, -2.9266, 0.5425),
    (3.4896, -2.5654, 0.5028),
    (2.4973, -1.8126, 0.4217),
)
"""Coefficients of x, x^3 and x^5 of each iteration. They are the best ones for singular values from
0.003 to 1, one iteration after another (Amsel et al., 2025): all become 0.8 ... 1.2."""
MOST_TOGETHER, MOST_ON_GPU = 2**18, 2**24
"""Maximum number of elements of the matrices that are orthogonalised together: on a CPU, those that
fit into the cache of a core."""
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
    """Return parameter groups: weight matrices with decay, one per value of `parts`; then the rest.

    `parts` is the number of matrices that are stacked in a weight which Muon updates, and 0 for
    parameters that AdamW updates. With `orthogonalized`, Muon updates the matrices of the blocks
    and of the local decoder of events; otherwise AdamW updates everything. With an
    `encoding_learning_rate`, the parameters of encodings form the last group, which has this rate
    as its `peak`.
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
            groups[2 if "project_in" in name or "project_context" in name else 1].append(parameter)
    decayed = [
        {"params": parameters, "parts": parts, "weight_decay": weight_decay}
        for parts, parameters in groups.items()
        if parameters
    ]
    undecayed = {"parts": 0, "weight_decay": 0.0}
    encoding_group = {"params": encodings, **undecayed, "peak": encoding_learning_rate}
    return [*decayed, {"params": others, **undecayed}, *([encoding_group] if encodings else [])]


class _Weight(NamedTuple):
    """A weight that Muon updates, and its parameter group."""

    weight: nn.Parameter
    group: dict[str, Any]


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
        self._on_gpu = all(weight.is_cuda for group in groups for weight in group["params"])
        super().__init__(
            [{"parts": 0, **group} for group in groups],
            lr=lr,
            betas=betas,
            fused=self._on_gpu or None,
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
        self._orthogonal_steps()
        super().step()  # skips weights without a gradient
        return loss

    @torch.no_grad()
    def _orthogonal_steps(self) -> None:
        """Update the weights of groups with parts; matrices of one shape are computed together."""
        by_shape: dict[tuple[int, int], list[_Weight]] = {}
        for group in self.param_groups:
            for weight in group["params"] if group["parts"] else ():
                if weight.grad is not None:
                    shape = weight.shape[0] // group["parts"], weight.shape[1]
                    by_shape.setdefault(shape, []).append(_Weight(weight, group))
        for (rows, columns), weights in by_shape.items():
            most = MOST_ON_GPU if self._on_gpu else MOST_TOGETHER
            together = max(1, most // (rows * columns))
            for first in range(0, len(weights), together):
                self._orthogonal_step(weights[first : first + together], rows, columns)

    def _orthogonal_step(self, weights: Sequence[_Weight], rows: int, columns: int) -> None:
        """Update weights that consist of matrices of one shape."""
        moving: list[Tensor] = []
        for weight, group in weights:
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            assert weight.grad is not None
            momentum = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
            # every process orthogonalises the whole matrix, even if it holds only a shard
            update = whole(weight.grad.lerp(momentum, MOMENTUM))
            moving.append(update.unflatten(0, (group["parts"], -1)).to(self._dtype))
        updates = orthogonalize(torch.cat(moving)).split([len(part) for part in moving])
        for (weight, group), update in zip(weights, updates, strict=True):
            update = shard_like(update.flatten(0, 1).to(weight.dtype), weight)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.add_(update, alpha=-group["lr"] * ADAMW_RMS * max(rows, columns) ** 0.5)
            weight.grad = None


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return nearly orthogonal matrices (n, rows, columns) with singular vectors of `matrices`."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT.contiguous() if tall else x
    # products of half precision are not exact enough for squared singular values
    is_long = x.shape[-1] > 1.5 * x.shape[-2] and x.dtype in {torch.float32, torch.float64}
    x = _by_squares(x) if is_long else _directly(x)
    return x.mT if tall else x


def _directly(x: Tensor) -> Tensor:
    """Do all iterations on matrices x (n, rows, columns)."""
    for a, b, c in NEWTON_SCHULZ:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _by_squares(x: Tensor) -> Tensor:
    """Orthogonalize with small products only.

    The iterations are polynomials P of X X^T that commute: X X^T becomes
    P X X^T P, and the product of all P is applied to X at the end.
    """
    square = x @ x.mT
    whole_map: Tensor | None = None
    for index, (a, b, c) in enumerate(NEWTON_SCHULZ):
        step = torch.baddbmm(square, square, square, beta=b, alpha=c)
        step.diagonal(dim1=-2, dim2=-1).add_(a)
        whole_map = step if whole_map is None else step @ whole_map
        if index + 1 < len(NEWTON_SCHULZ):
            square = step @ square @ step
    assert whole_map is not None
    return whole_map @ x
