"""Small decoders of every encoding and attention, and their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.feature_maps import EluConfig, FavorConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import (
    AlgebraicConfig,
    AlibiConfig,
    ConvSPEConfig,
    KerpleConfig,
    LearnedPositionConfig,
    NoEncodingConfig,
    RopeConfig,
    SelectiveRopeConfig,
    ShawConfig,
    SineSPEConfig,
    SinusoidConfig,
    SirenConfig,
    SirenSPEConfig,
    T5Config,
    TransformerXLConfig,
    TreeSQConfig,
)
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.selective import SelectiveRope
from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig
from relpe.models.pointer.config import PointerConfig

SMALL_SIREN = SirenNetworkConfig(width=8)
SINE = SineSPEConfig(num_sines=3, num_realizations=8)
EVENTS = EventsConfig(closing=((3, 5), (8, 11)), hidden=24, most=3)
CONFIGS: dict[str, dict[str, Any]] = {
    "sine relu": {"encoding": SINE},
    "sine favor": {
        "encoding": SINE,
        "attention": LinearAttentionConfig(feature_map=FavorConfig(num_features=8)),
    },
    "sine relu, fading": {"encoding": SINE, "attention": LinearAttentionConfig(half_lives=(1, 40))},
    "sine favor, fading": {
        "encoding": SINE,
        "attention": LinearAttentionConfig(
            feature_map=FavorConfig(num_features=8), half_lives=(2, 9)
        ),
    },
    "sine softmax": {
        "encoding": SineSPEConfig(num_sines=2, num_realizations=6),
        "attention": SoftmaxAttentionConfig(),
    },
    "ungated, not normalized": {
        "encoding": SineSPEConfig(num_sines=2, num_realizations=8, gated=False),
        "normalize_queries_keys": False,
        "convolution_taps": 0,
    },
    "sine relu, layers of their own": {
        "encoding": SineSPEConfig(num_sines=2, num_realizations=6, shared_by_layers=False)
    },
    "sine windowed": {
        "encoding": SineSPEConfig(num_realizations=6),
        "attention": WindowedAttentionConfig(span=11),
    },
    "algebraic windowed": {
        "encoding": AlgebraicConfig(),
        "attention": WindowedAttentionConfig(span=60),
    },
    "rope softmax": {"encoding": RopeConfig(), "attention": SoftmaxAttentionConfig()},
    "selective rope softmax": {
        "encoding": SelectiveRopeConfig(),
        "attention": SoftmaxAttentionConfig(),
    },
    "selective rope favor": {
        "encoding": SelectiveRopeConfig(base=50.0),
        "attention": LinearAttentionConfig(feature_map=FavorConfig(num_features=8)),
    },
    "conv relu": {"encoding": ConvSPEConfig(taps=(5,), num_realizations=6)},
    "conv favor, ungated, signs": {
        "encoding": ConvSPEConfig(taps=(3,), num_realizations=6, gated=False, noise="signs"),
        "attention": LinearAttentionConfig(feature_map=FavorConfig(num_features=8)),
    },
    "siren spe relu": {
        "encoding": SirenSPEConfig(num_realizations=6, max_taps=(9,), reference_length=16.0),
    },
    "conv favor, layers of their own": {
        "encoding": ConvSPEConfig(taps=(5,), num_realizations=6, shared_by_layers=False),
        "attention": LinearAttentionConfig(
            feature_map=FavorConfig(num_features=8, redraw_interval=40)
        ),
    },
    "siren spe relu, layers of their own": {
        "encoding": SirenSPEConfig(
            num_realizations=6, max_taps=(9,), reference_length=16.0, shared_by_layers=False
        ),
    },
    "algebraic softmax": {
        "encoding": AlgebraicConfig(basis=True),
        "attention": SoftmaxAttentionConfig(),
    },
    "algebraic softmax, decay": {
        "encoding": AlgebraicConfig(decay=0.98),
        "attention": SoftmaxAttentionConfig(),
    },
    "algebraic favor": {
        "encoding": AlgebraicConfig(shared_by_layers=False),
        "attention": LinearAttentionConfig(feature_map=FavorConfig(num_features=8)),
    },
    "algebraic relu, numerator": {"encoding": AlgebraicConfig(placement="numerator")},
    "algebraic elu, numerator, fading": {
        "encoding": AlgebraicConfig(placement="numerator"),
        "attention": LinearAttentionConfig(feature_map=EluConfig(), half_lives=(1, 40)),
    },
    "siren windowed": {
        "encoding": SirenConfig(network=SMALL_SIREN),
        "attention": WindowedAttentionConfig(),
    },
    "siren softmax, no window": {
        "encoding": SirenConfig(network=SMALL_SIREN, window=None),
        "attention": SoftmaxAttentionConfig(),
    },
    "transformer-xl windowed": {
        "encoding": TransformerXLConfig(num_sinusoids=4, span=20),
        "attention": WindowedAttentionConfig(),
    },
    "shaw softmax": {"encoding": ShawConfig(window=4), "attention": SoftmaxAttentionConfig()},
    "alibi windowed": {"encoding": AlibiConfig(), "attention": WindowedAttentionConfig(span=11)},
    "kerple windowed": {
        "encoding": KerpleConfig(),
        "attention": WindowedAttentionConfig(span=11),
    },
    "t5 softmax": {
        "encoding": T5Config(num_buckets=6, max_distance=20),
        "attention": SoftmaxAttentionConfig(),
    },
    "sinusoid relu": {"encoding": SinusoidConfig()},
    "tree_sq relu": {"encoding": TreeSQConfig(max_depth=6)},
    "learned softmax": {
        "encoding": LearnedPositionConfig(num_positions=1000),
        "attention": SoftmaxAttentionConfig(),
    },
    "layers: sine relu and algebraic windowed, 3:1": {
        "encoding": SINE,
        "num_layers": 4,
        "attention": LinearAttentionConfig(half_lives=(1, 40)),
        "layers": (
            LayerConfig(count=3),
            LayerConfig(attention=WindowedAttentionConfig(span=13), encoding=AlgebraicConfig()),
        ),
    },
    "layers: sine favor, algebraic windowed and none": {
        "num_layers": 5,
        "encoding": AlgebraicConfig(shared_by_layers=False),
        "attention": WindowedAttentionConfig(span=9),
        "layers": (
            LayerConfig(
                attention=LinearAttentionConfig(feature_map=FavorConfig(num_features=6)),
                encoding=SineSPEConfig(num_realizations=6, shared_by_layers=False),
            ),
            LayerConfig(),
            LayerConfig(attention=WindowedAttentionConfig(span=24)),
            LayerConfig(
                attention=LinearAttentionConfig(feature_map=EluConfig()),
                encoding=NoEncodingConfig(),
            ),
        ),
    },
    "layers: siren windowed and siren spe relu": {
        "encoding": SirenSPEConfig(num_realizations=6, max_taps=(9,), reference_length=16.0),
        "layers": (
            LayerConfig(
                attention=WindowedAttentionConfig(), encoding=SirenConfig(network=SMALL_SIREN)
            ),
            LayerConfig(),
        ),
    },
    "layers: sinusoid, alibi, two spans of siren": {
        "encoding": SirenConfig(network=SMALL_SIREN),
        "attention": WindowedAttentionConfig(),
        "num_layers": 4,
        "layers": (
            LayerConfig(attention=LinearAttentionConfig(), encoding=SinusoidConfig()),
            LayerConfig(encoding=AlibiConfig(), attention=WindowedAttentionConfig(span=11)),
            LayerConfig(),
            LayerConfig(encoding=SirenConfig(network=SirenNetworkConfig(width=4))),
        ),
    },
    "events: sine relu, fading": {
        "encoding": SINE,
        "attention": LinearAttentionConfig(half_lives=(1, 40)),
        "events": EVENTS,
    },
    "events: sine favor": {
        "encoding": SineSPEConfig(num_realizations=6, shared_by_layers=False),
        "attention": LinearAttentionConfig(feature_map=FavorConfig(num_features=6)),
        "events": EVENTS,
        "convolution_taps": 0,
    },
    "events: conv relu": {
        "encoding": ConvSPEConfig(taps=(5,), num_realizations=6),
        "events": EVENTS,
    },
    "events: siren windowed": {
        "encoding": SirenConfig(network=SMALL_SIREN),
        "attention": WindowedAttentionConfig(),
        "events": EVENTS,
    },
    "events: sinusoid elu": {
        "encoding": SinusoidConfig(),
        "attention": LinearAttentionConfig(feature_map=EluConfig()),
        "events": EVENTS,
    },
    "events: sine relu and algebraic windowed, 1:1": {
        "encoding": SINE,
        "layers": (
            LayerConfig(),
            LayerConfig(attention=WindowedAttentionConfig(span=13), encoding=AlgebraicConfig()),
        ),
        "events": EVENTS,
    },
    "events: algebraic elu, numerator, fading": {
        "encoding": AlgebraicConfig(placement="numerator"),
        "attention": LinearAttentionConfig(feature_map=EluConfig(), half_lives=(1, 40)),
        "events": EVENTS,
    },
    "algebraic delta": {"encoding": AlgebraicConfig(), "attention": DeltaAttentionConfig()},
    "algebraic delta, negative eigenvalues": {
        "encoding": AlgebraicConfig(),
        "attention": DeltaAttentionConfig(negative_eigenvalues=True),
    },
    "layers: none delta and rope delta": {
        "encoding": RopeConfig(),
        "attention": DeltaAttentionConfig(initial_half_lives=(2.0, 30.0)),
        "layers": (LayerConfig(encoding=NoEncodingConfig()), LayerConfig()),
    },
    "events: rope delta": {
        "encoding": RopeConfig(),
        "attention": DeltaAttentionConfig(),
        "events": EVENTS,
    },
    "events: selective rope delta, windowed": {
        "encoding": SelectiveRopeConfig(),
        "layers": (
            LayerConfig(attention=DeltaAttentionConfig()),
            LayerConfig(attention=WindowedAttentionConfig(span=13)),
        ),
        "events": EVENTS,
    },
    "events: algebraic delta and windowed, 3:1": {
        "encoding": AlgebraicConfig(),
        "layers": (
            LayerConfig(attention=DeltaAttentionConfig(), count=3),
            LayerConfig(attention=WindowedAttentionConfig(span=13)),
        ),
        "events": EVENTS,
    },
    "layers: conv relu and none delta": {
        "encoding": ConvSPEConfig(num_realizations=8, taps=(5,)),
        "layers": (
            LayerConfig(),
            LayerConfig(attention=DeltaAttentionConfig(), encoding=NoEncodingConfig()),
        ),
    },
    "sine relu, gated decay": {
        "encoding": SINE,
        "attention": LinearAttentionConfig(half_lives=(1, 40), gated=True),
    },
    "algebraic favor, gated decay": {
        "encoding": AlgebraicConfig(),
        "attention": LinearAttentionConfig(
            feature_map=FavorConfig(num_features=8), half_lives=(1, 40), gated=True
        ),
    },
    "algebraic elu, numerator, gated decay": {
        "encoding": AlgebraicConfig(placement="numerator"),
        "attention": LinearAttentionConfig(feature_map=EluConfig(), half_lives=(1, 40), gated=True),
    },
    "none elu": {
        "encoding": NoEncodingConfig(),
        "attention": LinearAttentionConfig(feature_map=EluConfig()),
    },
}

"""Every encoding and attention, and what they can be combined with. Tests of all decoders,
classifiers and encoder-decoders take their entries from here."""

THOROUGH = (
    *("sine favor", "sine relu, fading", "sine softmax", "sine relu, layers of their own"),
    *("selective rope softmax", "selective rope favor", "conv favor, ungated, signs"),
    *("siren spe relu, layers of their own", "algebraic softmax", "siren softmax, no window"),
    *("alibi windowed", "sinusoid relu", "layers: sine favor, algebraic windowed and none"),
    *("layers: siren windowed and siren spe relu", "events: sine favor", "events: conv relu"),
    *("events: siren windowed", "events: sinusoid elu", "events: algebraic elu, numerator, fading"),
    *("algebraic delta, negative eigenvalues", "layers: none delta and rope delta"),
    *("events: rope delta", "events: algebraic delta and windowed, 3:1"),
    *("layers: conv relu and none delta", "sine relu, gated decay"),
    "algebraic elu, numerator, gated decay",
)
"""Entries that combine what others of `CONFIGS` have too; only the slow run tests them."""


def parameters(names: Iterable[str]) -> list[Any]:
    """Names of entries as parameters of a test; those of `THOROUGH` are slow."""
    assert set(THOROUGH) <= CONFIGS.keys()
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in THOROUGH else name for name in names
    ]


every_decoder = pytest.mark.parametrize("name", parameters(CONFIGS))


def decoder(name: str) -> Decoder:
    """The decoder of an entry of `CONFIGS`, with the same weights each time."""
    torch.manual_seed(0)
    sizes = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24}
    model = DecoderConfig(**{**sizes, **CONFIGS[name]}).build().eval()
    for encoding in model.encodings:
        if isinstance(encoding, SelectiveRope):  # otherwise it would be rotary embedding
            torch.nn.init.normal_(encoding.moves, std=0.2)
    return model


def in_pieces(
    model: Decoder,
    tokens: torch.Tensor,
    pieces: Iterable[int],
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits of tokens (b, l), which the model reads in pieces; by default from position 0 on."""
    if positions is None:
        positions = torch.arange(tokens.shape[1])[None, :, None]
    state, outs, start = model.init_state(len(tokens)), [], 0
    for size in pieces:
        piece = slice(start, start + size)
        out, state = model(tokens[:, piece], positions[:, piece], state)
        outs.append(out)
        start += size
    return torch.cat(outs, 1)


