from __future__ import annotations

import pytest
import torch

from relpe.encodings.algebraic.structures import TreeStructure
from relpe.encodings.tree_sq import TreeSQ, TreeSQConfig
from relpe.models.checkpoint import from_plain, to_plain
from tests.support.golden_algebraic import KINDS, golden


def built(original: bool, **kw) -> TreeSQ:
    config = TreeSQConfig(max_depth=3, original_order=original, **kw)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=12).double()
    with torch.no_grad():
        encoding.raw.copy_(golden("treesq/weight_raw/f64"))
    return encoding


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_original_or_the_corrected_ones(original: bool, kind: str) -> None:
    encoding = built(original).to(KINDS[kind])
    heap = golden("treesq/heap")
    codes, _ = encoding.prepare(heap[None, :, None], ())
    name = "original" if original else "corrected"
    tolerance = {"f64": 1e-12, "f32": 5e-6}[kind]
    wanted = golden(f"treesq/{name}/f64").to(codes.dtype)
    torch.testing.assert_close(codes[0], wanted, rtol=0, atol=tolerance)
    x = torch.randn(2, len(heap), 24, dtype=codes.dtype)
    torch.testing.assert_close(encoding.embed(x, codes), x + codes)
    q = torch.randn(2, len(heap), 2, 12)
    assert encoding.encode(q, q, codes, 0) == (q, q)


def test_branches_are_told_from_the_node_upwards() -> None:
    encoding = built(False)
    words = torch.tensor([[[0, 1, 0, -1], [1, 1, 0, -1], [1, 0, 1, 0], [-1, -1, -1, -1]]])
    by_word = built(False, tree=TreeStructure(word_axes=4))
    codes, _ = by_word.prepare(words, ())
    taken = codes[0].unflatten(-1, (3, 2, 4)) > 0
    assert taken[0, :, :, 0].tolist() == [[True, False], [False, True], [True, False]]
    assert taken[2, :, :, 0].tolist() == [[True, False], [False, True], [True, False]]
    assert not taken[3].any()
    heap = torch.tensor([[10, 14, 26, 1]])  # the same nodes
    same, _ = encoding.prepare(heap[..., None], ())
    torch.testing.assert_close(same, codes)
    codes.sum().backward()
    assert by_word.raw.grad is not None
    assert by_word.raw.grad.isfinite().all()


def test_a_width_that_slots_do_not_fill_is_filled_up() -> None:
    config = TreeSQConfig(tree=TreeStructure(branching=3), max_depth=4)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=16)
    assert encoding.raw.shape == (2,)
    codes, _ = encoding.prepare(torch.arange(0, 60)[None, :, None], ())
    assert codes.shape == (1, 60, 32)
    assert not codes[..., 24:].any()
    assert from_plain(TreeSQConfig, to_plain(config)) == config
    with pytest.raises(ValueError, match="or fewer steps"):
        TreeSQConfig(max_depth=40).build(num_layers=1, num_heads=2, head_dim=8)
