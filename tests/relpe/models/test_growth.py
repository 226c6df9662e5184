from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlgebraicConfig, RopeConfig
from relpe.models.decoder import DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.growth import can_grow, grow
from relpe.models.layers import LayerConfig

DELTA = LayerConfig(attention=DeltaAttentionConfig(), count=2)
WINDOWED = LayerConfig(attention=WindowedAttentionConfig(span=9))
SMALL = DecoderConfig(
    vocabulary_size=20,
    width=16,
    num_layers=6,
    num_heads=2,
    hidden=24,
    encoding=AlgebraicConfig(),
    layers=(DELTA, WINDOWED),
    events=EventsConfig(closing=((3, 5), (8, 11)), hidden=24, most=3),
)


def logits(decoder: Any, tokens: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(tokens.shape[1])[None, :, None]
    return decoder(tokens, positions, decoder.init_state(len(tokens)))[0]


@pytest.mark.parametrize("pattern", [((3, 1), 12), ((2, 1), 6), ((2, 2), 11), ((4, 1), 10)])
def test_a_deeper_model_begins_as_the_function_it_is_grown_from(pattern):
    (num_delta, num_windowed), depth = pattern
    layers = (replace(DELTA, count=num_delta), replace(WINDOWED, count=num_windowed))
    torch.manual_seed(0)
    first: Any = SMALL.build()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    deeper: Any = replace(SMALL, num_layers=depth, layers=layers).build()
    grow(deeper, first)
    tokens = torch.randint(0, 20, (2, 40))
    torch.testing.assert_close(logits(deeper, tokens), logits(first, tokens), rtol=0, atol=1e-5)
    kinds = {type(block.attention.operation) for block in deeper.blocks}
    assert len(kinds) == 2


def test_new_layers_learn_from_the_first_step_on():
    first: Any = SMALL.build()
    deeper: Any = replace(SMALL, num_layers=12, layers=(replace(DELTA, count=3), WINDOWED)).build()
    grow(deeper, first)
    logits(deeper, torch.randint(0, 20, (2, 40))).square().mean().backward()
    for block in deeper.blocks:
        assert block.attention.project_out.weight.grad.abs().max() > 0
        assert block.feed_forward.project_out.weight.grad.abs().max() > 0
        assert block.attention.project_in.weight.abs().max() > 0


@given(st.integers(6, 24))
def test_layers_keep_their_order(depth):
    assert can_grow(replace(SMALL, num_layers=depth), SMALL)


def test_models_that_are_not_a_deeper_copy_are_refused():
    for other in (
        replace(SMALL, num_layers=3),
        replace(SMALL, hidden=32),
        replace(SMALL, encoding=RopeConfig()),
        replace(SMALL, num_layers=12, layers=(DELTA,)),
    ):
        assert not can_grow(other, SMALL)
        with pytest.raises(ValueError, match="differ in more than layers"):
            grow(other.build(), SMALL.build())
