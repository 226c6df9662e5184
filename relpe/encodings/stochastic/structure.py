"""Stochastic positional encoding of places in a structure: sums and products of kernels on axes.

Sine SPE (Liutkus et al., 2021) has one axis, time. Here a position is a vector of places, such as
time, bar, place in the bar, chord and section, as in F-StrIPE (Agarwal, Wang & Richard, 2025), and
the expected product of the codes of a feature is

    P_d(m, n) = sum over terms t of the product over kernels a in t of P_dta(m, n)

    places:  P_dta = sum_k gain_dk^2 cos(2 pi f_dk (s_a(m) - s_a(n)) / unit + theta_dk) / 2K
    labels:  P_dta = weight_d^2 if s_a(m) = s_a(n), else 0

Codes of a sum are sums of independent processes, and those of a product are products of independent
processes, feature by feature and draw by draw. With one kernel of places on the axis of time, this
is sine SPE. The variance of a score q.k / sqrt(r) is that of sine SPE if no term is a product; each
product adds sum_d q_d^2 k_d^2 (M_d - V_d^2 - 2 P_d^2) / (r d), where V_d is P_d at equal positions
without offsets, and M_d the mean of the squared product of the codes of feature d.
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

from relpe.checks import Checked, at_least, check_state, positive
from relpe.encodings.stochastic.base import (
    StochasticEncoding,
    check_initial_gate,
    checked_draws,
    raw_gates,
)
from relpe.encodings.stochastic.sine import SineCodes, SineNoise, SineSPE, SineSPEConfig, codes_of
from relpe.encodings.stochastic.white_noise import white_noise
from relpe.transforms import kept_on_device


@dataclass(frozen=True, kw_only=True)
class PlacesKernel(Checked):
    """A sum of cosines of the difference of two places on an axis, as in sine SPE."""

    kind: Literal["places"] = "places"
    axis: int = 0
    """Axis of the positions that is read; places are integers or real numbers."""
    num_sines: int = 5
    """Number of sines per head and feature (k)."""
    unit: float = 1.0
    """Difference of places that counts as one. No sine has a period below two units, and most
    begin with about a hundred."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, axis=self.axis)
        at_least(1, num_sines=self.num_sines)
        positive(unit=self.unit)


