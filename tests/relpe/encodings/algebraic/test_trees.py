from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.algebraic import trees
from relpe.encodings.algebraic.encoding import Algebraic, AlgebraicConfig
from relpe.encodings.algebraic.spectra import skew_from_triangle, spectrum_of_skew
from relpe.encodings.algebraic.structures import (
    DirectSum,
    SequenceStructure,
    TreeStructure,
    distances,
    steps,
    tree_words,
    words_of_heap,
)
from relpe.encodings.algebraic.tree_products import prefix_tree, word_maps
from tests.support import reference_algebraic as reference
from tests.support.compared import compare_with_gradients
from tests.support.golden_algebraic import KINDS, close, golden, scores

START = ()


def built(
    branching: int = 2,
    *,
    features: int = 6,
    heads: int = 2,
    tree: TreeStructure | None = None,
    **kw,
) -> tuple[Algebraic, Any]:
    """An encoding with generators far from the identity, and its maps."""
    config = AlgebraicConfig(structure=tree or TreeStructure(branching=branching), **kw)
    encoding = config.build(num_layers=2, num_heads=heads, head_dim=features).double()
    maps: Any = encoding.parts[-1]
    torch.nn.init.normal_(maps.triangle)
    return encoding, maps


def imported(name: str, kind: str) -> Algebraic:
    base = golden(f"{name}/base/{kind}")
    heads, branching, features, _ = base.shape
    config = AlgebraicConfig(structure=TreeStructure(branching=branching))
    encoding = config.build(num_layers=1, num_heads=heads, head_dim=features).to(KINDS[kind])
    maps: Any = encoding.parts[0]
    maps.load(base.mT - base)  # the original multiplies by the transposed generator
    return encoding


def nodes(*ids: int) -> torch.Tensor:
    return torch.tensor(ids)[None, :, None]


@pytest.mark.parametrize("name", ["tree2", "tree3"])
@pytest.mark.parametrize("kind", KINDS)
def test_trees_match_the_original(name: str, kind: str) -> None:
    encoding = imported(name, kind)
    words, heap = golden(f"{name}/words"), golden(f"{name}/heap")
    own = words_of_heap(heap, golden(f"{name}/base/{kind}").shape[1])
    width = own.shape[1]
    assert torch.equal(own, words[:, :width])
    assert (words[:, width:] == -1).all()
    assert torch.equal((own >= 0).sum(1), golden(f"{name}/depth"))
    assert torch.equal(steps(own, words), golden(f"{name}/steps"))
    codes, _ = encoding.prepare(heap[None, :, None], START)
    (code,) = codes.parts
    maps = code.maps[0, :, code.nodes[0]].transpose(0, 1)  # type: ignore[union-attr]
    close(maps, golden(f"{name}/maps/f64"), {"f64": 1e-12, "f32": 5e-6}[kind])
    q, k = (golden(f"{name}/{side}/{kind}").transpose(2, 3) for side in "qk")
    q, k = (x.transpose(2, 3) for x in encoding.encode(q, k, codes, 0))
    tolerance = {"f64": 1e-11, "f32": 1e-4}[kind]
    close(q, golden(f"{name}/q_mapped/f64"), tolerance)
    close(scores(q, k), golden(f"{name}/scores/f64"), tolerance)
    factors = 0.98 ** distances(encoding.config.structure, heap[:, None], heap[:, None]).double()
    made = scores(q, k) * factors[..., None].to(q.dtype)
    close(made, golden(f"{name}/scores_decay/f64"), tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_of_a_sequence_and_a_tree_matches_the_original(kind: str) -> None:
    structure = DirectSum(parts=(SequenceStructure(), TreeStructure()), features=(8, 6))
    config = AlgebraicConfig(structure=structure, basis=True)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=14).to(KINDS[kind])
    parts: Any = encoding.parts
    rotations, maps = parts
    rotations.load([spectrum_of_skew(golden(f"seq/skew/{kind}"))])
    base = golden(f"comp/tree_base/{kind}")
    maps.load(base.mT - base)
    positions = torch.stack([golden("comp/seq_positions"), golden("comp/tree_heap")], -1)[None]
    codes, _ = encoding.prepare(positions, START)
    eye = torch.eye(14, dtype=KINDS[kind])[:, None, None].expand(-1, 6, 2, -1)
    made = encoding.rotate_features(eye, codes, 0).permute(1, 2, 3, 0)
    close(made, golden("comp/maps/f64"), {"f64": 1e-11, "f32": 1e-4}[kind])
    q, k = (golden(f"comp/{side}/{kind}").transpose(2, 3) for side in "qk")
    q, k = (x.transpose(2, 3) for x in encoding.encode(q, k, codes, 0))
    tolerance = {"f64": 1e-11, "f32": 1e-4}[kind]
    close(scores(q, k), golden("comp/scores/f64"), tolerance)
    parts = scores(q[:, :, :8], k[:, :, :8]) * 8**0.5 + scores(q[:, :, 8:], k[:, :, 8:]) * 6**0.5
    close(scores(q, k) * 14**0.5, parts, 1e-4 if kind == "f32" else 1e-12)


