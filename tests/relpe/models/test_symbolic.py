"""Layers without values: on the meta device, under a fake mode, and exported for any length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.export import Dim, export

from relpe import Attention, AttentionLayerConfig
from tests.support.decoders import CONFIGS

CASES = [
    name
    for name, config in CONFIGS.items()
    if not {"layers", "events", "convolution_taps"} & config.keys()
]
BY_VALUE = [name for name in CASES if "conv" in name or "siren spe" in name]
BY_VALUE += ["tree_sq relu", "algebraic softmax, decay", "structure relu"]
BY_VALUE += ["structure favor, layers of their own"]
"""Filtered noise, labels, nodes of trees and a decay of logits need the values of positions."""
FEW = ("sine relu", "rope softmax", "algebraic delta", "algebraic elu, numerator, gated decay")


def layer(name: str) -> Attention:
    """A layer of 16 features in 2 heads."""
    torch.manual_seed(0)
    return Attention(AttentionLayerConfig(width=16, num_heads=2, **CONFIGS[name])).eval()


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_fake_mode_leaves_nothing_behind(name: str) -> None:
    x, before = torch.randn(2, 40, 16), None
    if name not in BY_VALUE:
        with FakeTensorMode():
            module = layer(name)
            _, state = module(torch.randn(2, 40, 16))
            assert module(torch.randn(2, 1, 16), state)[0].shape == (2, 1, 16)
    else:
        refused = (DataDependentOutputException, DynamicOutputShapeException)
        with FakeTensorMode(), pytest.raises(refused):
            layer(name)(torch.randn(2, 40, 16))
    for _ in range(2):
        out, _ = layer(name)(x)
        assert before is None or torch.equal(out, before)
        before = out


@pytest.mark.parametrize(
    "name",
    # learned windows read their width
    [name for name in CASES if name not in (*BY_VALUE, "siren windowed")],
)
@torch.no_grad()
def test_shapes_are_those_of_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        module = layer(name)
        out, state = module(torch.randn(2, 40, 16))
        assert out.shape == (2, 40, 16)
        assert module(torch.randn(2, 1, 16), state)[0].shape == (2, 1, 16)


class Outputs(nn.Module):
    """A layer without its state."""

    def __init__(self, module: Attention) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of x (b, l, m)."""
        return self.module(x)[0]


@pytest.mark.parametrize(
    "name",
    [
        name if name in FEW else pytest.param(name, marks=pytest.mark.slow)
        for name in CASES
        if name not in BY_VALUE and "windowed" not in name  # which is cut into blocks
    ],
)
@torch.no_grad()
def test_exported_layers_take_any_length_and_number_of_rows(name: str) -> None:
    module, x = Outputs(layer(name)), torch.randn(2, 40, 16)
    sizes: Any = {"x": {0: Dim.AUTO, 1: Dim.AUTO}}
    if "sine" in name or "favor" in name:
        with pytest.raises(ValueError, match="make its state by init_state before"):
            export(module, (x,), dynamic_shapes=sizes)
        return
    exported = export(module, (x,), dynamic_shapes=sizes).module()
    for shape in ((3, 57, 16), (5, 300, 16)):
        x = torch.randn(shape)
        torch.testing.assert_close(exported(x), module(x), rtol=1e-4, atol=1e-5)