@dataclass(frozen=True, kw_only=True)
class LabelsKernel(Checked):
    """A weight for two positions with the same label on an axis, and 0 for all others."""

    kind: Literal["labels"] = "labels"
    axis: int = 0
    """Axis of the positions that is read; labels are integers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, axis=self.axis)


Kernel = PlacesKernel | LabelsKernel


@dataclass(frozen=True, kw_only=True)
class StructureSPEConfig(Checked):
    """Stochastic encoding of places in a structure (after Agarwal et al., 2025)."""

    kind: Literal["structure_spe"] = "structure_spe"
    terms: tuple[tuple[Kernel, ...], ...] = ((PlacesKernel(),),)
    """Kernels that are multiplied, for each term of a sum. [[{axis: 0}], [{axis: 1}]] is relative
    in time and relative in bars; [[{axis: 0}, {kind: labels, axis: 2}]] is relative in time within
    positions of the same label. The codes of products and labels are computed for all positions of
    a call, which takes memory for (l, h, d, r)."""
    num_realizations: int = 64
    """Number of random codes (r), which is the number of features per head after encoding."""
    gated: bool = True
    """Give each feature of each layer a learned gate, with which it can ignore position."""
    initial_gate: float | None = None
    """Initial value of all gates; see `SineSPEConfig`."""
    shared_by_layers: bool = True
    """Use the same kernels and codes in all layers; see `SineSPEConfig`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, num_realizations=self.num_realizations)
        if not self.terms or not all(self.terms):
            raise ValueError(f"terms are {self.terms}, expected at least one kernel in each term")
        check_initial_gate(self.initial_gate, gated=self.gated)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> StructureSPE:
        """Return the module for a model of this shape, shared by its layers.

        Gates are always per layer.
        """
        return StructureSPE(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class LabelNoise(NamedTuple):
    """Noise of labels, which is drawn for each label from a seed of its own."""

    seed: Tensor  # () int64
    gates: Tensor  # (layers, h, d, r)


class LabelCodes(NamedTuple):
    """Codes of labels, for one set of weights; queries and keys have the same."""

    codes: Tensor  # (l, h, d, r)


class StructureNoise(NamedTuple):
    """Noise of one sequence."""

    factors: tuple[SineNoise | LabelNoise, ...]  # in the order of the kernels of all terms

    @property
    def gates(self) -> Tensor:
        """Noise of the gates, (layers, h, d, r): that of the first kernel, as in sine SPE."""
        return self.factors[0].gates


class StructureCodes(NamedTuple):
    """Codes of a call's positions, for all layers or for one."""

    factors: tuple[SineCodes | LabelCodes, ...]
    gates: Tensor  # (layers, h, d, r)
    length: int  # number of positions (l)
    by_layer: tuple[StructureCodes, ...] = ()  # codes of each layer, if they differ
    rows: tuple[StructureCodes, ...] = ()  # always empty, see the next field
    by_row: tuple[bool, ...] = ()  # for each kernel, whether its codes are of the places of all
    # rows, one row after another, or of places that rows share


class LabelSPE(nn.Module):
    """Independent noise for each label; parameter: raw weights (h, d), or (layers, h, d).

    A weight is softplus of the raw one. The noise of a label is a function of the seed and the
    label, so that any number of labels may come in any order.
    """

    def __init__(self, num_sets: int | None, num_layers: int, heads: tuple[int, int]) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.weights = nn.Parameter(torch.randn(*(() if num_sets is None else (num_sets,)), *heads))

    def init_state(self, seed: int, device: torch.device, draws: int) -> LabelNoise:
        """Return the noise for `seed`."""
        shape = (self.num_layers, *self.weights.shape[-2:], draws)
        gates = white_noise("normal", shape, seed).to(device)
        return LabelNoise(torch.tensor(seed, device=device), gates)

    def covariance(self, lags: Tensor) -> Float[Tensor, "*layers h d o"]:
        """Return the exact expected product of codes whose labels differ by `lags` (o,)."""
        return functional.softplus(self.weights.double()).square()[..., None] * (lags == 0)

    def codes_at(self, labels: Tensor, noise: LabelNoise) -> list[LabelCodes]:
        """Return the codes of `labels` (l,) for each set of weights.

        Raises:
            ValueError: a label is not an integer.
        """
        whole = labels.long()
        if labels.is_floating_point() and not bool((whole == labels).all()):
            raise ValueError("some labels of positions are not integers, expected whole numbers")
        known, index = whole.unique(return_inverse=True)
        heads, features, draws = noise.gates.shape[1:]
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        weights = functional.softplus(weights) * (draws * features) ** -0.25
        seed, device = int(noise.seed), labels.device
        drawn = [
            noise_of_label((heads, features, draws), seed, label, device)
            for label in known.tolist()
        ]
        table = torch.stack(drawn) if drawn else noise.gates.new_zeros(0, heads, features, draws)
        table = table.to(weights)
        sets = weights[None] if weights.ndim == 2 else weights
        return [LabelCodes((table * one[..., None])[index]) for one in sets]


@kept_on_device
def noise_of_label(
    shape: tuple[int, ...], seed: int, label: int, device: torch.device
) -> Float[Tensor, "h d r"]:
    """Return normal noise that depends only on the arguments; labels count modulo 2^32."""
    return white_noise("normal", shape, seed, (label,)).to(device)


class StructureSPE(StochasticEncoding[StructureCodes, StructureNoise]):
    """See `StructureSPEConfig`; parameters: those of the kernels, in `processes`, and raw gates."""

    state_type = StructureNoise
    codes_type = StructureCodes
    codes_by_position = False
    rows_by_position = False

    def __init__(
        self, config: StructureSPEConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        super().__init__()
        self.config, self.num_layers = config, num_layers
        self.heads, self.out_features = (num_heads, head_dim), config.num_realizations
        self.kernels = [kernel for term in config.terms for kernel in term]
        self.num_axes = 1 + max(kernel.axis for kernel in self.kernels)
        sets = None if config.shared_by_layers else num_layers
        self.processes = nn.ModuleList()
        for kernel in self.kernels:
            if isinstance(kernel, LabelsKernel):
                self.processes.append(LabelSPE(sets, num_layers, (num_heads, head_dim)))
                continue
            sines = SineSPEConfig(
                num_sines=kernel.num_sines,
                num_realizations=config.num_realizations,
                gated=False,
                shared_by_layers=config.shared_by_layers,
            )
            self.processes.append(
                sines.build(num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)
            )
        # a block of codes has places that follow each other on one axis, which pays with no other
        self.codes_by_position = self.num_axes == 1
        self.rows_by_position = not any(isinstance(one, LabelSPE) for one in self.processes)
        self.shape = (num_layers, num_heads, head_dim)
        self.gates = raw_gates(self.shape, config.initial_gate) if config.gated else None

    def init_state(
        self, seed: int, device: torch.device, num_realizations: int | None = None
    ) -> StructureNoise:
        """See `StochasticEncoding.init_state`; with one kernel of places, as in sine SPE."""
        draws = checked_draws(self.config.num_realizations, num_realizations)
        seeds = [
            (seed + index * 0x9E3779B97F4A7C15) % 2**63 for index in range(len(self.processes))
        ]
        seeds[0] = seed
        return StructureNoise(
            tuple(
                one.init_state(own, device, draws)  # pyright: ignore[reportCallIssue]
                for one, own in zip(self.processes, seeds, strict=True)
            )
        )

    def covariance(self, lags: Tensor) -> Float[Tensor, "*layers h d o"]:
        """See `StochasticEncoding.covariance`; `lags` are (o, p), or (o,) with one axis."""
        lags = lags.double().view(len(lags), -1)
        total = torch.zeros((), dtype=torch.float64, device=lags.device)
        for numbers in self._terms():
            product = torch.ones((), dtype=torch.float64, device=lags.device)
            for number in numbers:
                product = product * self._factor(number).covariance(self._places(lags, number))
            total = total + product
        return total

    def codes_at(
        self, positions: Tensor, state: StructureNoise
    ) -> tuple[StructureCodes, StructureNoise]:
        """Return the codes of `positions` (1 or b, l, p); axes that no kernel reads are ignored.

        If rows have places of their own on an axis, these are computed as those of one long row.
        """
        sizes = [one.gates.shape[:3] for one in state.factors]
        check_state(sizes, [self.shape] * len(self.processes))
        rows, length = positions.shape[:2]
        sets: list[list[SineCodes | LabelCodes]] = []
        by_row: list[bool] = []
        for number, noise in enumerate(state.factors):
            factor, places = self._factor(number), self._places(positions, number)
            alike = rows == 1 or (length > 1 and bool((places == places[:1]).all()))
            places = places[0] if alike else places.flatten()
            by_row.append(not alike)
            if isinstance(factor, LabelSPE):
                assert isinstance(noise, LabelNoise)
                sets.append([*factor.codes_at(places, noise)])
                continue
            assert isinstance(noise, SineNoise)
            codes, _ = factor.codes_of_row(places[None, :, None], noise)
            assert isinstance(codes, SineCodes)
            sets.append([*codes.by_layer] or [codes])
        layers = [
            StructureCodes(factors, state.gates, length, by_row=tuple(by_row))
            for factors in zip(*sets, strict=True)
        ]
        by_layer = () if self.config.shared_by_layers else tuple(layers)
        return layers[0]._replace(by_layer=by_layer), state

    def codes_of_row(
        self, positions: Tensor, state: StructureNoise
    ) -> tuple[StructureCodes, StructureNoise]:
        """Return the codes of `positions` (1, l, p)."""
        return self.codes_at(positions, state)

    def project(self, q: Tensor, k: Tensor, codes: StructureCodes) -> tuple[Tensor, Tensor]:
        """See `StochasticEncoding.project`: the sum of the projections by all terms."""
        queries, keys = zip(*(self._project(q, k, codes, n) for n in self._terms()), strict=True)
        return torch.stack(queries).sum(0), torch.stack(keys).sum(0)

    def _project(
        self, q: Tensor, k: Tensor, codes: StructureCodes, numbers: range
    ) -> tuple[Tensor, Tensor]:
        """Return the projections by the kernels with these numbers, which are multiplied."""
        rows = q.shape[:2]
        joined = any(codes.by_row[number] for number in numbers)
        if joined:
            q, k = q.flatten(0, 1)[None], k.flatten(0, 1)[None]
        first, factor = codes.factors[numbers[0]], self._factor(numbers[0])
        if len(numbers) == 1 and isinstance(first, SineCodes):
            assert isinstance(factor, SineSPE)
            queries, keys = factor.project(q, k, first)
        else:
            # each of the kernels has the scale of the product
            features, draws = codes.gates.shape[-2:]
            scale = (draws * features) ** ((len(numbers) - 1) / 4)
            products = [
                _product(codes, numbers, rows if joined else (1, rows[1]), queries=queries)
                for queries in (True, False)
            ]
            queries, keys = (
                torch.einsum("blhd,lhdr->blhr", x.to(product), product) * scale
                for x, product in zip((q, k), products, strict=True)
            )
        if joined:
            return queries[0].unflatten(0, rows), keys[0].unflatten(0, rows)
        return queries, keys

    def _terms(self) -> list[range]:
        """Return the numbers of the kernels of each term."""
        terms, start = [], 0
        for term in self.config.terms:
            terms.append(range(start, start + len(term)))
            start += len(term)
        return terms

    def _factor(self, number: int) -> SineSPE | LabelSPE:
        factor = self.processes[number]
        assert isinstance(factor, SineSPE | LabelSPE)
        return factor

    def _places(self, positions: Tensor, number: int) -> Tensor:
        """Return the places (...) of positions (..., p) that a kernel reads, in its unit."""
        kernel = self.kernels[number]
        places = positions[..., kernel.axis]
        return places if isinstance(kernel, LabelsKernel) else places.double() / kernel.unit


def _product(
    codes: StructureCodes, numbers: range, rows: Sequence[int], *, queries: bool
) -> Tensor:
    """Return the product (b * l, h, d, r) of the codes of kernels, for `rows` (b, l), joined."""
    factors: list[Tensor] = []
    for number in numbers:
        count, length = (1, rows[0] * rows[1]) if codes.by_row[number] else rows
        factors.append(
            _codes(codes.factors[number], length, queries=queries).repeat(count, 1, 1, 1)
        )
    return math.prod(factors[1:], start=factors[0])


def _codes(codes: SineCodes | LabelCodes, length: int, *, queries: bool) -> Tensor:
    """Return the codes (l, h, d, r) of queries or of keys."""
    if isinstance(codes, LabelCodes):
        return codes.codes
    if codes.products is not None:
        return codes.products.queries if queries else codes.products.keys
    assert codes.factors is not None
    waves, query_noise, key_noise = codes.factors
    return codes_of(waves, query_noise if queries else key_noise)[:length]