@given(node=st.integers(1, 10**17), branching=st.integers(1, 7))
def test_words_match_heap_ids(node: int, branching: int) -> None:
    node = min(node, 60) if branching == 1 else node
    ids = torch.tensor([node, 1, 0, -1])
    words = words_of_heap(ids, branching)
    wanted = reference.heap_word(node, branching)
    assert words[0].tolist() == wanted
    assert (words[1:] == -1).all()


words_strategy = st.lists(st.integers(0, 2), max_size=7)


def padded(words: list[list[int]], letters: int = 0) -> torch.Tensor:
    letters = max(letters, *map(len, words))
    rows = [word + [-1] * (letters - len(word)) for word in words]
    return torch.tensor(rows, dtype=torch.int64).view(len(words), letters)


@given(words=st.lists(words_strategy, min_size=1, max_size=6), others=st.integers(0, 5))
def test_steps_do_not_depend_on_the_batch(words: list[list[int]], others: int) -> None:
    """In the original, the number of steps grew with the deepest word of the batch (O3)."""
    table = steps(padded(words), padded(words, others + 7))
    for i, one in enumerate(words):
        for j, other in enumerate(words):
            assert table[i, j] == reference.tree_steps(one, other)


@given(words=st.lists(words_strategy, min_size=1, max_size=12))
def test_each_node_is_computed_once(words: list[list[int]]) -> None:
    levels, index = prefix_tree(padded(words), 3)
    beginnings = {tuple(word[:length]) for word in words for length in range(len(word) + 1)}
    assert 1 + sum(len(level.parents) for level in levels) == len(beginnings)
    assert len(index.unique()) == len({tuple(word) for word in words})


@given(words=st.lists(words_strategy, min_size=1, max_size=8), seed=st.integers(0, 99))
def test_maps_are_products_in_word_order(words: list[list[int]], seed: int) -> None:
    """Hence maps of a common prefix cancel, and a child's map extends its parent's."""
    torch.manual_seed(seed)
    generators = torch.matrix_exp(skew_from_triangle(torch.randn(2, 3, 6).double(), 4))
    maps, index = word_maps(generators, padded(words))
    for place, word in zip(index, words, strict=True):
        close(maps[:, place], reference.tree_map(generators, word), 1e-12)


@pytest.mark.parametrize(
    ("rows", "shared_by_heads", "shared_by_layers"),
    [(1, False, False), (2, False, True), (2, True, False)],
)
def test_fast_equals_slow_with_gradients(
    rows: int, shared_by_heads: bool, shared_by_layers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "GATHERED_BYTES", 2000)  # a few maps at once
    encoding, maps = built(
        3, heads=2, shared_by_heads=shared_by_heads, shared_by_layers=shared_by_layers
    )
    positions = torch.randint(-1, 60, (rows, 7, 1))
    x = torch.randn(2, 7, 2, 6).double().requires_grad_()
    fast = encoding.rotate_features(x, encoding.prepare(positions, START)[0], 1)

    generators = maps.generators()[0 if shared_by_layers else 1].expand(2, -1, -1, -1)
    stack = [
        reference.tree_map(generators, reference.heap_word(node, 3))
        for node in positions.expand(2, -1, -1).flatten().tolist()
    ]
    slow = reference.apply_maps(torch.stack(stack).unflatten(0, (2, 7)), x)
    compare_with_gradients(fast, slow, (x, maps.triangle))


