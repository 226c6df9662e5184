from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from relpe.encodings.offset.kerple import KerpleConfig
from tests.support.offsets_in_pieces import table_of


def test_the_kernels_are_those_of_the_paper() -> None:
    """Chi et al. (2022), section 4, at any parameters."""
    distance = torch.arange(9.0)[:, None]

    def logarithmic(a: Tensor, c: Tensor) -> Tensor:
        return -functional.softplus(a) * torch.log(1 + functional.softplus(c) * distance)

    def power(a: Tensor, c: Tensor) -> Tensor:
        return -functional.softplus(a) * distance ** (2 / (1 + torch.exp(-c)))

    for config, formula in (
        (KerpleConfig(), logarithmic),
        (KerpleConfig(kernel="power"), power),
    ):
        encoding = config.build(num_layers=2, num_heads=3, head_dim=4)
        torch.nn.init.normal_(encoding.raw)
        for layer in range(2):
            found = table_of(encoding, 9, layer).log_weight[:9].detach()
            torch.testing.assert_close(found, formula(*encoding.raw[:, layer].detach()))


def test_gradients_are_finite_and_weights_fall_with_distance() -> None:
    for config in (KerpleConfig(), KerpleConfig(kernel="power")):
        encoding = config.build(num_heads=3, head_dim=4)
        places = -torch.arange(30.0).double()[:, None]
        weights = encoding.table_of([places], places, 0).log_weight
        assert weights is not None
        assert (weights.diff(dim=0) < 0).all()
        assert (weights[0] == 0).all()
        weights.sum().backward()
        assert encoding.raw.grad is not None
        assert encoding.raw.grad.isfinite().all()
        assert (encoding.raw.grad != 0).all()
