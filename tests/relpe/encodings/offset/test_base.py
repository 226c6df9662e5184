from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.offset.alibi import AlibiConfig
from relpe.encodings.offset.shaw import ShawConfig
from relpe.encodings.offset.transformer_xl import TransformerXLConfig
from relpe.encodings.offset.windows import WindowConfig
from tests.support.offsets_in_pieces import attend, places, table_of

SHAPE = {"num_layers": 2, "num_heads": 2, "head_dim": 4}
CONFIGS = {
    "transformer_xl": TransformerXLConfig(num_sinusoids=6),
    "transformer_xl in a window": TransformerXLConfig(
        num_sinusoids=6, shared=True, window=WindowConfig(width=(3.0,), block=4)
    ),
    "transformer_xl within a span": TransformerXLConfig(num_sinusoids=6, span=7),
    "shaw": ShawConfig(window=5),
    "shaw within a span": ShawConfig(window=5, span=9),
    "alibi": AlibiConfig(),
    "alibi within a span": AlibiConfig(span=6),
}


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    pieces=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    dense=st.booleans(),
    grad=st.booleans(),
)
def test_any_split_gives_the_same_result_dense_and_windowed(
    name: str, pieces: list[int], dense: bool, grad: bool
) -> None:
    encoding = CONFIGS[name].build(**SHAPE).double().eval()
    length = sum(pieces)
    whole = attend(encoding, places(length, 5), [length], dense=True)
    with torch.set_grad_enabled(grad):
        split = attend(encoding, places(length), pieces, dense=dense)
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["transformer_xl in a window", "shaw", "alibi within a span"])
def test_states_keep_tables_only_while_weights_are_unchanged(name: str) -> None:
    encoding = CONFIGS[name].build(**SHAPE).double().eval()
    with torch.no_grad():
        _, state = encoding.prepare(places(3), encoding.init_state(0, torch.device("cpu")))
        first, state = encoding.prepare(places(1, 3), state)
        second, state = encoding.prepare(places(1, 4), state)
        assert first is second
        for parameter in encoding.parameters():
            parameter.mul_(1.01)
        changed, state = encoding.prepare(places(1, 5), state)
        assert (changed is not second) == bool(list(encoding.parameters()))
        assert state.length == 6


def test_invalid_configs_are_refused() -> None:
    configs: list[tuple[Any, str]] = [
        (ShawConfig(window=0), "window"),
        (ShawConfig(span=0), "span"),
        (TransformerXLConfig(num_sinusoids=5), "expected an even number"),
    ]
    for config, message in configs:
        with pytest.raises(ValueError, match=message):
            table_of(config.build(**SHAPE), 3)
