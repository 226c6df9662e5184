from __future__ import annotations

import torch

from relpe.encodings.offset.shaw import ShawConfig
from tests.support.golden_algebraic import golden


def test_scores_match_those_of_the_reference_implementation() -> None:
    for suffix, atol in (("f64", 1e-11), ("f32", 1e-4)):
        q, k = (golden(f"seq/self_{x}/{suffix}").movedim(3, 2) for x in "qk")
        vectors = golden(f"rel/embedding/{suffix}")
        config = ShawConfig(window=4)
        encoding = config.build(num_layers=1, num_heads=2, head_dim=8).to(vectors.dtype)
        with torch.no_grad():
            encoding.vectors.copy_(vectors)
            offsets = torch.arange(-11.0, 12.0, dtype=torch.float64)[:, None]
            table = encoding.table_of([offsets], offsets, 0)
        assert table.features is not None
        steps = torch.arange(12)
        features = table.features[steps - steps[:, None] + 11]  # key minus query
        scores = torch.einsum("blhd,bshd->blsh", q, k)
        scores = (scores + torch.einsum("blhd,lshd->blsh", q, features)) / 8**0.5
        expected = golden("rel/scores/f64").to(scores)
        torch.testing.assert_close(scores, expected, atol=atol, rtol=0)
