from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.attention.feature_maps import EluConfig, FeatureMapConfig, ReluConfig
from relpe.attention.linear.attention import LinearState
from relpe.attention.linear.numerator import numerator_only_attention
from relpe.encodings.algebraic.encoding import Algebraic, AlgebraicConfig, AlgebraicState
from relpe.encodings.algebraic.spectra import spectrum_of_skew
from relpe.encodings.algebraic.structures import (
    CycleStructure,
    DirectSum,
    GridStructure,
    SequenceStructure,
    Structure,
    TreeStructure,
    distances,
)
from tests.support import reference_linear as naive
from tests.support.compared import compare_with_gradients
from tests.support.golden_algebraic import close, golden

START = ()
DECAYING = AlgebraicState(0)
MUSIC = DirectSum(
    parts=(
        SequenceStructure(),
        DirectSum(parts=(CycleStructure(period=4), TreeStructure(branching=3))),
        GridStructure(num_axes=2),
    ),
    features=(4, 8, 4),
)
"""Axes: token index, beat of the bar, node of the form, pitch and time."""
STRUCTURES: list[Structure] = [
    SequenceStructure(),
    CycleStructure(period=7),
    GridStructure(num_axes=3, features=(4, 8, 4)),
    TreeStructure(branching=3),
    TreeStructure(branching=2, word_axes=4),
    MUSIC,
]


def built(structure: Structure, features: int = 16, layers: int = 2, **kw) -> Algebraic:
    config = AlgebraicConfig(structure=structure, **kw)
    encoding = config.build(num_layers=layers, num_heads=2, head_dim=features).double()
    for name, parameter in encoding.named_parameters():
        if name.endswith("triangle") or ".triangles." in name:
            torch.nn.init.normal_(parameter)
    return encoding


def some_positions(structure: Structure, rows: int, length: int) -> torch.Tensor:
    """Repeated, unordered, different in each row."""
    encoding = built(structure)
    if isinstance(structure, TreeStructure) and structure.word_axes:
        words = torch.randint(0, structure.branching, (rows, length, structure.word_axes))
        depths = torch.randint(0, structure.word_axes + 1, (rows, length, 1))
        return words.masked_fill(torch.arange(structure.word_axes) >= depths, -1)
    return torch.randint(0, 40, (rows, length, encoding.num_axes))


