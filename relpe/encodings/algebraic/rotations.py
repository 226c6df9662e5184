"""Lines, grids and cycles: maps that rotate planes of features by multiples of the position.

Every one-parameter group of rotations has the form p -> P R(p a) P^T. Hence learned generators of
abelian structures are rotary embedding with learned angles `a` (Kogkalidis, Bernardy & Garg, 2024).
The cost is linear in the features, and positions may be real, negative or large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from relpe.encodings.algebraic.spectra import (
    Spectrum,
    proper,
    skew_from_triangle,
    skew_of_spectrum,
    spectrum_of_orthogonal,
    triangle_from_skew,
)
from relpe.encodings.algebraic.structures import CycleStructure, Leaf
from relpe.transforms import kept_on_device

Initialization = Literal["rope", "original", "near_identity"]
NEAR_IDENTITY = 0.02
"""Standard deviation of small initial angles (radians per step) and entries of generators."""


class RotationCodes(NamedTuple):
    """Rotations of pairs of features, and the bases of blocks that have one."""

    turns: Tensor  # (layers or 1, b or 1, l, h or 1, i, 2): cosine and sine
    bases: tuple[Tensor, ...]  # (layers or 1, h or 1, d, d)

    @property
    def length(self) -> int:
        """Number of positions (l)."""
        return self.turns.shape[2]


class Numbers(NamedTuple):
    """Axis of each pair of a line, and axis, period and harmonic of each pair of a cycle."""

    line_axes: tuple[int, ...]
    cycle_axes: tuple[int, ...]
    periods: tuple[int, ...]
    harmonics: tuple[int, ...]
    order: tuple[int, ...]
    """Place of each pair of features among the pairs of lines, then of cycles."""


class NumberTensors(NamedTuple):
    """The same as int64 tensors on a device."""

    line_axes: Tensor
    cycle_axes: Tensor
    periods: Tensor
    harmonics: Tensor
    order: Tensor


class InitialGenerators(NamedTuple):
    """Number of sets of generators, and their initialisation."""

    layers: int
    heads: int
    initialization: Initialization
    base: float

    def angles(self, features: int) -> Float[Tensor, " i"]:
        """Return the angles (d/2,), float64, in radians per position.

        rope: base^(-2i/d), as in rotary embedding (Su et al., 2021). original: every second of
        these, each twice, as in the original code of algebraic encodings. near_identity: small.
        """
        pairs = torch.arange(features // 2, dtype=torch.float64)
        if self.initialization == "near_identity":
            return NEAR_IDENTITY * torch.randn(features // 2, dtype=torch.float64)
        if self.initialization == "original":
            pairs = 2 * (pairs // 2)
        return self.base ** (-2 * pairs / features)


class Rotations(nn.Module):
    """Blocks of features, each rotated by the positions on its axis.

    Parameters: `angles` (layers or 1, h or 1, pairs of lines), in radians per step (the angles of
    cycles are fixed), and `triangles`, the skew logarithm of the basis of each block.
    """

    def __init__(self, blocks: Sequence[Leaf], start: InitialGenerators, *, basis: bool) -> None:
        super().__init__()
        layers, heads = start.layers, start.heads
        self.blocks = tuple(blocks)
        self.out_features = sum(block.features for block in blocks)
        angles: list[Tensor] = [torch.zeros(layers, heads, 0, dtype=torch.float64)]
        line_axes: list[int] = []
        cycle_axes: list[int] = []
        periods: list[int] = []
        harmonics: list[int] = []
        cyclic: list[bool] = []
        for block in blocks:
            structure, pairs = block.structure, block.features // 2
            cyclic += [isinstance(structure, CycleStructure)] * pairs
            if isinstance(structure, CycleStructure):
                cycle_axes += [block.first_axis] * pairs
                periods += [structure.period] * pairs
                harmonics += _harmonics(structure, pairs)
            else:
                line_axes += [block.first_axis] * pairs
                sets = (layers, heads) if start.initialization == "near_identity" else (1, 1)
                drawn = [start.angles(block.features) for _ in range(math.prod(sets))]
                drawn = torch.stack(drawn).unflatten(0, sets)
                angles.append(drawn.expand(layers, heads, pairs))
        self.angles = nn.Parameter(torch.cat(angles, -1).to(torch.get_default_dtype()))
        lines_first = sorted(range(len(cyclic)), key=cyclic.__getitem__)
        # from the order of lines, then cycles, to the order of features
        order = sorted(range(len(cyclic)), key=lines_first.__getitem__)
        self._numbers = Numbers(*map(tuple, (line_axes, cycle_axes, periods, harmonics, order)))
        self.triangles = nn.ParameterList(
            nn.Parameter(torch.zeros(layers, heads, block.features * (block.features - 1) // 2))
            for block in (blocks if basis else ())
        )

    def prepare(self, positions: Shaped[Tensor, "b l p"]) -> RotationCodes:
        """Return the rotations at `positions`, reduced to one turn in float64.

        Angles are as exact at position 10^6 as at 0, and the maps of a cycle repeat bit for bit.
        """
        places, numbers = positions.double(), _on(self._numbers, positions.device)
        steps = self.angles.double()[:, :, None, None] / (2 * math.pi)  # (layers, h, 1, 1, i)
        turns = places[..., numbers.line_axes] * steps
        if self._numbers.periods:
            # products of integers below the period, and their remainders, are exact
            periods = numbers.periods
            rest = torch.remainder(places[..., numbers.cycle_axes], periods) * numbers.harmonics
            cycles = torch.remainder(rest, periods) / periods
            turns = torch.cat([turns, cycles.expand(*turns.shape[:-1], -1)], -1)
            turns = turns[..., numbers.order]
        # at least float32, since the 8 bits of bfloat16 weights are too few for an angle
        turns = turns - turns.detach().round()
        turns = turns.to(torch.promote_types(self.angles.dtype, torch.float32))
        phases = (2 * math.pi * turns).permute(0, 2, 3, 1, 4)
        bases = (
            torch.matrix_exp(skew_from_triangle(triangle.double(), block.features)).to(phases)
            for triangle, block in zip(self.triangles, self.blocks, strict=False)
        )
        return RotationCodes(torch.stack([phases.cos(), phases.sin()], -1), tuple(bases))

    def forward(
        self, x: Float[Tensor, "b l h d"], codes: RotationCodes, layer: int
    ) -> Float[Tensor, "b l h d"]:
        """Return the features x, each pair rotated by the angle at its position."""
        turns = _of_layer(codes.turns, layer)
        bases = [_of_layer(basis, layer) for basis in codes.bases]
        x = x.to(turns.dtype)
        if bases:
            x = _change_basis(x, [basis.mT for basis in bases])
        x = _turned(x.unflatten(-1, (-1, 2)), turns).flatten(-2)
        return _change_basis(x, bases) if bases else x

    def spectra(self) -> list[Spectrum]:
        """Return the planes and angles of each block, float64: bases (layers or 1, h or 1, d, d).

        If the projections of queries and keys absorb the basis, what remains is RoPE.
        """
        numbers = _on(self._numbers, self.angles.device)
        turning = 2 * math.pi * numbers.harmonics.double() / numbers.periods
        turning = turning.expand(*self.angles.shape[:2], -1)
        all_angles = torch.cat([self.angles.double(), turning], -1)[..., numbers.order]
        sizes = [block.features for block in self.blocks]
        spectra = []
        for index, angles in enumerate(all_angles.split([size // 2 for size in sizes], -1)):
            if self.triangles:
                skew = skew_from_triangle(self.triangles[index].double(), sizes[index])
                spectra.append(Spectrum(torch.matrix_exp(skew), angles))
            else:
                eye = torch.eye(sizes[index], dtype=torch.float64, device=angles.device)
                spectra.append(Spectrum(eye.expand(*angles.shape[:2], -1, -1), angles))
        return spectra

    @torch.no_grad()
    def load(self, spectra: Sequence[Spectrum]) -> None:
        """Load planes and angles of every block; the angles of cycles do not change.

        Raises:
            ValueError: planes are not pairs of adjacent features, and there is no basis.
        """
        first = 0
        for index, (block, spectrum) in enumerate(zip(self.blocks, spectra, strict=True)):
            basis, angles = proper(Spectrum(spectrum.basis.double(), spectrum.angles.double()))
            if self.triangles:
                logarithm = skew_of_spectrum(spectrum_of_orthogonal(basis))
                self.triangles[index].copy_(triangle_from_skew(logarithm))
            elif not torch.equal(basis, torch.eye(block.features).to(basis).expand_as(basis)):
                raise ValueError(
                    "the planes are not pairs of adjacent features; build the encoding with "
                    "basis = true, or absorb the basis into the projections of queries and keys"
                )
            if not isinstance(block.structure, CycleStructure):
                self.angles[..., first : first + block.features // 2] = angles.to(self.angles)
                first += block.features // 2


@kept_on_device
def _on(numbers: Numbers, device: torch.device) -> NumberTensors:
    """Return the numbers as tensors, cached because a CUDA graph cannot copy from the host.

    They are no buffers, since these would be lost when a module is built on the meta device.
    """
    return NumberTensors(*(torch.tensor(x, dtype=torch.int64, device=device) for x in numbers))


def _of_layer(x: Tensor, layer: int) -> Tensor:
    """Return the values of a layer, from x (layers or 1, ...)."""
    return x[0 if len(x) == 1 else layer]


def _turned(pairs: Tensor, turns: Tensor) -> Tensor:
    """Return the pairs (..., 2) rotated by cosine and sine (..., 2)."""
    if (
        torch.compiler.is_compiling()
    ):  # compiled gradients of complex numbers are wrong (torch 2.13)
        (a, b), (cos, sin) = pairs.unbind(-1), turns.unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    product = torch.view_as_complex(pairs.contiguous()) * torch.view_as_complex(turns)
    return torch.view_as_real(product)


def _harmonics(cycle: CycleStructure, pairs: int) -> list[int]:
    """Return the number of turns of each pair within a period."""
    if cycle.harmonics is not None:
        if not cycle.harmonics:
            raise ValueError("harmonics of a cycle are empty, expected at least one, or None")
        return [cycle.harmonics[pair % len(cycle.harmonics)] for pair in range(pairs)]
    half = cycle.period // 2
    return [1 + pair % half if half else 0 for pair in range(pairs)]


def _change_basis(x: Tensor, bases: list[Tensor]) -> Tensor:
    """Multiply consecutive blocks of x (b, l, h, d) by their matrices (h or 1, d, d)."""
    blocks = x.split([basis.shape[-1] for basis in bases], -1)
    return torch.cat(
        [
            torch.einsum("hde,blhe->blhd", basis.expand(x.shape[2], -1, -1), block)
            for block, basis in zip(blocks, bases, strict=True)
        ],
        -1,
    )
