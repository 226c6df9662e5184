"""The gated delta rule as the operation of a layer: config, gates and state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.delta import fla
from relpe.attention.delta.rule import delta_step, gated_delta_rule
from relpe.checks import Checked, check_state
from relpe.encodings.base import NO_SCORING, AttentionName, Scoring
from relpe.transforms import without_autocast


class DeltaState(NamedTuple):
    """State of one layer, of constant size."""

    memory: Tensor  # (b, h, d, e), float32 or wider: what is stored for each key

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> DeltaState:
        """Return the state with `change` applied to each of its tensors."""
        return DeltaState(change(self.memory))


class Gates(NamedTuple):
    """What a layer computes from its inputs for each position and head, (b, l, h)."""

    strength: Tensor
    """Share of what is stored for a key that its value replaces, 0 to 1; above 1, up to 2, what is
    stored changes its sign."""
    log_decay: Tensor
    """Logarithm of the factor of everything stored, at most 0."""


@dataclass(frozen=True, kw_only=True)
class DeltaAttentionConfig(Checked):
    """The gated delta rule, of linear cost (Yang, Kautz & Hatamizadeh, 2025).

    A key overwrites what was stored for similar keys, and what is stored decays, both at rates that
    depend on the input. Rotations of queries and keys (algebraic, rope) are exact.
    """

    kind: Literal["delta"] = "delta"
    initial_half_lives: tuple[float, float] = (16.0, 4096.0)
    """Half-lives of what is stored, in positions, before training: of the first and of the last
    head, geometric for the heads between them."""
    negative_eigenvalues: bool = False
    """Whether strengths reach 2 instead of 1. Eigenvalues of the transition of the state, which
    are 1 - strength, then reach -1, without which no number of layers tracks the parity of a long
    sequence (Grazzi et al., 2024)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < x < math.inf for x in self.initial_half_lives):
            raise ValueError(
                f"initial_half_lives are {self.initial_half_lives}, expected two positive numbers"
            )

    @property
    def strongest(self) -> float:
        """The largest write strength."""
        return 2.0 if self.negative_eigenvalues else 1.0

    @property
    def name(self) -> AttentionName:
        """The name of this attention: its kind."""
        return self.kind

    def build(self) -> DeltaOperation:
        """Return the operation."""
        return DeltaOperation()

    def build_gates(self, width: int, num_heads: int) -> DeltaGates:
        """Return the gates of a layer with inputs of `width`."""
        return DeltaGates(self, width, num_heads)


class DeltaGates(nn.Module):
    """Write strength c sigmoid(z) and decay 2^(-softplus(y) / (ln 2 half-life)).

    y and z are linear in the inputs, and c is the largest strength, `strongest`. For y = 0 the
    half-life is that of the parameter `log_half_life` (h).
    """

    def __init__(self, config: DeltaAttentionConfig, width: int, num_heads: int) -> None:
        super().__init__()
        self.strongest = config.strongest
        self.project = nn.Linear(width, 2 * num_heads, bias=False)
        half_lives = torch.from_numpy(np.geomspace(*config.initial_half_lives, num_heads))
        self.log_half_life = nn.Parameter(half_lives.log().to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Gates:
        """Return the gates of the inputs x (b, l, m), in float32 or wider."""
        raw = self.project(x)
        with without_autocast(x.device):
            strength, decay = raw.to(torch.promote_types(raw.dtype, torch.float32)).chunk(2, -1)
            rate = (-self.log_half_life.to(decay)).exp()
            return Gates(self.strongest * strength.sigmoid(), -functional.softplus(decay) * rate)


class DeltaOperation:
    """The gated delta rule with a state; queries and keys are scaled to unit norm."""

    state_type = DeltaState

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> DeltaState:
        """Return the empty state, for `shape` (b, h, e) and keys with `in_features`."""
        b, h, e = shape
        dtype = torch.promote_types(torch.float32, weight.dtype)
        return DeltaState(torch.zeros(b, h, in_features, e, device=weight.device, dtype=dtype))

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: DeltaState,
        scoring: Scoring = NO_SCORING,
        lengths: Tensor | None = None,
        gates: Gates | None = None,
    ) -> tuple[Tensor, DeltaState]:
        """Return the outputs (b, l, h, e) for encoded q and k (b, l, h, d), and the new state.

        `lengths` (b,) is the number of positions of each row; see `SelfAttention`. Outputs are no
        means of values.
        """
        assert gates is not None
        if not q.shape[1]:
            return v, state
        check_state(state.memory.shape, (*q.shape[:1], *q.shape[2:], v.shape[-1]))
        strength, log_decay = gates
        if lengths is not None:  # padding neither writes nor lets anything decay
            beyond = (torch.arange(q.shape[1], device=q.device) >= lengths[:, None])[..., None]
            strength, log_decay = (x.masked_fill(beyond, 0.0) for x in gates)
        with without_autocast(q.device):
            q, k = (_unit(x.to(state.memory.dtype)) for x in (q, k))
            if q.shape[1] == 1 and not torch.is_grad_enabled():
                out, memory = delta_step(
                    q[:, 0], k[:, 0], v[:, 0], strength[:, 0], log_decay[:, 0], state.memory
                )
                out = out[:, None]
            elif fla.serves(v):
                out, memory = fla.gated_delta_rule(q, k, v, strength, log_decay, state.memory)
            else:
                out, memory = gated_delta_rule(q, k, v, strength, log_decay, state.memory)
        return out.to(v.dtype), DeltaState(memory)


def _unit(x: Tensor) -> Tensor:
    """Return vectors x (..., d) at unit norm; second derivatives of `normalize` are NaN at zero."""
    return x * x.square().sum(-1, keepdim=True).clamp(min=1e-24).rsqrt()
