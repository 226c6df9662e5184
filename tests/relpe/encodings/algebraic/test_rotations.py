from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.algebraic.encoding import Algebraic, AlgebraicConfig
from relpe.encodings.algebraic.rotations import InitialGenerators
from relpe.encodings.algebraic.spectra import (
    Spectrum,
    absorb,
    matrices,
    proper,
    skew_from_triangle,
    skew_of_spectrum,
    spectrum_of_halves,
    spectrum_of_orthogonal,
    spectrum_of_skew,
    triangle_from_skew,
)
from relpe.encodings.algebraic.structures import (
    CycleStructure,
    DirectSum,
    GridStructure,
    SequenceStructure,
    Structure,
)
from relpe.encodings.rope import RopeConfig
from tests.support import reference_algebraic as reference
from tests.support.compared import compare_with_gradients
from tests.support.golden_algebraic import KINDS, close, golden, scores

START = ()


def built(
    structure: Structure, features: int, *, heads: int = 2, dtype: torch.dtype = torch.float64, **kw
) -> Algebraic:
    config = AlgebraicConfig(structure=structure, **kw)
    return config.build(num_layers=1, num_heads=heads, head_dim=features).to(dtype)


def imported(skews: list[torch.Tensor], structure: Structure, dtype: torch.dtype) -> Algebraic:
    """An encoding with the generators exp(S), S (h, d, d) for each block."""
    features = sum(skew.shape[-1] for skew in skews)
    encoding = built(structure, features, heads=len(skews[0]), dtype=dtype, basis=True)
    rotations = rotations_of(encoding)
    rotations.load([spectrum_of_skew(skew) for skew in skews])
    return encoding