def tokens_of(length: int, rows: int = 2) -> torch.Tensor:
    """Random tokens (rows, length), the same for the same length."""
    return torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(length))


def small_decoder(vocabulary_size: int = 12, pointer: PointerConfig | None = None) -> Decoder:
    """A decoder of two layers with sine SPE."""
    torch.manual_seed(0)
    encoding = SineSPEConfig(num_sines=2, num_realizations=8)
    config = DecoderConfig(
        vocabulary_size=vocabulary_size,
        width=16,
        num_layers=2,
        num_heads=2,
        hidden=24,
        encoding=encoding,
        pointer=pointer,
    )
    return config.build().eval()


def big_decoder(**changes: Any) -> Decoder:
    """A decoder for compiled steps.

    Its sizes are no multiples of the vector width, so that loops over vectors have a remainder. Its
    weights are large, so that scores differ clearly.
    """
    torch.manual_seed(1)
    sizes = {"vocabulary_size": 97, "width": 68, "num_layers": 2, "num_heads": 2, "hidden": 101}
    model = DecoderConfig(**sizes, **changes).build().eval()
    for weight in model.parameters():
        weight.data *= 3
    return model


def logits_of(model: Decoder, tokens: torch.Tensor, start: int) -> np.ndarray:
    """Logits (l, v) of tokens (l,) in one call of the decoder."""
    places = torch.arange(start, start + len(tokens))[None, :, None]
    with torch.no_grad():
        return model(tokens[None], places, model.init_state(1))[0][0].numpy()
