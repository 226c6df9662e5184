"""Distance of parameters from their initial values."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn

from training.learning.distributed import whole


class Movement:
    """Relative change of parameters since the start of their run."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        self._parameters = dict(parameters)
        self._start: dict[str, Tensor] | None = None

    def begin(self) -> None:
        """Record the current values as initial ones, unless a checkpoint has restored those."""
        if self._start is None:
            self._start = {
                name: whole(value.detach()).clone() for name, value in self._parameters.items()
            }

    def changes(self, key: str) -> dict[str, float]:
        """Return the norm of the change, divided by the norm of the initial values.

        The entry `key` is for all parameters together. Each entry `key`/name is for the parameters
        of that name in all layers together; it is left out if their initial values are zero.
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
        """Return the state for a checkpoint."""
        return self._start or {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the state from a checkpoint."""
        self._start = dict(state)
