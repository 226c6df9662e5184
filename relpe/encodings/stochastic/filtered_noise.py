"""Stochastic codes from filtered white noise: the base class of ConvSPE and SIREN-SPE.

For every head and feature, one field of white noise is filtered twice, for queries and for keys.
The covariance of the two codes is the correlation of the filters, which depends only on the lag
(Liutkus et al., 2021, section 3.2). Subclasses define the filters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from relpe.checks import Checked, at_least, check_state, check_type
from relpe.encodings.stochastic.base import (
    StochasticEncoding,
    check_initial_gate,
    checked_draws,
    raw_gates,
)
from relpe.encodings.stochastic.noise_products import (
    Plan,
    filter_matrices,
    project,
    shared_codes,
    tile_codes,
    worth_sharing,
)
from relpe.encodings.stochastic.white_noise import (
    SITES,
    TILES,
    NoiseField,
    NoiseKind,
    Placement,
    noise_around,
    stencil,
    white_noise,
)
from relpe.encodings.weights import Weights
from relpe.transforms import may_keep, outside_graphs, without_autocast


class Filters(NamedTuple):
    """The code at position x is the sum over taps i of values[i] * noise(x + first + i)."""

    values: Tensor  # (2, h, d, *taps), or (2, layers, h, d, *taps): of queries, of keys
    first: tuple[int, ...]  # (p,): where the first taps read, relative to the position


class FilteredNoiseState(NamedTuple):
    """Noise of one sequence: its seed, and cached tiles for the next positions.

    It also contains codes, which are valid only for the weights that computed them. Its size is
    constant from the first position onwards.
    """

    seed: Tensor  # () int64
    gates: Tensor  # (layers, h, d, r), variance 1
    tiles: Tensor  # (j, p) int64: the cached tiles of noise, around that of the last position
    noise: Tensor  # (h, d, j, c, r)
    coded: Tensor  # (1, p) int64, or (0, p): the tile of the cached codes, if not training
    codes: Tensor  # (n, 2, c, h, d, r), or (n, 2, 0, h, d, r), for n sets of filters
    weights: Weights = Weights()  # with which the cached codes were computed


class FilteredNoiseCodes(NamedTuple):
    """Codes of the positions of a call, for all layers or for one, or the factors of the codes."""

    shared: Tensor | None  # (2, l, h, d, r): of queries and of keys, if small
    matrices: Tensor | None  # (h, d, 2c, n): the filters as products with the noise around a tile
    plan: Plan | None
    gates: Tensor  # (layers, h, d, r)
    by_layer: tuple[FilteredNoiseCodes, ...] = ()  # codes of each layer, if they differ
    rows: tuple[FilteredNoiseCodes, ...] = ()  # codes of each row, if positions differ

    @property
    def length(self) -> int:
        """Number of positions (l)."""
        if self.shared is not None:
            return self.shared.shape[1]
        assert self.plan is not None
        return self.plan.placement.length


@dataclass(frozen=True, kw_only=True)
class FilteredNoiseConfig(Checked):
    """Settings that all encodings with filtered noise have."""

    num_realizations: int = 64
    """Number of random codes (r), which is the number of features per head after encoding. Larger
    numbers reduce the variance and increase the cost."""
    gated: bool = True
    """Give each feature of each layer a learned gate, with which it can ignore position."""
    initial_gate: float | None = None
    """Initial value of all gates, between 0 (no gate) and 1 (position is ignored). None: random
    values around 1/2, as in the original. A small one trains faster with few codes, since a gate
    adds noise that differs in each step."""
    shared_by_layers: bool = True
    """Use the same filters and codes in all layers. If false, each layer has its own filters, which
    are applied to the same noise."""
    noise: NoiseKind = "normal"
    """Kind of noise: normal, as published, or random signs, which are cheaper to draw. Covariances
    are the same. With signs, the variance of the product of a feature's codes is smaller by twice
    the sum over taps i of query_filter[i]^2 key_filter[i + lag]^2; that of products of different
    features is the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, num_realizations=self.num_realizations)
        check_initial_gate(self.initial_gate, gated=self.gated)


