"""Sinusoidal stochastic positional encoding, fused with its gate (Liutkus et al., 2021, section 3).

For every head and feature, queries and keys are multiplied by two random processes and summed over
features. The covariance of these processes is a learned sum of cosines of the lag. This gives
relative attention with absolute codes, and hence works with linear attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import Checked, at_least, check_state, check_type
from relpe.encodings.base import check_codes, check_layer
from relpe.encodings.stochastic import sparse_noise
from relpe.encodings.stochastic.base import (
    StochasticEncoding,
    check_initial_gate,
    checked_draws,
    mixture,
    raw_gates,
)
from relpe.encodings.stochastic.fused_projection import FusedProjection
from relpe.transforms import apply, check_draws

BLOCK = 256
"""Positions per block. Sines are evaluated for one block only; for each block, the noise is rotated
by the phase at its start."""
SHARED_CODE_BYTES = 256 * 2**20
"""Maximum size of codes that are computed once for all layers and stored."""


@dataclass(frozen=True, kw_only=True)
class SineSPEConfig(Checked):
    """Sinusoidal stochastic positional encoding (Liutkus et al., 2021)."""

    kind: Literal["sine_spe"] = "sine_spe"
    num_sines: int = 5
    """Number of sines per head and feature (k)."""
    noise: Literal["normal", "sparse"] = "normal"
    """Kind of noise: normal, as published, or sparse, which is faster with few short sequences.
    Covariances are equal, and products vary at most as much; see `sparse_noise.py`."""
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
    """Use the same sines and codes in all layers. If false, each layer has its own sines, with the
    same noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, num_sines=self.num_sines, num_realizations=self.num_realizations)
        check_initial_gate(self.initial_gate, gated=self.gated)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> SineSPE:
        """Return the module for a model of this shape, shared by its layers.

        Gates are always per layer.
        """
        return SineSPE(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class SineNoise(NamedTuple):
    """Noise of one sequence, with variance 1."""

    sines: Tensor  # (h, d, k, 2, r): for cosine and sine
    gates: Tensor  # (layers, h, d, r)
    places: Tensor | None = None  # (h, k * 2, d) where the noise of the sines is sparse


class SparseCodes(NamedTuple):
    """Codes with sparse noise, for all layers or for one."""

    queries: Tensor  # (s, h * r, l); see `sparse_noise.project`
    keys: Tensor  # (s, h * r, l)
    features: Tensor  # (s, h * r)
    gates: Tensor  # (layers, h, d, r)
    by_layer: tuple[SparseCodes, ...] = ()  # codes of each layer, if they differ
    rows: tuple[SparseCodes, ...] = ()  # codes of each row, if positions differ

    @property
    def length(self) -> int:
        """Number of positions (l)."""
        return self.queries.shape[-1]


class SineFactors(NamedTuple):
    """Factors of codes in n blocks of c positions; h may count the heads of all layers."""

    waves: Tensor  # (n or 1, c, h, d, 2k): cosines, then sines, of the positions of a block
    query_noise: Tensor  # (n, h, d, 2k, r): includes the gains and the phase at each block's start
    key_noise: Tensor  # (n, h, d, 2k, r)

    def split(self, heads: int) -> list[SineFactors]:
        """Return the factors of each layer, of `heads` heads."""
        waves = self.waves.split(heads, 2)
        noise = (side.split(heads, 1) for side in (self.query_noise, self.key_noise))
        return [SineFactors(*layer) for layer in zip(waves, *noise, strict=True)]

    def products(self, length: int) -> SineProducts:
        """Return the codes of the first `length` positions."""
        sides = (codes_of(self.waves, side)[:length] for side in (self.query_noise, self.key_noise))
        return SineProducts(*sides)


class SineProducts(NamedTuple):
    """The codes themselves, products of `SineFactors`."""

    queries: Tensor  # (l, h, d, r)
    keys: Tensor  # (l, h, d, r)

    def split(self, heads: int) -> list[SineProducts]:
        """Return the codes of each layer, of `heads` heads."""
        sides = (side.split(heads, 1) for side in self)
        return [SineProducts(*layer) for layer in zip(*sides, strict=True)]


class SineCodes(NamedTuple):
    """Codes of a call's positions, for all layers or for one."""

    factors: SineFactors | None  # None for one position
    products: SineProducts | None  # None if they are large
    gates: Tensor  # (layers, h, d, r)
    length: int  # number of positions (l)
    by_layer: tuple[SineCodes, ...] = ()  # codes of each layer, if they differ
    rows: tuple[SineCodes, ...] = ()  # codes of each row, if positions differ
    by_row: bool = False  # whether each row has its own position
    has_gates: bool = False  # whether queries and keys include gates, as those of one position do


class SineSPE(StochasticEncoding[SineCodes | SparseCodes, SineNoise]):
    """See `SineSPEConfig`; parameters: raw frequencies, offsets and gains (h, d, k), raw gates.

    If layers have their own sines, the first three are (layers, h, d, k). A frequency is sigmoid/2
    of the raw one, in cycles per position; a gain is softplus of the raw one; offsets are in
    radians and belong to the queries; a gate is sigmoid of the raw one, and 1 means that position
    is ignored. Initial values are as in the original, spe.py (2021).
    """

    state_type = SineNoise
    codes_type = SineCodes | SparseCodes
    codes_by_position = True
    rows_by_position = True

    def __init__(
        self, config: SineSPEConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        super().__init__()
        self.config = config
        self.num_layers = num_layers
        self.heads, self.out_features = (num_heads, head_dim), config.num_realizations
        layers = () if config.shared_by_layers else (num_layers,)
        shape = (*layers, num_heads, head_dim, config.num_sines)
        self.frequencies = nn.Parameter(torch.randn(shape) - 4.0)
        self.offsets = nn.Parameter(torch.randn(shape))
        gains = torch.randn(shape)
        self.gains = nn.Parameter(gains / (gains.norm(dim=-1, keepdim=True).sqrt() / 2))
        shape = (num_layers, num_heads, head_dim)
        self.gates = raw_gates(shape, config.initial_gate) if config.gated else None

    def init_state(
        self, seed: int, device: torch.device, num_realizations: int | None = None
    ) -> SineNoise:
        """See `StochasticEncoding.init_state`; drawn on the CPU, so it is equal on all devices."""
        check_draws()
        heads, features, sines = self.frequencies.shape[-3:]
        generator = torch.Generator().manual_seed(seed)
        draws = checked_draws(self.config.num_realizations, num_realizations)
        places = None
        if self.config.noise == "sparse":
            places, noise = sparse_noise.draw(heads, features, 2 * sines, draws, generator)
            places = places.to(device)
            noise = noise.unflatten(2, (2, sines)).transpose(2, 3).contiguous()
        else:
            noise = torch.randn((heads, features, sines, 2, draws), generator=generator)
        gates = torch.randn((self.num_layers, heads, features, draws), generator=generator)
        return SineNoise(noise.to(device), gates.to(device), places)

    def covariance(self, lags: Tensor) -> Float[Tensor, "*layers h d o"]:
        """See `StochasticEncoding.covariance` (Liutkus et al., 2021, equation 10).

        Includes the factor 1/2K, as the published code does; `lags` are (o,).
        """
        check_type("lags", lags, Tensor)
        frequencies, gains = self._frequencies(), functional.softplus(self.gains.double())
        angles = (
            2 * math.pi * frequencies[..., None] * lags.double() + self.offsets.double()[..., None]
        )
        return (gains.square()[..., None] * angles.cos()).sum(-2) / (2 * self.config.num_sines)

    def codes_at(
        self, positions: Tensor, state: SineNoise
    ) -> tuple[SineCodes | SparseCodes, SineNoise]:
        """Return the codes of `positions` (1 or b, l, p); axes beyond the first are ignored.

        Phases are reduced to one turn in float64, so that position 10^6 is as exact as position 0.
        """
        sizes = state.gates.shape[:1], state.sines.shape[:3]
        check_state(sizes, ((self.num_layers,), self.frequencies.shape[-3:]))
        positions = positions[..., :1]
        if positions.shape[0] > 1 and positions.shape[1] == 1:
            # handle as one row, since a code does not depend on other positions
            return self._of_one_row(positions.transpose(0, 1), state, by_row=True)
        return super().codes_at(positions, state)

    def codes_of_row(
        self, positions: Tensor, state: SineNoise
    ) -> tuple[SineCodes | SparseCodes, SineNoise]:
        """Return the codes of `positions` (1, l, 1)."""
        if state.places is None:
            return self._of_one_row(positions, state, by_row=False)
        return self._sparse_codes(positions, state, state.places), state

    def _sparse_codes(self, positions: Tensor, state: SineNoise, places: Tensor) -> SparseCodes:
        """Return the codes of `positions` (1, l, 1) with sparse noise."""
        sources = sparse_noise.FeaturePlaces(places, state.sines.transpose(2, 3).flatten(2, 3))
        starts, offsets = _split_blocks(positions[0, :, 0].double(), BLOCK)
        length = positions.shape[1]
        gains = self._gains(state.sines)
        by_side: list[list[Tensor]] = []  # codes of each layer for queries, and for keys
        for shift in (self._shift(), None):
            cos, sin = (part.to(gains)[:, None] for part in self._cos_sin(starts, shift))
            near_cos, near_sin = (part.to(gains) for part in self._cos_sin(offsets))
            turned = near_cos * cos - near_sin * sin, near_sin * cos + near_cos * sin
            waves = torch.cat([part * gains for part in turned], -1).flatten(0, 1)[:length]
            by_side.append([sources.weigh(wave) for wave in waves.split(len(places), 1)])
        codes = [
            SparseCodes(queries, keys, sources.features, state.gates)
            for queries, keys in zip(*by_side, strict=True)
        ]
        return codes[0]._replace(by_layer=() if self.config.shared_by_layers else tuple(codes))

    def _of_one_row(
        self, positions: Tensor, state: SineNoise, *, by_row: bool
    ) -> tuple[SineCodes, SineNoise]:
        """Return the codes of `positions` (1, l, 1), shared by all rows.

        With `by_row`, they are those of l rows that have one position each.
        """
        length = positions.shape[1]
        if length == 1:
            return self._of_one_position(positions[0, :, 0].double(), state), state
        factors = self._factors(positions, state, from_zero=by_row)
        _, all_heads, features, _, draws = factors.query_noise.shape
        code_bytes = 2 * length * all_heads * features * draws * factors.query_noise.element_size()
        # up to here, the heads of all layers are concatenated
        heads = state.sines.shape[0]
        parts = factors.split(heads)
        products: Sequence[SineProducts | None] = [None] * len(parts)
        if code_bytes <= SHARED_CODE_BYTES:
            products = factors.products(length).split(heads)
        layers = tuple(
            SineCodes(part, product, state.gates, length, by_row=by_row)
            for part, product in zip(parts, products, strict=True)
        )
        return layers[0]._replace(by_layer=() if self.config.shared_by_layers else layers), state

    def _of_one_position(self, place: Tensor, state: SineNoise) -> SineCodes:
        """Return the codes of one place (1,), float64: of every layer, with its gates if any.

        The noise is not turned, and one product and one mixture serve all layers.
        """
        turns = [torch.stack(self._cos_sin(place, shift), -1) for shift in (self._shift(), None)]
        gains = self._gains(state.sines)
        waves = (torch.cat(turns).to(gains) * gains[..., None]).flatten(-2)  # (2, n h, d, 2k)
        noise = state.sines.to(gains).flatten(2, 3)  # (h, d, 2k, r)
        pairs = waves.permute(1, 2, 0, 3).unflatten(0, (-1, len(noise))) @ noise  # (n, h, d, 2, r)
        if self.gates is not None:
            through, constant = mixture(self.gates, state.gates)
            pairs = pairs * through[..., None, None] + constant[..., None, :]
        layers = tuple(
            SineCodes(None, SineProducts(queries[None], keys[None]), state.gates, length=1)
            for queries, keys in (pair.unbind(2) for pair in pairs)
        )
        return layers[0]._replace(by_layer=layers, has_gates=True)

    def factors(self, positions: Tensor, state: SineNoise) -> SineFactors:
        """See `QueryKeyEncoding.factors`."""
        return self._factors(positions, state)

    def _factors(
        self, positions: Tensor, state: SineNoise, *, from_zero: bool = False
    ) -> SineFactors:
        """Return factors of the codes of `positions` (1, l, 1), for the heads of all layers.

        Phases are counted from the start of each block or, with `from_zero`, from position 0 in a
        single block.
        """
        place = positions[0, :, 0].double()
        if from_zero:
            starts, offsets = torch.zeros_like(place[:1]), place[None]
        else:
            starts, offsets = _split_blocks(place, BLOCK)
        waves = torch.cat(self._cos_sin(offsets), -1).to(self._code_dtype())
        query_noise = self._turn_noise(self._cos_sin(starts, self._shift()), state.sines)
        key_noise = self._turn_noise(self._cos_sin(starts), state.sines)
        return SineFactors(waves, query_noise, key_noise)

    def encode(
        self, q: Tensor, k: Tensor, codes: SineCodes | SparseCodes, layer: int
    ) -> tuple[Tensor, Tensor]:
        """See `StochasticEncoding.encode`; one position per row is handled as a single row."""
        if isinstance(codes, SineCodes) and codes.has_gates:
            check_layer(layer, self.num_layers)
            for x in (q, k):
                check_codes(codes, SineCodes, lambda codes: codes.length, x)
            return self.project(q, k, codes.by_layer[min(layer, len(codes.by_layer) - 1)])
        if not (isinstance(codes, SineCodes) and codes.by_row):
            return super().encode(q, k, codes, layer)
        q, k = super().encode(q.transpose(0, 1), k.transpose(0, 1), codes, layer)
        return q.transpose(0, 1), k.transpose(0, 1)

    def project(
        self, q: Tensor, k: Tensor, codes: SineCodes | SparseCodes
    ) -> tuple[Tensor, Tensor]:
        """See `StochasticEncoding.project`."""
        if isinstance(codes, SparseCodes):
            return (
                sparse_noise.project(q, codes.queries, codes.features),
                sparse_noise.project(k, codes.keys, codes.features),
            )
        if codes.products is not None:
            return _multiply(q, codes.products.queries), _multiply(k, codes.products.keys)
        assert codes.factors is not None
        waves, query_noise, key_noise = codes.factors
        # with autocast, q and k may be narrower than the noise
        return (
            apply(FusedProjection, q.to(query_noise.dtype), waves, query_noise),
            apply(FusedProjection, k.to(key_noise.dtype), waves, key_noise),
        )

    def _code_dtype(self) -> torch.dtype:
        """Return the dtype of the parameters, but at least float32."""
        return torch.promote_types(self.frequencies.dtype, torch.float32)

    def _frequencies(self) -> Tensor:
        """Return cycles per position, float64, in the shape of the parameters."""
        return torch.sigmoid(self.frequencies.double()) / 2

    def _shift(self) -> Tensor:
        """Return the offsets of the queries in turns, float64."""
        return self.offsets.double() / (2 * math.pi)

    def _gains(self, noise: Tensor) -> Tensor:
        """Return gains (h, d, k) that give the codes the scale of `StochasticEncoding`.

        h counts the heads of all sets of parameters; `noise` is (h, d, k, 2, r).
        """
        features, sines, draws = noise.shape[1], noise.shape[2], noise.shape[-1]
        scale = (draws * features) ** -0.25 / math.sqrt(2 * sines)
        return (functional.softplus(self.gains.to(self._code_dtype())) * scale).flatten(0, -3)

    def _cos_sin(self, place: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return cosine and sine (..., h, d, k), float64, at `place` (...); `shift` in turns.

        h counts the heads of all sets of parameters.
        """
        turns = place[..., None, None, None] * self._frequencies().flatten(0, -3)
        if shift is not None:
            turns = turns + shift.flatten(0, -3)
        angles = 2 * math.pi * (turns - turns.detach().floor())
        return angles.cos(), angles.sin()

    def _turn_noise(self, cos_sin: tuple[Tensor, Tensor], noise: Tensor) -> Tensor:
        """Return the noise (n, h, d, 2k, r) whose product with the waves of a block is its codes.

        h counts the heads of all sets of parameters, which share `noise` (h, d, k, 2, r).
        """
        gains = self._gains(noise)
        if len(gains) > len(noise):
            noise = noise.repeat(len(gains) // len(noise), 1, 1, 1, 1)
        cos, sin = ((part.to(gains) * gains)[..., None] for part in cos_sin)
        z_cos, z_sin = noise[..., 0, :], noise[..., 1, :]
        return torch.cat([cos * z_cos + sin * z_sin, cos * z_sin - sin * z_cos], -2)


def _split_blocks(place: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Split positions (l,), float64, into n blocks of c, at most `most`, the last one continued.

    Returns the starts of the blocks (n,), and the offsets in them (n, c), or (1, c) if they are
    equal.
    """
    length = place.shape[0]
    block = max(1, min(length, most))
    beyond = torch.arange(1, -length % block + 1, device=place.device)
    blocks = torch.cat([place, place[-1:] + beyond]).view(-1, block)
    starts = blocks[:, 0]
    offsets = blocks - starts[:, None]
    if len(blocks) > 1 and bool((offsets == offsets[:1]).all()):
        offsets = offsets[:1]
    return starts, offsets


def codes_of(waves: Tensor, noise: Tensor) -> Tensor:
    """Return the codes (n * c, h, d, r) of all positions of all blocks."""
    codes = waves.permute(0, 2, 3, 1, 4) @ noise  # (n, h, d, c, r)
    return codes.permute(0, 3, 1, 2, 4).flatten(0, 1)


def _multiply(x: Tensor, codes: Tensor) -> Tensor:
    """Sum over features of x (b, l, h, d) times codes (l, h, d, r): (b, l, h, r)."""
    return torch.einsum("blhd,lhdr->blhr", x.to(codes), codes)
