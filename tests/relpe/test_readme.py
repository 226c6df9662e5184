"""The examples of relpe/README.md run, and every encoding is exported."""

from __future__ import annotations

import ast
import re
from typing import Any, get_args

import pytest

import relpe
from relpe import EncodingConfig
from tests.support.paths import ROOT

TEXT = (ROOT / "relpe" / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
OF_LAYERS = TEXT.split("## A layer")[1].split("\n## ")[0]
LAYERS = [code for code in EXAMPLES if code in OF_LAYERS]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    code = EXAMPLES[number]
    if "flax" in code:
        pytest.importorskip("flax")
    named: dict[str, Any] = {}
    exec(code, named)
    if code in LAYERS:
        assert named["out"].isfinite().all()
        assert len(code.strip().splitlines()) <= 10


def test_there_are_examples_of_layers() -> None:
    assert len(LAYERS) == 3


OTHERS = (
    """
import torch
from fla.layers import MultiScaleRetention
from fla.models.utils import Cache
layer = MultiScaleRetention(hidden_size=512, num_heads=8, layer_idx=0)
x, cache = torch.randn(2, 100, 512), Cache()
out, _, cache = layer(x, past_key_values=cache, use_cache=True)
out, _, cache = layer(x[:, :1], past_key_values=cache, use_cache=True)
""",
    """
import torch
from rotary_embedding_torch import RotaryEmbedding
from torch.nn.functional import scaled_dot_product_attention as sdpa
rotary = RotaryEmbedding(dim=64)
q, k, v = torch.randn(3, 2, 8, 100, 64).unbind(0)
q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
out = sdpa(q, k, v, is_causal=True)
""",
    """
import torch
from x_transformers import Decoder
layer = Decoder(dim=512, depth=1, heads=8, dynamic_pos_bias=True, attn_max_attend_past=256)
out = layer(torch.randn(2, 100, 512))
""",
)
"""The nearest to each example in other libraries, which are not installed: the last two ran with
rotary-embedding-torch 0.9.1 and x-transformers 2.31.10; the first follows the source of
flash-linear-attention 0.6.0."""


def test_the_examples_have_as_few_statements_as_those_of_other_libraries() -> None:
    counted = re.findall(r"\| (\d+) \| (\d+) \(", OF_LAYERS)
    for ours, theirs, counts in zip(LAYERS, OTHERS, counted, strict=True):
        # the penalty of a learned window has no counterpart
        kept = "\n".join(line for line in ours.splitlines() if not line.startswith("loss"))
        found = [len(ast.parse(code).body) for code in (kept, theirs)]
        assert found == [int(count) for count in counts]
        assert found[0] <= found[1]


def test_all_encodings_are_exported_and_in_the_table() -> None:
    for config in get_args(EncodingConfig):
        assert config.__name__ in relpe.__all__
        assert f"`{config.kind}`" in TEXT
    assert all(hasattr(relpe, name) for name in relpe.__all__)


def test_the_package_has_types() -> None:
    assert (ROOT / "relpe" / "py.typed").is_file()
