"""What a run does with its weights: groups, the learning rate of a step, average and movement."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch

from relpe.encodings.base import Encoding
from training.learning.distributed import shared_like, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from training.config import OptimizerConfig, TrainerConfig

_UNDECAYED = ("embedding", "bias", "norm", "temperature", "convolution")
"""Parts of names of parameters without weight decay. One-dimensional ones and those of encodings
have none either: frequencies, angles, widths and the like mean something at any size."""


def parameter_groups(
    module: nn.Module,
    weight_decay: float,
    *,
    orthogonalized: bool,
    encoding_learning_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Weight matrices, which decay, by how many each stacks; and all others, which do not decay.

    `parts` is 0 for what Muon leaves to AdamW: all but the matrices of the blocks. With an
    `encoding_learning_rate` the parameters of encodings are a last group, with that rate as `peak`.
    """
    of_encodings = {
        id(parameter)
        for part in module.modules()
        if isinstance(part, Encoding)
        for parameter in part.parameters()
    }
    groups: dict[int, list[nn.Parameter]] = {0: [], 1: [], 2: [], 3: []}
    others: list[nn.Parameter] = []
    encodings: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if id(parameter) in of_encodings:
            (others if encoding_learning_rate is None else encodings).append(parameter)
        elif parameter.ndim < 2 or any(word in name for word in _UNDECAYED):
            others.append(parameter)
        elif not orthogonalized or not name.startswith("blocks."):
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
    undecayed: dict[str, Any] = {"parts": 0, "weight_decay": 0.0}
    made = [*decayed, {"params": others, **undecayed}]
    if encodings:
        made.append({"params": encodings, **undecayed, "peak": encoding_learning_rate})
    return made


class Budget:
    """How much of a run is done, by tokens and by the clock, and the learning rate there."""

    def __init__(
        self, trainer: TrainerConfig, optimizer: OptimizerConfig, tokens_per_step: int
    ) -> None:
        self.earlier = 0.0
        """Seconds of earlier sessions of the run."""
        self.agreed: float | None = None
        """What `progress` takes for `elapsed`, where several processes have to agree on it."""
        self._trainer = trainer
        self._optimizer = optimizer
        self._tokens_per_step = tokens_per_step
        self._started: float | None = None

    def start(self) -> None:
        """Start the clock of this session."""
        self._started = time.monotonic()

    def elapsed(self) -> float:
        """Seconds of all sessions of the run."""
        now = 0.0 if self._started is None else time.monotonic() - self._started
        return self.earlier + now

    def progress(self, step: int) -> float:
        """Share of the budget that is spent after `step` steps; 1 and more: the run is over."""
        share = step * self._tokens_per_step / self._trainer.token_budget
        if self._trainer.time_budget_minutes is None:
            return share
        seconds = self.elapsed() if self.agreed is None else self.agreed
        return max(share, seconds / (60 * self._trainer.time_budget_minutes))

    def learning_rate(self, step: int, peak: float | None = None) -> float:
        """Warm-up, constant, and linear decay over the last part of the budget.

        `peak` is the constant; the config's `learning_rate` where None.
        """
        config = self._optimizer
        peak = config.learning_rate if peak is None else peak
        warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
        left = max(0.0, 1 - self.progress(step)) / max(config.decay_share, 1e-9)
        decayed = config.final_share + (1 - config.final_share) * min(1.0, left)
        return peak * warm * decayed


class Average:
    """Exponential running mean of a module's parameters (Polyak & Juditsky, 1992)."""

    def __init__(self, module: nn.Module, decay: float | None) -> None:
        self._module = module
        self._decay = decay
        self._mean: list[Tensor] = []
        self._updates = 0

    def _parameters(self) -> list[nn.Parameter]:
        # not their data, whose changes would not be seen by what is kept for a version of them
        return list(self._module.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Take the present weights into the mean; the first ones count as many as there are."""
        if self._decay is None:
            return
        self._updates += 1
        weights = self._parameters()
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
        weights = self._parameters()
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


class Movement:
    """How far parameters are from where their run began."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        self._parameters = dict(parameters)
        self._start: dict[str, Tensor] | None = None

    def begin(self) -> None:
        """Keep the present values, unless an earlier session has kept its own."""
        if self._start is None:
            self._start = {
                name: whole(value.detach()).clone() for name, value in self._parameters.items()
            }

    def changes(self, key: str) -> dict[str, float]:
        """Norm of the change over the norm of the first values: `key` of all, `key`/name by name.

        A name is the last of a parameter's: layers are taken together. What began at zero is left
        out.
        """
        changes: dict[str, float] = {}
        norms: dict[str, float] = {}
        for name, first in (self._start or {}).items():
            now = whole(self._parameters[name].detach()).to(first)
            change = float((now - first).double().square().sum())
            norm = float(first.double().square().sum())
            last = next(part for part in reversed(name.split(".")) if not part.isdigit())
            for of in (key, f"{key}/{last}"):
                changes[of] = changes.get(of, 0.0) + change
                norms[of] = norms.get(of, 0.0) + norm
        return {of: math.sqrt(changes[of] / norm) for of, norm in norms.items() if norm}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return self._start or {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over what a checkpoint kept; an empty one: nothing is known of the beginning."""
        self._start = dict(state)
