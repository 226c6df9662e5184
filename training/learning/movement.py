"""Distance of parameters from their first values."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn

from training.learning.distributed import whole


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