def scores(
    encoding: Algebraic, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    codes, _ = encoding.prepare(positions, START)
    q, k = encoding.encode(q, k, codes, 1)
    return torch.einsum("blhd,bshd->bhls", q, k)


@pytest.mark.parametrize("number", range(len(STRUCTURES)))
def test_norms_are_preserved_and_rows_and_splits_do_not_matter(number: int) -> None:
    structure = STRUCTURES[number]
    encoding = built(structure, shared_by_layers=number % 2 == 0, shared_by_heads=number % 4 < 2)
    positions = some_positions(structure, 3, 8)
    x = torch.randn(3, 8, 2, 16).double()
    turned = encoding.rotate_features(x, encoding.prepare(positions, START)[0], 1)
    close(turned.norm(dim=-1), x.norm(dim=-1), 1e-12)
    for row in range(3):
        for first, last in ((0, 3), (3, 8)):
            piece = positions[row : row + 1, first:last]
            codes, _ = encoding.prepare(piece, START)
            part = encoding.rotate_features(x[row : row + 1, first:last], codes, 1)
            close(part, turned[row : row + 1, first:last], 1e-12)
    order = torch.randperm(8)
    codes, _ = encoding.prepare(positions[:, order], START)
    close(encoding.rotate_features(x[:, order], codes, 1), turned[:, order], 1e-12)


@given(
    structure=st.sampled_from(STRUCTURES[:3]),
    shift=st.integers(-(10**6), 10**6),
    seed=st.integers(0, 100),
)
def test_shifting_positions_changes_no_score(structure: Structure, shift: int, seed: int) -> None:
    torch.manual_seed(seed)
    encoding = built(structure, basis=bool(seed % 2))
    q, k = torch.randn(2, 2, 5, 2, 16).double()
    positions = some_positions(structure, 2, 5)
    shifts = shift * torch.randint(-1, 2, positions.shape[-1:])
    wanted = scores(encoding, q, k, positions)
    close(scores(encoding, q, k, positions + shifts), wanted, 1e-7)
    halves = positions.double() + shifts / 2
    close(scores(encoding, q, k, halves), wanted, 1e-7)


def test_maps_are_shared_or_separate_by_layer_and_head() -> None:
    positions = torch.arange(4)[None, :, None]
    x = torch.randn(1, 4, 1, 16).double().expand(-1, -1, 2, -1)
    for structure in (SequenceStructure(), TreeStructure()):
        for by_layers in (False, True):
            for by_heads in (False, True):
                encoding = built(
                    structure,
                    shared_by_layers=by_layers,
                    shared_by_heads=by_heads,
                    initialization="near_identity",
                )
                codes, _ = encoding.prepare(positions, START)
                first, second = (encoding.rotate_features(x, codes, layer) for layer in (0, 1))
                assert torch.allclose(first, second) == by_layers
                assert torch.allclose(first[:, :, 0], first[:, :, 1]) == by_heads


def test_frozen_generators_get_no_gradient() -> None:
    encoding = built(MUSIC, trainable=False)
    assert list(encoding.parameters())
    assert not any(parameter.requires_grad for parameter in encoding.parameters())
    assert all(parameter.requires_grad for parameter in built(MUSIC).parameters())


def test_one_sided_maps_do_not_change_keys() -> None:
    encoding = built(SequenceStructure(), 8, one_sided=True, basis=True)
    rotations: Any = encoding.parts[0]
    rotations.load([spectrum_of_skew(golden("seq/skew/f64"))])
    q, k = (golden(f"seq/{side}/f64").transpose(2, 3) for side in "qk")
    codes, _ = encoding.prepare(golden("seq/q_positions")[None, :, None], START)
    turned, _ = encoding.encode(q, q, codes, 0)
    codes, _ = encoding.prepare(golden("seq/k_positions")[None, :, None], START)
    _, keys = encoding.encode(k, k, codes, 0)
    assert keys is k
    made = torch.einsum("blhd,bshd->blsh", turned, keys) / math.sqrt(8)
    close(made, golden("seq/scores_query_only/f64"), 1e-11)


def test_distances_match_the_original() -> None:
    def at(name: str) -> torch.Tensor:
        positions = golden(name)
        return positions if positions.ndim > 1 else positions[:, None]

    line = distances(SequenceStructure(), at("seq/q_positions"), at("seq/k_positions"))
    assert torch.equal(line, golden("seq/distance"))
    grid = distances(GridStructure(), at("grid/coords"), at("grid/coords"))
    assert torch.equal(grid, golden("grid/distance"))
    for name, branching in (("tree2", 2), ("tree3", 3)):
        tree = TreeStructure(branching=branching)
        assert torch.equal(
            distances(tree, at(f"{name}/heap"), at(f"{name}/heap")), golden(f"{name}/steps")
        )
    cycle = distances(CycleStructure(period=12), at("seq/q_positions"), at("seq/k_positions"))
    assert cycle.amax() <= 6
    assert cycle[3, 5].item() == min((41 - 17) % 12, (17 - 41) % 12)
    both = DirectSum(parts=(SequenceStructure(), TreeStructure()))
    pairs = torch.tensor([[0, 1], [3, 2], [5, 6]])
    assert distances(both, pairs, pairs).tolist() == [[0, 4, 7], [4, 0, 5], [7, 5, 0]]
    real = distances(SequenceStructure(), torch.tensor([[0.5]]), torch.tensor([[2.0]]))
    assert real.tolist() == [[1.5]]


@pytest.mark.parametrize("kind", ["f64", "f32"])
def test_decaying_logits_match_the_original(kind: str) -> None:
    tolerance = {"f64": 1e-11, "f32": 1e-4}[kind]
    for name, structure, at_q, at_k in (
        ("seq", SequenceStructure(), golden("seq/q_positions"), golden("seq/k_positions")),
        ("grid", GridStructure(), golden("grid/coords"), golden("grid/coords")),
        ("tree2", TreeStructure(), golden("tree2/heap"), golden("tree2/heap")),
    ):
        encoding = built(structure, 8, decay=0.98)
        factors = encoding.logit_factors(*(at.view(len(at), -1) for at in (at_q, at_k)))
        plain = golden(f"{name}/scores/{kind}")
        decayed = plain * factors[..., None].to(plain)
        close(decayed, golden(f"{name}/scores_decay/f64"), tolerance)
        if name == "seq":
            mask = golden("seq/key_mask")[:, None, :, None]
            masked = decayed.masked_fill(~mask, -1e10)
            close(masked, golden("seq/scores_decay_keymask/f64"), tolerance)


@pytest.mark.parametrize("decay", [1.0, 0.98])
def test_attention_with_and_without_decay_matches_the_original(decay: float) -> None:
    encoding = built(SequenceStructure(), 8, decay=decay, basis=True)
    rotations: Any = encoding.parts[0]
    rotations.load([spectrum_of_skew(golden("seq/skew/f64"))])
    q, k, v = (golden(f"seq/self_{name}/f64").transpose(2, 3) for name in "qkv")
    state, first, keys, outs, all_weights = encoding.init_state(0, q.device), 0, [], [], []
    for last in (5, 6, 12):
        codes, state = encoding.prepare(torch.arange(first, last)[None, :, None], state)
        turned, new = encoding.encode(q[:, first:last], k[:, first:last], codes, 0)
        keys.append(new)
        logits = torch.einsum("blhd,bshd->bhls", turned, torch.cat(keys, 1)) / math.sqrt(8)
        places = torch.arange(first, last)[:, None] - torch.arange(last)
        table = encoding.scoring(codes, 0).table
        assert (table is None) == (decay == 1)
        if table is not None:
            assert table.factor is not None
            logits = logits * table.factor[places.clamp(min=0)].permute(2, 0, 1)
        weights = logits.masked_fill(places < 0, -torch.inf).softmax(-1)
        outs.append(torch.einsum("bhls,bshe->blhe", weights, v[:, :last]))
        all_weights.append(torch.nn.functional.pad(weights, (0, 12 - last)))
        first = last
    made = torch.cat(all_weights, 2).permute(0, 2, 3, 1)
    suffix = "" if decay == 1 else "_decay"
    close(made, golden(f"seq/self_weights_causal{suffix}/f64"), 1e-11)
    if decay < 1:
        made = torch.cat(outs, 1).transpose(2, 3)
        close(made, golden("seq/self_out_causal_decay/f64"), 1e-11)


def test_a_decay_follows_rows_that_start_at_different_positions() -> None:
    encoding = built(SequenceStructure(), decay=0.9)
    positions = torch.arange(4) + torch.tensor([[0], [50]])
    _, state = encoding.prepare(positions[..., None], DECAYING)
    assert isinstance(state, AlgebraicState)
    state = state.map_rows(lambda rows: rows[torch.tensor([1, 1, 0])])
    following = torch.tensor([[54], [54], [4]])
    codes: Any = encoding.prepare(following[..., None], state)[0]
    close(codes.factor[:, 0], 0.9 ** torch.arange(5.0), 1e-6)
    shared = DECAYING.map_rows(lambda rows: rows[:0])
    assert shared == DECAYING
    with pytest.raises(ValueError, match="rise by one"):
        encoding.prepare(following.flip(0)[..., None], state)


def test_factors_of_offsets_equal_those_of_pairs() -> None:
    encoding = built(GridStructure(), decay=0.9)
    offsets = torch.tensor([[0, 0], [1, -1], [-3, 4]])
    wanted = torch.tensor([1.0, 0.9, 0.9**5])
    close(encoding.offset_factors(offsets), wanted[:, None].expand(-1, 2), 1e-6)
    plain = built(SequenceStructure())
    assert plain.scoring(plain.prepare(torch.zeros(1, 2, 1), START)[0], 0).table is None
    with pytest.raises(ValueError, match="logit_factors"):
        built(TreeStructure(), decay=0.9).offset_factors(offsets)
    for structure, places in (
        (SequenceStructure(), torch.tensor([0, 2])),
        (TreeStructure(), torch.arange(2)),
    ):
        with pytest.raises(ValueError, match="rise by one"):
            built(structure, decay=0.9).prepare(places[None, :, None], DECAYING)


def empty_state(features: int) -> LinearState:
    return LinearState.empty((2, 2, features, 5), device=torch.device("cpu"), dtype=torch.float64)


@pytest.mark.parametrize(
    ("feature_map", "fading", "split"),
    [
        (ReluConfig(), False, [150]),
        (ReluConfig(), True, [70, 1, 79]),
        (EluConfig(), True, [150]),
        (EluConfig(), False, [70, 1, 79]),
    ],
)
def test_numerator_only_attention_matches_the_naive_one_with_gradients(
    feature_map: FeatureMapConfig, fading: bool, split: list[int]
) -> None:
    encoding = built(SequenceStructure(), placement="numerator")
    codes, _ = encoding.prepare(torch.arange(150)[None, :, None] + 10**6, START)
    inputs = torch.randn(2, 2, 150, 2, 16).double()
    q, k = (x.requires_grad_() for x in inputs)
    v = torch.randn(2, 150, 2, 5).double().requires_grad_()
    same_q, same_k = encoding.encode(q, k, codes, 0)
    assert same_q is q
    assert same_k is k
    function = feature_map.build()
    a, b = function(q, None).values, function(k, None).values
    turned_a = encoding.rotate_features(a, codes, 0)
    turned_b = encoding.rotate_features(b, codes, 0, keys=True)
    ramp = 0.02 * torch.arange(150).double()[None, :, None].expand(-1, -1, 2)
    scale = ramp if fading else None

    def fast_part(span: slice, state: LinearState) -> tuple[torch.Tensor, LinearState]:
        parts = a[:, span], b[:, span], turned_a[:, span], turned_b[:, span], v[:, span]
        return numerator_only_attention(*parts, state, None if scale is None else scale[:, span])

    state, first, outs = empty_state(16), 0, []
    for size in split:
        out, state = fast_part(slice(first, first + size), state)
        outs.append(out)
        first += size
    fast = torch.cat(outs, 1)
    whole = None if scale is None else scale.expand(2, -1, -1)
    slow = naive.numerator_only_attention(a, b, turned_a, turned_b, v, whole)
    with torch.no_grad():  # as in generation
        state = empty_state(16)
        for place in range(3):
            out, state = fast_part(slice(place, place + 1), state)
            close(out, slow[:, place : place + 1], 1e-10)
    leaves = [q, k, v, *encoding.parameters()]
    compare_with_gradients(fast, slow, leaves, rtol=1e-7, atol=1e-8)


def test_autocast_does_not_change_maps() -> None:
    encoding = AlgebraicConfig(structure=MUSIC, basis=True).build(
        num_layers=1, num_heads=2, head_dim=16
    )
    positions, x = some_positions(MUSIC, 1, 6), torch.randn(1, 6, 2, 16)
    plain = encoding.rotate_features(x, encoding.prepare(positions, START)[0], 0)
    with torch.autocast("cpu", torch.bfloat16):
        cast = encoding.rotate_features(x, encoding.prepare(positions, START)[0], 0)
    assert torch.equal(plain, cast)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"decay is 1\.5, expected more than 0 and at most 1"):
        AlgebraicConfig(decay=1.5)
    structures: list[tuple[Structure, int, str]] = [
        (SequenceStructure(), 7, "even"),
        (GridStructure(num_axes=3), 4, "even number of at least 2"),
        (GridStructure(features=(4, 8)), 16, "sum 16"),
        (GridStructure(features=(3, 5)), 8, "even"),
        (DirectSum(parts=()), 8, "at least one"),
        (CycleStructure(period=0), 8, "period of a cycle is 0"),
        (CycleStructure(harmonics=()), 8, "harmonics of a cycle are empty"),
        (TreeStructure(branching=0), 8, "branching of at least 1"),
    ]
    for structure, features, message in structures:
        with pytest.raises(ValueError, match=message):
            built(structure, features)


def test_too_few_axes_are_refused_and_others_are_ignored() -> None:
    encoding = built(GridStructure())
    with pytest.raises(ValueError, match="with p at least 2"):
        encoding.prepare(torch.zeros(1, 3, 1), START)
    positions, x = torch.randint(0, 9, (1, 3, 4)), torch.randn(1, 3, 2, 16).double()
    a, b = (
        encoding.rotate_features(x, encoding.prepare(part, START)[0], 0)
        for part in (positions, positions[..., :2])
    )
    assert torch.equal(a, b)
