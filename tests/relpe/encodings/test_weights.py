"""Cached codes and tables follow the weights, however these are changed."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from relpe import EncodingConfig, QueryKeyEncoding, SirenConfig, WindowConfig
from relpe.encodings.weights import Weights

CPU = torch.device("cpu")
CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda weight: weight.mul_(3),
    "behind the version counter": lambda weight: weight.data.copy_(weight.data * 3),
}


def results(encoding: Any, codes: Any) -> list[Tensor]:
    """What layers get from an encoding at one position, as finite numbers."""
    q = torch.randn(1, 1, 2, 8, generator=torch.Generator().manual_seed(0))
    found = []
    if isinstance(encoding, QueryKeyEncoding):
        found += encoding.encode(q, q, codes, 0)
    table = encoding.scoring(codes, 0).table
    if table is not None:
        parts = (table.features, table.bias, table.content_bias, table.log_weight)
        found += [x[:6].nan_to_num(neginf=-1e9) for x in parts if x is not None]
    return found


@pytest.mark.parametrize(
    ("change", "made_in"),
    [("in place", torch.no_grad), ("behind the version counter", torch.inference_mode)],
)
@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_changed_weights_give_new_codes(config: Any, made_in: Any, change: str) -> None:
    with made_in():
        encoding = config().build(num_layers=1, num_heads=2, head_dim=8).eval()
        places = torch.arange(6)[None, :, None]
        _, state = encoding.prepare(places[:, :5], encoding.init_state(0, CPU))
        for weight in encoding.parameters():
            CHANGES[change](weight)
        codes, _ = encoding.prepare(places[:, 5:], state)
        _, fresh = encoding.prepare(places[:, :5], encoding.init_state(0, CPU))
        expected, _ = encoding.prepare(places[:, 5:], fresh)
        found, wanted = results(encoding, codes), results(encoding, expected)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_spans_follow_a_width_that_is_written_behind_the_version_counter() -> None:
    config = SirenConfig(window=WindowConfig(width=(40.0,)))
    window = config.build(num_layers=1, num_heads=2, head_dim=8).eval().training_window()
    assert window is not None
    assert window.log_width is not None
    before = window.current()
    window.log_width.data.copy_(window.log_width.data - 2)
    assert window.current().exact[0][0][0] < before.exact[0][0][0]


def test_weights_are_compared_by_value_and_dtype() -> None:
    weight = torch.ones(3)
    kept = Weights.of([weight])
    assert kept.are_those_of([torch.ones(3)])
    assert not kept.are_those_of([torch.ones(3).double()])
    assert not kept.are_those_of([torch.ones(2)])
    assert not kept.are_those_of([weight, weight])
    weight += 1
    assert not kept.are_those_of([weight])
    assert not Weights().are_those_of([])
