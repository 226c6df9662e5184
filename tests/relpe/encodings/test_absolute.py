from __future__ import annotations

import pytest
import torch

from relpe.encodings.absolute import (
    LearnedPositionConfig,
    SinusoidConfig,
    TreeSQ,
    TreeSQConfig,
    sinusoids,
)
from relpe.encodings.algebraic.structures import TreeStructure
from relpe.models.config import from_plain, to_plain
from tests.support import golden_spe
from tests.support.golden_algebraic import KINDS, golden
from tests.support.offsets_in_pieces import places

SHAPE = {"num_layers": 2, "num_heads": 2, "head_dim": 4}


def test_sinusoids_match_the_originals() -> None:
    table = golden("sin/table/f32")
    made = sinusoids(torch.arange(64), 16).float()
    torch.testing.assert_close(made, table, atol=1e-5, rtol=0)
    table = golden_spe.golden("ape_table")
    made = sinusoids(torch.arange(table.shape[0]), table.shape[1]).to(table)
    torch.testing.assert_close(made, table, atol=1e-6, rtol=0)


def test_sinusoids_are_added_to_scaled_embeddings_of_tokens() -> None:
    encoding = SinusoidConfig().build(**SHAPE)
    x = torch.randn(3, 6, 8)
    codes, _ = encoding.prepare(places(6, 10), ())
    table = sinusoids(torch.arange(10, 16), 8).float()
    torch.testing.assert_close(encoding.embed(x, codes), x * 8**0.5 + table)
    torch.testing.assert_close(encoding.embed(x, codes, tokens=False), x + table)
    rows = places(6).expand(3, -1, -1) + torch.tensor([0, 5, 9])[:, None, None]
    codes, _ = encoding.prepare(rows, ())
    assert encoding.embed(x, codes).shape == x.shape


def test_sinusoids_of_far_positions_are_exact() -> None:
    far = sinusoids(torch.tensor([10**9]), 4)
    torch.testing.assert_close(far[0, 0], torch.tensor(10.0**9, dtype=torch.float64).sin())
    assert far.dtype == torch.float64


def test_learned_positions_end_with_the_last_vector() -> None:
    encoding = LearnedPositionConfig(num_positions=4).build(**SHAPE)
    x = torch.zeros(1, 6, 8)
    codes, _ = encoding.prepare(places(6), ())
    out = encoding.embed(x, codes)
    torch.testing.assert_close(out[0, :4], encoding.vectors.detach().clone())
    torch.testing.assert_close(out[0, 4:], encoding.vectors[-1:].detach().expand(2, -1))
    out.sum().backward()
    assert encoding.vectors.grad is not None


def built(original: bool, **kw) -> TreeSQ:
    config = TreeSQConfig(max_depth=3, original_order=original, **kw)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=12).double()
    with torch.no_grad():
        encoding.raw.copy_(golden("treesq/weight_raw/f64"))
    return encoding


@pytest.mark.parametrize(("original", "kind"), [(False, "f64"), (True, "f64"), (False, "f32")])
def test_vectors_match_the_original_or_the_corrected_form(original: bool, kind: str) -> None:
    encoding = built(original).to(KINDS[kind])
    heap = golden("treesq/heap")
    codes, _ = encoding.prepare(heap[None, :, None], ())
    name = "original" if original else "corrected"
    tolerance = {"f64": 1e-12, "f32": 5e-6}[kind]
    wanted = golden(f"treesq/{name}/f64").to(codes.dtype)
    torch.testing.assert_close(codes[0], wanted, rtol=0, atol=tolerance)
    x = torch.randn(2, len(heap), 24, dtype=codes.dtype)
    torch.testing.assert_close(encoding.embed(x, codes), x + codes)


def test_branches_are_listed_from_the_node_to_the_root() -> None:
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


def test_a_width_beyond_the_slots_is_padded() -> None:
    config = TreeSQConfig(tree=TreeStructure(branching=3), max_depth=4)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=16)
    assert encoding.raw.shape == (2,)
    codes, _ = encoding.prepare(torch.arange(0, 60)[None, :, None], ())
    assert codes.shape == (1, 60, 32)
    assert not codes[..., 24:].any()
    assert from_plain(TreeSQConfig, to_plain(config)) == config
    with pytest.raises(ValueError, match="expected at least 80"):
        TreeSQConfig(max_depth=40).build(num_layers=1, num_heads=2, head_dim=8)
