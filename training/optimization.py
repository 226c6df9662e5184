"""What a run does with its weights: which decay, the learning rate of a step, their average."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from training.config import OptimizerConfig, TrainerConfig

_UNDECAYED = ("encoding", "embedding", "bias", "norm", "temperature", "convolution")
"""Parts of names of parameters without weight decay; one-dimensional ones have none either."""


def parameter_groups(
    module: nn.Module, weight_decay: float, *, orthogonalized: bool
) -> list[dict[str, Any]]:
    """Weight matrices, which decay, by how many each stacks; and all others, which do not decay.

    `parts` is 0 for what Muon leaves to AdamW: all but the matrices of the blocks.
    """
    groups: dict[int, list[nn.Parameter]] = {0: [], 1: [], 2: [], 3: []}
    others: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.ndim < 2 or any(word in name for word in _UNDECAYED):
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
    return [*decayed, {"params": others, "parts": 0, "weight_decay": 0.0}]


class Budget:
    """How much of a run is done, by tokens and by the clock, and the learning rate there."""

    def __init__(
        self, trainer: TrainerConfig, optimizer: OptimizerConfig, tokens_per_step: int
    ) -> None:
        self.earlier = 0.0
        """Seconds of earlier sessions of the run."""
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
        return max(share, self.elapsed() / (60 * self._trainer.time_budget_minutes))

    def learning_rate(self, step: int) -> float:
        """Warm-up, constant, and linear decay over the last part of the budget."""
        config = self._optimizer
        warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
        left = max(0.0, 1 - self.progress(step)) / max(config.decay_share, 1e-9)
        decayed = config.final_share + (1 - config.final_share) * min(1.0, left)
        return config.learning_rate * warm * decayed


class Average:
    """Exponential running mean of a module's parameters (Polyak & Juditsky, 1992)."""

    def __init__(self, module: nn.Module, decay: float | None) -> None:
        self._module = module
        self._decay = decay
        self._mean: list[Tensor] = []
        self._updates = 0

    def _parameters(self) -> list[Tensor]:
        return [parameter.data for parameter in self._module.parameters()]

    def update(self) -> None:
        """Take the present weights into the mean; the first ones count as many as there are."""
        if self._decay is None:
            return
        self._updates += 1
        weights = self._parameters()
        if not self._mean:
            self._mean = [weight.clone() for weight in weights]
            return
        share = max(1 - self._decay, 1 / self._updates)
        self._mean = [m.to(w.device) for m, w in zip(self._mean, weights, strict=True)]
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    def swap(self) -> None:
        """Exchange weights and mean; does nothing before the first update."""
        for weight, mean in zip(self._parameters(), self._mean, strict=False):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"mean": self._mean, "updates": self._updates}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what a checkpoint kept."""
        self._mean = list(state["mean"])
        self._updates = int(state["updates"])
