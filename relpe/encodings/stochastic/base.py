"""The base class of stochastic encodings, and their gates.

A gate g mixes the code of a feature with noise that is the same at all positions; the weights are
the square roots of 1 - g and g. The expected product of query and key codes becomes (1 - g) P + g
(Liutkus et al., 2021, section 3.3).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from types import MappingProxyType, UnionType
from typing import Protocol, Self, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import at_least
from relpe.encodings.base import QueryKeyEncoding, StateT, check_codes, check_layer


class NoiseCodes(Protocol):
    """Codes of the positions of a call, for all layers or for one."""

    @property
    def length(self) -> int:
        """Number of positions (l); of codes of each row, that of the first."""
        ...

    @property
    def gates(self) -> Tensor:
        """Noise of the gates, (layers, h, d, r)."""
        ...

    @property
    def by_layer(self) -> Sequence[Self]:
        """Codes of each layer, if they differ; else empty."""
        ...

    @property
    def rows(self) -> Sequence[Self]:
        """Codes of each row, if their positions differ; else empty."""
        ...

    def _replace(self, *, rows: tuple[Self, ...]) -> Self: ...


NoiseCodesT = TypeVar("NoiseCodesT", bound=NoiseCodes)


class StochasticEncoding(QueryKeyEncoding[NoiseCodesT, StateT]):
    """Base of encodings with random codes, which subclasses compute and multiply with features.

    Raw gates, if there are any, are the parameter `gates` (layers, h, d). The gates g are their
    sigmoid, and 1 means that a feature ignores position. States and codes contain the noise of the
    gates, `gates` (layers, h, d, r). Codes that differ between layers are in `by_layer`.
    """

    fits = ("softmax", "windowed", "favor", "relu", "elu")
    reasons = MappingProxyType(
        {"delta": "its outputs are not linear in the random codes, so their mean is another kernel"}
    )
    relative = "in the mean"
    codes_type: type | UnionType
    """What `prepare` returns."""
    num_layers: int
    gates: nn.Parameter | None

    @abstractmethod
    def init_state(
        self, seed: int, device: torch.device, num_realizations: int | None = None
    ) -> StateT:
        """Return the noise for `seed`.

        `num_realizations`, the number of features after `encode`, replaces that of the config.

        Raises:
            ValueError: `num_realizations` is less than 1.
        """

    @abstractmethod
    def codes_of_row(self, positions: Tensor, state: StateT) -> tuple[NoiseCodesT, StateT]:
        """Return codes for `positions` (1, l, p) that all rows share, and the state after them."""

    def codes_at(self, positions: Tensor, state: StateT) -> tuple[NoiseCodesT, StateT]:
        """Return codes for `positions` (b, l, p) that may differ by row, and the state after them.

        Noise is a function of the position, so that all rows share the state.
        """
        if positions.shape[0] == 1 or bool((positions == positions[:1]).all()):
            return self.codes_of_row(positions[:1], state)
        rows: list[NoiseCodesT] = []
        for row_positions in positions.split(1):
            codes, state = self.codes_of_row(row_positions, state)
            rows.append(codes)
        return rows[0]._replace(rows=tuple(rows)), state

    @abstractmethod
    def covariance(self, lags: Tensor) -> Float[Tensor, "*layers h d o"]:
        """Return the exact expected product of codes at each lag m - n, before gate and scale.

        `lags` are (o,) positions, or (o, p) with p axes. The result is float64. It has an axis of
        layers if layers have their own parameters.
        """

    @abstractmethod
    def project(self, q: Tensor, k: Tensor, codes: NoiseCodesT) -> tuple[Tensor, Tensor]:
        """Sum the features of q and k (b, l, h, d) times the codes of a layer: (b, l, h, r)."""

    def encode(self, q: Tensor, k: Tensor, codes: NoiseCodesT, layer: int) -> tuple[Tensor, Tensor]:
        """Encode queries and keys (b, l, h, d) as (b, l, h, r).

        Their scores q.k / sqrt(r) estimate sum_d q_d k_d P_d / sqrt(d).
        """
        check_layer(layer, self.num_layers)
        for x in (q, k):
            check_codes(codes, self.codes_type, lambda codes: codes.length, x)
        if codes.rows:
            rows = [
                self.encode(q[i : i + 1], k[i : i + 1], row_codes, layer)
                for i, row_codes in enumerate(codes.rows)
            ]
            return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])
        if codes.by_layer:
            codes = codes.by_layer[layer]
        if self.gates is None:
            return self.project(q, k, codes)
        through, constant = mixture(self.gates[layer], codes.gates[layer])
        queries, keys = self.project(q * through, k * through, codes)
        return (
            queries + torch.einsum("blhd,hdr->blhr", q.to(constant), constant),
            keys + torch.einsum("blhd,hdr->blhr", k.to(constant), constant),
        )


def raw_gates(shape: tuple[int, int, int], initial: float | None = None) -> nn.Parameter:
    """Make gates of `shape` (layers, h, d), before the sigmoid, after which they are `initial`.

    If that is None, they are standard normal, as in the original.
    """
    if initial is None:
        return nn.Parameter(torch.randn(shape))
    return nn.Parameter(torch.full(shape, math.log(initial / (1 - initial))))


def check_initial_gate(initial: float | None, *, gated: bool) -> None:
    """Check the `initial_gate` of a config.

    Raises:
        ValueError: it is out of range, or there are no gates.
    """
    if initial is not None and not (gated and 0 < initial < 1):
        raise ValueError(
            f"initial_gate is {initial} with gated: {str(gated).lower()}, expected a number "
            "between 0 and 1 with gates"
        )


def checked_draws(default: int, requested: int | None) -> int:
    """Return the number of realisations of a state (r): `requested`, or else `default`.

    Raises:
        ValueError: it is less than 1.
    """
    draws = default if requested is None else requested
    at_least(1, num_realizations=draws)
    return draws


def mixture(raw: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (h, d) of positional codes, and the constant codes (h, d, r) of all positions.

    Takes the raw gates (h, d) of a layer and its unscaled noise (h, d, r). Constant codes have the
    same scale (r * d)^(-1/4) as positional ones.
    """
    features, draws = noise.shape[-2:]
    raw = raw.to(torch.promote_types(raw.dtype, noise.dtype))
    # square roots of sigmoids via logarithms, so that saturated gates keep their gradient
    ignored, kept = (torch.exp(functional.logsigmoid(x) / 2) for x in (raw, -raw))
    return kept, noise * (ignored * (draws * features) ** -0.25)[..., None]