def mapped(encoding: Algebraic, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """x (b, l, d, h) in the layout of golden files, rotated for positions (l,) or (l, p)."""
    codes, _ = encoding.prepare(positions.view(1, len(positions), -1), START)
    return encoding.rotate_features(x.transpose(2, 3), codes, 0).transpose(2, 3)


def dense(encoding: Algebraic, positions: torch.Tensor) -> torch.Tensor:
    """Maps (l, h, d, d) at positions (l, p), found by applying them to unit vectors."""
    features, heads = encoding.out_features, encoding.num_heads
    eye = torch.eye(features, dtype=next(encoding.parameters()).dtype)
    x = eye[:, None, None].expand(features, len(positions), heads, features)
    codes, _ = encoding.prepare(positions[None], START)
    return encoding.rotate_features(x, codes, 0).permute(1, 2, 3, 0)


def rotations_of(encoding: Algebraic) -> Any:
    (rotations,) = encoding.parts
    return rotations


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def sequence(kind: str) -> Algebraic:
    return imported([golden(f"seq/skew/{kind}")], SequenceStructure(), KINDS[kind])


def test_maps_of_real_positions_are_matrix_exponentials(kind: str) -> None:
    encoding = imported([golden("seq/skew/f64")], SequenceStructure(), torch.float64)
    wanted = golden("ext/real_maps/f64")
    if kind == "f64":
        close(dense(encoding, golden("ext/real_positions")[:, None]), wanted, 1e-8)
        return
    # the same angles, exact in float32, so that only the phases differ
    encoding.to(torch.float32)
    made = dense(encoding, golden("ext/real_positions")[:, None])
    encoding.to(torch.float64)
    close(made, dense(encoding, golden("ext/real_positions")[:, None]), 1e-5)


def test_scores_of_a_sequence_match_the_original(kind: str) -> None:
    tolerance = {"f64": 1e-11, "f32": 1e-4}[kind]
    encoding = sequence(kind)
    q, k = golden(f"seq/q/{kind}"), golden(f"seq/k/{kind}")
    at_q, at_k = golden("seq/q_positions"), golden("seq/k_positions")
    turned_q, turned_k = mapped(encoding, q, at_q), mapped(encoding, k, at_k)
    close(turned_q, golden("seq/q_mapped/f64"), tolerance)
    close(turned_k, golden("seq/k_mapped/f64"), tolerance)
    close(scores(turned_q, turned_k), golden("seq/scores/f64"), tolerance)
    close(scores(turned_q, k), golden("seq/scores_query_only/f64"), tolerance)


def test_a_grid_matches_the_original(kind: str) -> None:
    skew = golden(f"grid/base/{kind}")
    skew = skew - skew.mT
    encoding = imported(list(skew), GridStructure(num_axes=2), KINDS[kind])
    maps, tolerance = golden("grid/axis_maps/f64"), {"f64": 1e-12, "f32": 5e-6}[kind]
    made = dense(encoding, torch.arange(7)[:, None].expand(-1, 2))
    for axis, part in enumerate((slice(0, 4), slice(4, 8))):
        close(made[..., part, part], maps[:, axis], tolerance)
        assert not made[..., part, slice(4 - part.start, 8 - part.start)].any()
    tolerance = {"f64": 1e-11, "f32": 1e-4}[kind]
    for name, at_q, at_k in (("", "coords", "coords"), ("x", "xq_coords", "xk_coords")):
        q, k = golden(f"grid/{name}q/{kind}"), golden(f"grid/{name}k/{kind}")
        q, k = (
            mapped(encoding, q, golden(f"grid/{at_q}")),
            mapped(encoding, k, golden(f"grid/{at_k}")),
        )
        close(scores(q, k), golden(f"grid/{name}scores/f64"), tolerance)


@pytest.mark.parametrize("converted", [False, True])
def test_rotary_embedding_is_a_sequence_with_its_angles(kind: str, converted: bool) -> None:
    angles = golden("rope/thetas/f64")
    spectrum = Spectrum(torch.eye(8, dtype=torch.float64), angles)
    if converted:
        skew = golden("rope/equivalent_base/f64")
        close(skew_of_spectrum(spectrum), skew - skew.mT, 1e-7)  # the base is rounded
        spectrum = spectrum_of_skew(skew_of_spectrum(spectrum))
        close(spectrum.angles, angles, 1e-12)
    encoding = built(SequenceStructure(), 8, dtype=KINDS[kind], basis=converted)
    rotations_of(encoding).load([spectrum])
    tolerance, places = {"f64": 1e-11, "f32": 1e-4}[kind], torch.arange(12)
    q, k = (mapped(encoding, golden(f"seq/self_{name}/{kind}"), places) for name in "qk")
    close(q, golden("rope/q_mapped/f64"), tolerance)
    close(k, golden("rope/k_mapped/f64"), tolerance)
    close(scores(q, k), golden("rope/scores/f64"), tolerance)
    close(scores(q, k), golden("rope/scores_via_maps/f64"), max(tolerance, 1e-6))


def test_initial_angles_match_rotary_embedding_or_the_original() -> None:
    close(InitialGenerators(1, 1, "rope", 10_000.0).angles(8), golden("rope/thetas/f64"), 1e-7)
    original = InitialGenerators(1, 1, "original", 10_000.0).angles(64)
    assert len(original.unique()) == 16
    close(original[::2], original[1::2], 0)
    close(original.amin(), torch.tensor(10_000 ** (-30 / 32)), 1e-12)
    near = rotations_of(built(SequenceStructure(), 64, initialization="near_identity")).angles
    assert 0 < near.abs().amax() < 0.15
    assert not torch.equal(near[0, 0], near[0, 1])


@st.composite
def spectra(draw: st.DrawFn) -> Spectrum:
    """Planes with angles that are often equal, zero or half turns."""
    pairs = draw(st.integers(1, 6))
    angle = st.sampled_from([0.0, math.pi, 1.0, 0.3, 1e-4, math.pi / 2]) | st.floats(0, math.pi)
    angles = torch.tensor(
        draw(st.lists(angle, min_size=pairs, max_size=pairs)), dtype=torch.float64
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    matrix = torch.randn(2 * pairs, 2 * pairs, generator=generator, dtype=torch.float64)
    return Spectrum(torch.linalg.qr(matrix).Q, angles)


@given(spectrum=spectra())
def test_generators_are_decomposed_and_composed_again(spectrum: Spectrum) -> None:
    skew = skew_of_spectrum(spectrum)
    features = len(skew)
    eye = torch.eye(features, dtype=torch.float64)
    found = spectrum_of_skew(skew)
    close(found.basis.mT @ found.basis, eye, 1e-12)
    close(found.angles, spectrum.angles.sort(descending=True).values, 1e-9)
    close(skew_of_spectrum(found), skew, 1e-9)
    rotation = torch.matrix_exp(skew)
    close(rotation, matrices(spectrum, torch.ones(1, dtype=torch.float64))[0], 1e-12)
    found = spectrum_of_orthogonal(rotation)
    close(found.basis.mT @ found.basis, eye, 1e-12)
    close(found.angles, spectrum.angles.sort(descending=True).values, 1e-7)
    close(matrices(found, torch.ones(1, dtype=torch.float64))[0], rotation, 1e-9)
    turned = proper(found)
    assert torch.linalg.det(turned.basis) > 0
    close(skew_of_spectrum(turned), skew_of_spectrum(found), 1e-12)
    close(skew_from_triangle(triangle_from_skew(skew), features), skew, 0)


def test_a_large_rotation_is_decomposed() -> None:
    rotation = torch.matrix_exp(skew_from_triangle(torch.randn(3, 2016).double(), 64))
    found = spectrum_of_orthogonal(rotation)
    close(matrices(found, torch.ones(1).double())[0], rotation, 1e-9)
    close(matrices(found, torch.full((1,), 3.0).double())[0], rotation @ rotation @ rotation, 1e-8)
    rounded = spectrum_of_orthogonal(rotation.float())
    close(matrices(rounded, torch.ones(1).double())[0], rotation, 1e-5)


def test_matrices_other_than_rotations_are_refused() -> None:
    reflection = torch.diag(torch.tensor([-1.0, 1, 1, 1]))
    with pytest.raises(ValueError, match="reflection"):
        spectrum_of_orthogonal(reflection)
    with pytest.raises(ValueError, match="not orthogonal"):
        spectrum_of_orthogonal(2 * torch.eye(4))
    with pytest.raises(ValueError, match="not skew"):
        spectrum_of_skew(torch.eye(4))
    with pytest.raises(ValueError, match="even"):
        spectrum_of_skew(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="basis = true"):
        rotations_of(built(SequenceStructure(), 8)).load([spectrum_of_skew(golden("seq/skew/f64"))])
    half_turn = spectrum_of_orthogonal(torch.diag(torch.tensor([-1.0, 1, -1, 1])))
    close(half_turn.angles, torch.tensor([math.pi, 0.0], dtype=torch.float64), 0)


def test_projections_can_absorb_the_basis() -> None:
    encoding = imported([golden("seq/skew/f64")], SequenceStructure(), torch.float64)
    (spectrum,) = rotations_of(encoding).spectra()
    basis, angles = spectrum.basis[0], spectrum.angles[0]
    weights, x = torch.randn(2, 16, 5).double(), torch.randn(1, 7, 5).double()
    codes, _ = encoding.prepare(torch.arange(7)[None, :, None], START)
    given = [(x @ w.T).unflatten(-1, (2, 8)) for w in weights]
    q, k = encoding.encode(given[0], given[1], codes, 0)
    plain = built(SequenceStructure(), 8)
    with torch.no_grad():
        rotations_of(plain).angles.copy_(angles)
    codes, _ = plain.prepare(torch.arange(7)[None, :, None], START)
    absorbed = [(x @ absorb(w, basis).T).unflatten(-1, (2, 8)) for w in weights]
    a, b = plain.encode(absorbed[0], absorbed[1], codes, 0)
    close(torch.einsum("blhd,bshd->bhls", a, b), torch.einsum("blhd,bshd->bhls", q, k), 1e-11)


def test_rotary_embedding_of_halves_is_a_sequence_too() -> None:
    rope = RopeConfig().build(num_layers=1, num_heads=2, head_dim=8)
    encoding = built(SequenceStructure(), 8, dtype=torch.float32, basis=True)
    rotations_of(encoding).load(
        [spectrum_of_halves(InitialGenerators(1, 1, "rope", 10_000.0).angles(8))]
    )
    q, k = torch.randn(2, 1, 9, 2, 8)
    places = 1000 * torch.arange(9)[None, :, None]
    made = encoding.encode(q, k, encoding.prepare(places, START)[0], 0)
    wanted = rope.encode(q, k, rope.prepare(places, ())[0], 0)
    for a, b in zip(made, wanted, strict=True):
        close(a, b, 2e-3)  # angles rounded to float32, times 8000


@pytest.mark.parametrize("basis", [False, True])
def test_float32_is_exact_at_position_one_million(basis: bool) -> None:
    encoding = built(SequenceStructure(), 16, dtype=torch.float32, basis=basis)
    (spectrum,) = rotations_of(encoding).spectra()
    angles = rotations_of(encoding).angles.double()
    assert torch.equal(spectrum.angles, angles)  # angles are rounded once, phases are not
    whole = torch.tensor([0, 1, 10**6, 10**6 + 1, 12_345_679, 2**24 + 1, -(10**7)])
    real = torch.tensor([0.3, 1_000_000.3, -123_456.789], dtype=torch.float64)
    for places in (whole, real):
        wanted = matrices(Spectrum(spectrum.basis[0], angles[0]), places.double())
        assert (dense(encoding, places[:, None]) - wanted).abs().amax() < 1e-6


@given(period=st.integers(1, 50), turns=st.integers(-(10**6), 10**6), place=st.integers(0, 49))
def test_a_cycle_returns_exactly(period: int, turns: int, place: int) -> None:
    encoding = built(CycleStructure(period=period), 12, dtype=torch.float32)
    maps = dense(encoding, torch.tensor([[place], [place + turns * period], [0], [period]]))
    assert torch.equal(maps[0], maps[1])
    assert torch.equal(maps[2], maps[3])
    close(maps[2], torch.eye(12).expand(2, -1, -1), 0)
    step = dense(encoding.double(), torch.ones(1, 1).double())[0]
    close(torch.linalg.matrix_power(step, period), torch.eye(12).expand(2, -1, -1), 1e-11)


def test_harmonics_of_a_cycle() -> None:
    encoding = built(CycleStructure(period=12, harmonics=(1, 5)), 8)
    (spectrum,) = rotations_of(encoding).spectra()
    wanted = 2 * math.pi / 12 * torch.tensor([1, 5, 1, 5])
    close(spectrum.angles[0, 0], wanted, 1e-6)
    half = dense(encoding, torch.tensor([[0.5]], dtype=torch.float64))[0, 0]
    halved = Spectrum(spectrum.basis[0, 0], spectrum.angles[0, 0] / 2)
    close(half, matrices(halved, torch.ones(1).double())[0], 1e-12)


STRUCTURES: list[tuple[Structure, int]] = [
    (SequenceStructure(), 6),
    (CycleStructure(period=7), 6),
    (GridStructure(num_axes=3), 10),
    (GridStructure(num_axes=2, features=(2, 8)), 10),
    (
        DirectSum(
            parts=(
                CycleStructure(period=12),
                DirectSum(parts=(SequenceStructure(), GridStructure()), features=(2, 6)),
            ),
            features=(4, 8),
        ),
        12,
    ),
]


@pytest.mark.parametrize("basis", [False, True])
@pytest.mark.parametrize(("structure", "features"), STRUCTURES[1:])
def test_rotations_match_dense_maps_with_gradients(
    structure: Structure, features: int, basis: bool
) -> None:
    encoding = built(structure, features, basis=basis, initialization="near_identity")
    rotations = rotations_of(encoding)
    for parameter in rotations.parameters():
        torch.nn.init.normal_(parameter)
    positions = 4 * torch.randn(2, 5, encoding.num_axes).double()
    x = torch.randn(2, 5, 2, features).double().requires_grad_()
    first, slow = 0, []
    for block, spectrum in zip(rotations.blocks, rotations.spectra(), strict=True):
        skew = skew_of_spectrum(spectrum)[0]
        places = positions[..., block.first_axis].flatten().tolist()
        maps = torch.stack([reference.sequence_map(skew, place) for place in places])
        part = x[..., first : first + skew.shape[-1]]
        slow.append(reference.apply_maps(maps.unflatten(0, (2, 5)), part))
        first += skew.shape[-1]

    fast = encoding.rotate_features(x, encoding.prepare(positions, START)[0], 0)
    weights = [x, *(parameter for parameter in rotations.parameters() if parameter.numel())]
    compare_with_gradients(fast, torch.cat(slow, -1), weights)


def test_equal_and_zero_angles_have_finite_gradients() -> None:
    for angle in (0.0, 1.0):
        encoding = built(SequenceStructure(), 8, basis=True)
        torch.nn.init.constant_(rotations_of(encoding).angles, angle)
        codes, _ = encoding.prepare(torch.arange(5)[None, :, None], START)
        out = encoding.rotate_features(torch.randn(1, 5, 2, 8).double(), codes, 0)
        loss = out.square().mul(torch.randn_like(out)).sum()
        grads = torch.autograd.grad(loss, [*encoding.parameters()])
        assert all(grad.isfinite().all() for grad in grads)