class FilteredNoise(StochasticEncoding[FilteredNoiseCodes, FilteredNoiseState]):
    """Base of encodings whose codes are filtered noise; parameter: raw gates (layers, h, d)."""

    state_type = FilteredNoiseState
    codes_type = FilteredNoiseCodes
    codes_by_position = True

    def __init__(
        self,
        config: FilteredNoiseConfig,
        *,
        axes: int,
        num_layers: int,
        num_heads: int,
        head_dim: int,
    ) -> None:
        super().__init__()
        if axes not in TILES:
            raise ValueError(f"filters have {axes} axes, expected one of {sorted(TILES)}")
        self.axes = self.num_axes = axes
        self.num_layers = num_layers
        self.noise: NoiseKind = config.noise
        self.shared_by_layers = config.shared_by_layers
        self.heads, self.out_features = (num_heads, head_dim), config.num_realizations
        self.shape = (num_heads, head_dim, config.num_realizations)
        shape = (num_layers, num_heads, head_dim)
        self.gates = raw_gates(shape, config.initial_gate) if config.gated else None

    @abstractmethod
    def filters(self) -> Filters:
        """Return the filters, in the dtype of the parameters."""

    def init_state(
        self, seed: int, device: torch.device, num_realizations: int | None = None
    ) -> FilteredNoiseState:
        """See `StochasticEncoding.init_state`; tiles are drawn when positions are prepared."""
        heads, features, draws = self.shape
        draws = checked_draws(draws, num_realizations)
        sets = 1 if self.shared_by_layers else self.num_layers
        gates = white_noise(self.noise, (self.num_layers, heads, features, draws), seed)
        none = torch.empty(0, self.axes, dtype=torch.int64)
        return FilteredNoiseState(
            torch.tensor(seed % 2**63),
            gates.to(device),
            none,
            torch.empty(heads, features, 0, SITES, draws, device=device),
            none,
            torch.empty(sets, 2, 0, heads, features, draws, device=device),
        )

    def covariance(self, lags: Tensor) -> Float[Tensor, "*layers h d o"]:
        """See `StochasticEncoding.covariance`."""
        check_type("lags", lags, Tensor)
        filters = self.filters().values.double()
        return filter_covariance(filters[0], filters[1], lags)

    def matrices(self, codes: FilteredNoiseCodes) -> Tensor:
        """See `QueryKeyEncoding.matrices`; computes those that were too large to be stored."""
        sets: list[Tensor] = []
        for one in codes.by_layer or (codes,):
            if one.shared is not None:
                sets.append(one.shared)
            else:
                assert one.matrices is not None
                assert one.plan is not None
                sets.append(shared_codes(one.matrices, one.plan))
        return torch.stack(sets)

    @outside_graphs  # noise is drawn and tiles are located outside graphs
    def codes_at(
        self, positions: Tensor, state: FilteredNoiseState
    ) -> tuple[FilteredNoiseCodes, FilteredNoiseState]:
        """Return the codes of integer `positions` (1 or b, l, p), in any order.

        Axes beyond those of the filters are ignored.
        """
        sizes = state.gates.shape[:3], state.tiles.shape[1:]
        check_state(sizes, ((self.num_layers, *self.shape[:2]), (self.axes,)))
        return super().codes_at(positions[..., : self.axes], state)

    def codes_of_row(
        self, positions: Tensor, state: FilteredNoiseState
    ) -> tuple[FilteredNoiseCodes, FilteredNoiseState]:
        """Return the codes of integer `positions` (1, l, p), in any order."""
        places = self._whole(positions)
        if not len(places):
            return self._no_codes(state), state
        placement = Placement.of(places, TILES[self.axes])
        last = placement.tiles[placement.last]
        trained = not may_keep(places.device)
        if (
            not trained
            and placement.tiles == [tuple(row) for row in state.coded.tolist()]
            and state.weights.are_those_of(self._filter_weights())
        ):
            kept = state.codes[:, :, placement.sites[0]].unbind()
            return self._codes(kept, [None] * len(kept), None, state), state

        with without_autocast(places.device):
            filters = self.filters()
            values = filters.values.to(torch.promote_types(filters.values.dtype, torch.float32))
            scaled = values * (self.shape[1] * state.gates.shape[-1]) ** -0.25
            pattern = stencil(tuple(scaled.shape[-self.axes :]), filters.first)
            sets = (scaled,) if self.shared_by_layers else scaled.unbind(1)
            matrices = [filter_matrices(values, pattern) for values in sets]
            layers = self.num_layers if self.shared_by_layers else 1
            code_bytes = 2 * len(places) * state.gates[0].numel() * scaled.element_size()
            sharing = worth_sharing(len(sets) * code_bytes, layers)
            passes = None if trained else len(sets) if sharing else self.num_layers
            kept = {
                tuple(index): state.noise[:, :, i] for i, index in enumerate(state.tiles.tolist())
            }
            shape = (*self.shape[:2], state.gates.shape[-1])
            field = NoiseField(self.noise, int(state.seed), shape, kept, scaled.detach())
            halos = noise_around(field, placement.tiles, pattern.neighbours, passes=passes)
            plan = Plan(placement, halos)

            around = halos.tiles(placement.last)
            at_last = halos.noise(placement.last)
            noise = at_last.unflatten(2, (-1, SITES))
            if len(placement.tiles) > 1:
                noise = noise.clone()  # the state keeps only this part of the noise of the call
            state = state._replace(tiles=torch.tensor(around), noise=noise)
            state = state._replace(coded=state.coded[:0], codes=state.codes[:, :, :0])
            shared = None
            if not trained:
                codes = [tile_codes(matrix, at_last) for matrix in matrices]
                state = state._replace(coded=torch.tensor([last]), codes=torch.stack(codes))
                state = state._replace(weights=Weights.of(self._filter_weights()))
                if len(placement.tiles) == 1:
                    shared = [set_codes[:, placement.sites[0]] for set_codes in codes]
            if shared is None:
                shared = [shared_codes(x, plan) if sharing else None for x in matrices]
        return self._codes(shared, matrices, plan, state), state

    def project(self, q: Tensor, k: Tensor, codes: FilteredNoiseCodes) -> tuple[Tensor, Tensor]:
        """See `StochasticEncoding.project`."""
        return project(q, k, codes.shared, codes.matrices, codes.plan)

    def _codes(
        self,
        shared: Sequence[Tensor | None],
        matrices: Sequence[Tensor | None],
        plan: Plan | None,
        state: FilteredNoiseState,
    ) -> FilteredNoiseCodes:
        """Return the codes of all sets of filters: one set that layers share, or one per layer."""
        layers = tuple(
            FilteredNoiseCodes(codes, matrix, plan, state.gates)
            for codes, matrix in zip(shared, matrices, strict=True)
        )
        return layers[0]._replace(by_layer=() if self.shared_by_layers else layers)

    def _no_codes(self, state: FilteredNoiseState) -> FilteredNoiseCodes:
        """Return the codes of no positions."""
        none = state.gates.new_empty(2, 0, *self.shape[:2], state.gates.shape[-1])
        sets = [none] * (1 if self.shared_by_layers else self.num_layers)
        return self._codes(sets, [None] * len(sets), None, state)

    def _filter_weights(self) -> list[Tensor]:
        """Return the parameters on which the filters depend: all but the gates."""
        return [weight for name, weight in self.named_parameters() if name != "gates"]

    def _whole(self, positions: Tensor) -> Tensor:
        """Return positions (1, l, p or more) as (l, p) int64."""
        places = positions[0, :, : self.axes]
        whole = places.to(torch.int64)
        if places.is_floating_point() and not bool((places == whole).all()):
            raise ValueError(
                "positions are not integers, but noise is filtered on a grid; count positions in "
                "smaller steps, or use sine SPE"
            )
        return whole


def filter_covariance(
    query_filter: Tensor, key_filter: Tensor, lags: Tensor
) -> Float[Tensor, "*layers h d o"]:
    """Sum over taps i of query_filter[i] * key_filter[i + lag], for filters (..., h, d, *taps).

    `lags` (o, p), or (o,) on one axis.
    """
    lags = lags.view(len(lags), -1)
    taps = query_filter.shape[-lags.shape[1] :]

    def overlap(lag: list[int]) -> Tensor:
        here = [slice(max(0, -t), max(0, min(n, n - t))) for t, n in zip(lag, taps, strict=True)]
        there = [slice(max(0, t), max(0, min(n, n + t))) for t, n in zip(lag, taps, strict=True)]
        both = query_filter[(..., *here)] * key_filter[(..., *there)]
        return both.flatten(-len(lag)).sum(-1)

    return torch.stack([overlap(lag) for lag in lags.tolist()], -1)
