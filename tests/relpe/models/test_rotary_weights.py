from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.rope import RopeConfig
from relpe.models.decoder import DecoderConfig
from relpe.models.pointer.config import PointerConfig
from relpe.models.rotary_weights import load_rotary, takes_rotary

ROTARY = DecoderConfig(
    vocabulary_size=30,
    width=24,
    num_layers=2,
    num_heads=3,
    hidden=16,
    attention=SoftmaxAttentionConfig(),
    encoding=RopeConfig(base=500.0),
)
ALGEBRAIC = replace(
    ROTARY,
    attention=WindowedAttentionConfig(span=40),
    encoding=AlgebraicConfig(),
    noise_seed=3,
    pointer=PointerConfig(unit=0),
)


@pytest.mark.parametrize(
    "encoding", [AlgebraicConfig(), AlgebraicConfig(shared_by_heads=True, shared_by_layers=False)]
)
@pytest.mark.parametrize("attention", [ALGEBRAIC.attention, ROTARY.attention])
def test_the_function_stays_the_same_within_the_window(encoding, attention) -> None:
    torch.manual_seed(0)
    rotary = ROTARY.build().double()
    decoder = replace(ALGEBRAIC, encoding=encoding, attention=attention).build().double()
    load_rotary(decoder, rotary)
    tokens = torch.randint(30, (2, 40))
    positions = 7 + torch.arange(40)[None, :, None]
    expected, made = (
        model(tokens, positions, model.init_state(2))[0] for model in (rotary, decoder)
    )
    # angles are kept in float32 by the initialization
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "other",
    [
        replace(ALGEBRAIC, num_layers=3),
        replace(ALGEBRAIC, attention=LinearAttentionConfig()),
        replace(ALGEBRAIC, encoding=AlgebraicConfig(basis=True)),
        replace(ALGEBRAIC, encoding=AlgebraicConfig(one_sided=True)),
        ROTARY,
    ],
)
def test_other_models_refuse_the_weights(other) -> None:
    assert not takes_rotary(other, ROTARY)
    if other.attention.name != "relu":
        with pytest.raises(ValueError, match="differ in more"):
            load_rotary(other.build(), ROTARY.build())
