from __future__ import annotations

import torch

from relpe.encodings.offset.alibi import AlibiConfig
from tests.support.offsets_in_pieces import table_of


def test_alibi_is_linear_in_the_offset_for_each_head() -> None:
    weight = table_of(AlibiConfig().build(num_layers=1, num_heads=8, head_dim=4), 5).log_weight
    slopes = torch.tensor([2.0**-i for i in range(1, 9)], dtype=torch.float64)
    torch.testing.assert_close(weight, -torch.arange(5.0).double()[:, None] * slopes)
