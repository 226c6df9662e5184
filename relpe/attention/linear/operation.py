"""Linear attention as the operation of a layer: config, state and feature map."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.feature_maps import FeatureMap, FeatureMapConfig, ReluConfig
from relpe.attention.linear import fla
from relpe.attention.linear.attention import (
    LinearState,
    causal_linear_attention,
    read_sums,
    sums_of,
)
from relpe.attention.linear.numerator import numerator_only_attention
from relpe.checks import Checked, check_state
from relpe.encodings.base import NO_SCORING, AttentionName, Rotation, Scoring
from relpe.transforms import kept_on_device, without_autocast


class LinearAttentionState(NamedTuple):
    """State of one layer, of constant size."""

    sums: LinearState
    projection: Tensor | None  # (d, n): the random projection with which the sums were computed

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> LinearAttentionState:
        """Return the state with `change` applied to each tensor that belongs to rows."""
        return self._replace(sums=LinearState(*map(change, self.sums)))


@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig(Checked):
    """Attention with a feature map, of linear cost (Katharopoulos et al., 2020)."""

    kind: Literal["linear"] = "linear"
    feature_map: FeatureMapConfig = field(default_factory=ReluConfig)
    """Feature map, which maps queries and keys to non-negative features."""
    half_lives: tuple[float, float] | None = None
    """Half-lives of the first and of the last head, in positions; geometric for the heads between
    them. After one half-life, the weight of a key is halved (Sun et al., 2023, section 2.1). None:
    no decay."""
    gated: bool = False
    """Multiply the rate of decay of each head by a factor that depends on the input of the layer,
    softplus(y) / ln 2, where y is linear in it (Yang et al., 2024; one gate per head). `half_lives`
    are those for y = 0."""

    @property
    def name(self) -> AttentionName:
        """The name of the feature map."""
        return self.feature_map.kind

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half_lives is not None and not all(0 < x < math.inf for x in self.half_lives):
            raise ValueError(f"half_lives are {self.half_lives}, expected two positive numbers")
        if self.gated and self.half_lives is None:
            raise ValueError("gated is true without half_lives, expected both or neither")

    def build(self) -> LinearOperation:
        """Return the operation on encoded queries and keys."""
        return LinearOperation(self.feature_map.build(), self.half_lives)

    def build_gates(self, width: int, num_heads: int) -> DecayGates | None:
        """Return the gates of a layer with inputs of `width`; None without `gated`."""
        if not self.gated or self.half_lives is None:
            return None
        return DecayGates(self.half_lives, width, num_heads)


class DecayGates(nn.Module):
    """Rates of decay from the inputs of a layer, see `LinearAttentionConfig.gated`."""

    def __init__(self, half_lives: tuple[float, float], width: int, num_heads: int) -> None:
        super().__init__()
        self.half_lives = half_lives
        self.project = nn.Linear(width, num_heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return how much log weights of earlier keys fall at inputs x (b, l, m): (b, l, h)."""
        raw = self.project(x)
        with without_autocast(x.device):
            rates = _rates_on(*self.half_lives, raw.shape[-1], x.device) / math.log(2)
            return functional.softplus(raw.double()) * rates


VANISHED = -1e30
"""Logarithm of the weight of a key that does not exist; finite, so that differences are."""