@given(
    ids=st.lists(st.integers(0, 12), max_size=30),
    heads=st.sampled_from([1, 3]),
    limit=st.sampled_from([1, 500, 10**6]),
)
def test_tokens_of_a_node_share_its_map(ids: list[int], heads: int, limit: int) -> None:
    """However the tokens are grouped, also without any, and with gradients."""
    index = torch.tensor(ids, dtype=torch.int64)
    maps = torch.randn(heads, 13, 4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(len(ids), heads, 2, 4, dtype=torch.float64, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "GATHERED_BYTES", limit)
        out = trees._Mapped.apply(maps, x, trees.grouped(index, 13))
        slow = torch.einsum("hnij,nhcj->nhci", maps[:, index], x)
        compare_with_gradients(out, slow, (maps, x))


@pytest.mark.parametrize("law", ["rope", "original", "near_identity"])
def test_branches_start_in_different_planes(law: Any) -> None:
    """In the original, all branches had the same initial values (O5)."""
    for branching, features in ((2, 3), (2, 4), (3, 8), (5, 4), (4, 7), (9, 6), (20, 4)):
        config = AlgebraicConfig(structure=TreeStructure(branching=branching), initialization=law)
        encoding = config.build(num_layers=1, num_heads=1, head_dim=features).double()
        maps: Any = encoding.parts[0]
        generators = maps.generators()[0, 0]
        eye = torch.eye(features, dtype=torch.float64)
        close(generators.mT @ generators, eye.expand_as(generators), 1e-12)
        for one in range(branching):
            for other in range(one):
                assert not torch.allclose(generators[one], generators[other], atol=1e-6)
        if law != "near_identity":
            step = generators[0] @ generators[1] - generators[1] @ generators[0]
            assert step.abs().amax() > 1e-3  # the order of branches matters
            planes = maps.triangle[0, 0].abs() > 1e-12
            if branching <= features - 1 + features % 2:
                assert (planes.sum(0) <= 1).all()
    with pytest.raises(ValueError, match="order of branches"):
        AlgebraicConfig(structure=TreeStructure()).build(num_layers=1, num_heads=1, head_dim=2)


def test_words_and_heap_ids_name_the_same_nodes() -> None:
    by_id, maps = built(3)
    by_word, same = built(3, tree=TreeStructure(branching=3, word_axes=5))
    same.load_state_dict(maps.state_dict())
    ids = torch.randint(-1, 100, (2, 9))
    words = words_of_heap(ids, 3)
    words = torch.nn.functional.pad(words, (0, 5 - words.shape[-1]), value=-1)
    x = torch.randn(2, 9, 2, 6).double()
    a = by_id.rotate_features(x, by_id.prepare(ids[..., None], START)[0], 0)
    b = by_word.rotate_features(x, by_word.prepare(words, START)[0], 0)
    close(a, b, 1e-14)
    close(by_id.rotate_features(x, by_id.prepare(ids[..., None].double(), START)[0], 0), a, 0)


def test_the_start_symbol_may_have_its_own_map() -> None:
    for own in (False, True):
        tree = TreeStructure(start=own)
        encoding, _ = built(tree=tree)
        for places in (nodes(0, 1, 5), nodes(0, 1, 0)):
            x = torch.randn(1, 3, 2, 6).double()
            out = encoding.rotate_features(x, encoding.prepare(places, START)[0], 0)
            close(out[:, 1], x[:, 1], 1e-14)
            assert torch.allclose(out[:, 0], x[:, 0]) != own
    words = tree_words(TreeStructure(start=True), nodes(0, 1, 3, -1)[0])
    assert words.tolist() == [[2], [-1], [1], [-1]]
    assert distances(TreeStructure(start=True), nodes(0)[0], nodes(1, 3, 0)[0]).tolist() == [
        [1, 2, 0]
    ]


def test_invalid_words_are_refused() -> None:
    encoding, _ = built(tree=TreeStructure(word_axes=2))
    for word in ([-1, 0], [2, -1]):
        with pytest.raises(ValueError, match="branch"):
            encoding.prepare(torch.tensor([[word]]), START)
    encoding, _ = built()
    with pytest.raises(ValueError, match="not integers"):
        encoding.prepare(torch.tensor([[[1.5]]], dtype=torch.float64), START)


def test_deep_maps_stay_orthogonal_in_float32() -> None:
    """2000 levels; a table of all words would be too large."""
    depth = 2000
    generators = torch.matrix_exp(skew_from_triangle(torch.randn(1, 2, 28).double(), 8))
    word = torch.randint(0, 2, (1, depth))
    maps, index = word_maps(generators.float(), word)
    assert maps.shape[1] == depth + 1
    close(maps.mT @ maps, torch.eye(8).expand_as(maps), 1e-6)
    exact, _ = word_maps(generators, word)
    assert (maps[:, index] - exact[:, index]).abs().amax() < 1e-5


def test_gradients_through_orthogonalised_maps() -> None:
    """Deep maps in float32, whose products are orthogonalised, against plain ones in float64."""
    exact = torch.matrix_exp(skew_from_triangle(torch.randn(2, 2, 6).double(), 4)).requires_grad_()
    word = torch.randint(0, 2, (40,))
    weights = torch.randn(2, 4, 4, dtype=torch.float64)
    wanted = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    for branch in word.tolist():
        wanted = wanted @ exact[:, branch]
    (of_plain,) = torch.autograd.grad(wanted, exact, weights)
    rough = exact.detach().float().requires_grad_()
    maps, index = word_maps(rough, word[None])
    (grad,) = torch.autograd.grad(maps[:, index[0]], rough, weights.float())
    # only the part of a gradient that keeps rotations orthogonal reaches their exponents
    turned = [g.double() @ exact.mT for g in (grad, of_plain)]
    made, whole = (g - g.mT for g in turned)
    close(made, whole, 1e-3)


def test_equal_angles_have_finite_gradients() -> None:
    encoding, maps = built(heads=1)
    with torch.no_grad():
        maps.triangle.zero_()
        maps.triangle[..., 0] = 1.0  # rotates only one plane
    codes, _ = encoding.prepare(nodes(2, 5, 9), START)
    out = encoding.rotate_features(torch.randn(1, 3, 1, 6).double(), codes, 0)
    (grad,) = torch.autograd.grad(out.mul(torch.randn_like(out)).sum(), maps.triangle)
    assert grad.isfinite().all()
    assert grad.abs().amax() > 0