class LinearOperation:
    """Causal linear attention with its feature map."""

    state_type = LinearAttentionState

    def __init__(self, feature_map: FeatureMap, half_lives: tuple[float, float] | None) -> None:
        self.feature_map = feature_map
        self.half_lives = half_lives

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> LinearAttentionState:
        """Return the empty sums, and random features drawn from `generator`; `shape` is (b, h, e).

        Encoded queries and keys have `in_features`. The state is on the device of `weight`, and has
        its dtype or float32, whichever is wider.
        """
        b, h, e = shape
        device, dtype = weight.device, torch.promote_types(torch.float32, weight.dtype)
        projection = self.feature_map.draw(in_features, generator)
        features = self.feature_map.num_features(in_features)
        return LinearAttentionState(
            LinearState.empty((b, h, features, e), device=device, dtype=dtype),
            None if projection is None else projection.to(device),
        )

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: LinearAttentionState,
        scoring: Scoring = NO_SCORING,
        lengths: Tensor | None = None,
        gates: Tensor | None = None,
    ) -> tuple[Tensor, LinearAttentionState]:
        """Return the attention (b, l, h, e) of encoded q and k (b, l, h, d), and the new state.

        The rotation of `scoring` is applied only in the numerator. `lengths` (b,) is the number of
        positions of each row; see `SelfAttention`. `gates` are those of `DecayGates`.
        """
        if not q.shape[1]:
            return v, state
        b, _, h, d = q.shape
        check_state(
            (state.projection is None, state.sums.kv.shape),
            (
                type(self.feature_map).draw is FeatureMap.draw,
                (b, h, self.feature_map.num_features(d), v.shape[-1]),
            ),
        )
        turn = scoring.rotation
        with without_autocast(q.device):
            projection = _cast(state.projection, state.sums.kv.dtype)
            q, k = q.to(state.sums.kv.dtype), k.to(state.sums.kv.dtype)
            queries, keys = self.feature_map(q, projection), self.feature_map(k, projection)
            log_scale, faded = keys.log_scale, None
            if gates is not None:
                ramp = gates.cumsum(1)
                last = -1 if lengths is None else lengths - 1  # padding lets nothing decay
                faded = ramp[torch.arange(ramp.shape[0], device=ramp.device), last]
                faded = faded if lengths is None else faded.where(lengths[:, None] > 0, 0.0)
                log_scale = ramp if log_scale is None else log_scale + ramp
            elif self.half_lives is not None:
                ramp, faded = self._fading(k.shape[1], k.shape[2], k.device)
                if lengths is not None:
                    faded = faded / k.shape[1] * lengths[:, None]
                log_scale = ramp[None] if log_scale is None else log_scale + ramp
            features = queries.values, keys.values
            if lengths is not None:
                beyond = torch.arange(k.shape[1], device=k.device) >= lengths[:, None]
                if log_scale is None:
                    features = features[0], features[1].masked_fill(beyond[..., None, None], 0.0)
                else:
                    log_scale = log_scale.masked_fill(beyond[..., None], VANISHED)
            if turn is None:
                by_kernel = fla.serves(v) and q.shape[1] > 1 and gates is None
                attend = fla.causal_linear_attention if by_kernel else causal_linear_attention
                out, sums = attend(*features, v, state.sums, log_scale)
            else:
                turned = turn(features[0]), turn(features[1], keys=True)
                out, sums = numerator_only_attention(*features, *turned, v, state.sums, log_scale)
            if faded is not None:
                log_scale = (sums.log_scale - faded).to(sums.kv.dtype)
                sums = sums._replace(log_scale=log_scale)
        return out, state._replace(sums=sums)

    def between(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: LinearAttentionState,
        key_mask: Tensor | None = None,
        turn: Rotation | None = None,
    ) -> Tensor:
        """Return attention (b, l, h, e) of q (b, l, h, d) to all k, v (b, s, h, ·); no causality.

        `key_mask` (b, s) is True for keys that exist; a query without keys gets zeros. Random
        features are those of `state`. `turn` rotates features in the numerator only.

        Raises:
            ValueError: keys decay, which is defined for one sequence only.
        """
        memory = self.remember(k, v, state, key_mask, turn)
        return self.recall(q, memory, turn).to(v.dtype)

    def remember(
        self,
        k: Tensor,
        v: Tensor,
        state: LinearAttentionState,
        key_mask: Tensor | None = None,
        turn: Rotation | None = None,
    ) -> LinearAttentionState:
        """Return the sums over all of k and v (b, s, h, ·), to which `recall` attends.

        See `between`.
        """
        if self.half_lives is not None:
            raise ValueError("half_lives are defined within one sequence; leave them out")
        with without_autocast(k.device):
            dtype = state.sums.kv.dtype
            keys = self.feature_map(k.to(dtype), _cast(state.projection, dtype))
            turned = None if turn is None else turn(keys.values, keys=True)
            return state._replace(sums=sums_of(keys.values, v, key_mask, keys.log_scale, turned))

    def recall(
        self, q: Tensor, memory: LinearAttentionState, turn: Rotation | None = None
    ) -> Tensor:
        """Return the attention (b, l, h, e) of encoded q (b, l, h, d) to what was remembered."""
        with without_autocast(q.device):
            dtype = memory.sums.kv.dtype
            queries = self.feature_map(q.to(dtype), _cast(memory.projection, dtype)).values
            return read_sums(queries, memory.sums, None if turn is None else turn(queries))

    def _fading(self, length: int, heads: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return logarithms (length, h) of keys' weights, from the call's start, and the last.

        Later keys get larger weights, which is equivalent to decay because only ratios matter.
        Positions are counted from the start of the call, in float64, so that weights are as exact
        after 10^6 positions as after 10.
        """
        assert self.half_lives is not None
        rates = _rates_on(*self.half_lives, heads, device)
        ramp = torch.arange(1, length + 1, device=device)[:, None] * rates
        return ramp, ramp[-1]


def _cast(projection: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if projection is None else projection.to(dtype)


@lru_cache(maxsize=64)
def fading_rates(first: float, last: float, heads: int) -> NDArray[np.float64]:
    """Decrease (h,) of the logarithm of a key's weight per position, for each head."""
    return math.log(2) / np.geomspace(first, last, heads)


@kept_on_device
def _rates_on(first: float, last: float, heads: int, device: torch.device) -> Tensor:
    """Return the same on a device; cached because a CUDA graph cannot copy from the host."""
    return torch.from_numpy(fading_rates(first, last, heads)).to(device)
