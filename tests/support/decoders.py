"""Small decoders of every encoding and attention, and their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
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
    StructureSPEConfig,
    T5Config,
    TransformerXLConfig,
    TreeSQConfig,
)
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.selective import SelectiveRope
from relpe.encodings.stochastic.structure import LabelsKernel, PlacesKernel
from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig
from relpe.models.pointer.config import PointerConfig

RELU, ELU = LinearAttentionConfig(), LinearAttentionConfig(feature_map=EluConfig())
FAVOR = LinearAttentionConfig(feature_map=FavorConfig(num_features=8))
FADING, FADING_ELU = (replace(attention, half_lives=(1, 40)) for attention in (RELU, ELU))
SOFTMAX, DELTA = SoftmaxAttentionConfig(), DeltaAttentionConfig()
WINDOWED, SHORT = WindowedAttentionConfig(), WindowedAttentionConfig(span=11)
SINE = SineSPEConfig(num_sines=3, num_realizations=8)
SMALL_SINE = SineSPEConfig(num_sines=2, num_realizations=6)
CONV = ConvSPEConfig(taps=(5,), num_realizations=6)
SIREN_SPE = SirenSPEConfig(num_realizations=6, max_taps=(9,), reference_length=16.0)
SIREN = SirenConfig(network=SirenNetworkConfig(width=8))
STRUCTURE = StructureSPEConfig(
    terms=((PlacesKernel(num_sines=2),), (PlacesKernel(unit=4.0), LabelsKernel())),
    num_realizations=6,
)
ALGEBRAIC, ROPE, MOVING = AlgebraicConfig(), RopeConfig(), SelectiveRopeConfig()
NUMERATOR, NONE = AlgebraicConfig(placement="numerator"), NoEncodingConfig()
LINE_THEN_WINDOW = (
    LayerConfig(),
    LayerConfig(attention=WindowedAttentionConfig(span=13), encoding=ALGEBRAIC),
)
EVENTS = EventsConfig(closing=((3, 5), (8, 11)), hidden=24, most=3)


def own(encoding: Any) -> Any:
    """The encoding with parameters of each layer's own."""
    return replace(encoding, shared_by_layers=False)


def entry(encoding: Any, attention: Any = RELU, **changes: Any) -> dict[str, Any]:
    """Settings of a decoder."""
    return {"encoding": encoding, "attention": attention, **changes}


CONFIGS: dict[str, dict[str, Any]] = {
    "sine relu": entry(SINE),
    "sine favor": entry(SINE, FAVOR),
    "sine relu, fading": entry(SINE, FADING),
    "sine favor, fading": entry(SINE, replace(FAVOR, half_lives=(2, 9))),
    "sine softmax": entry(SMALL_SINE, SOFTMAX),
    "sine relu, sparse noise": entry(replace(SINE, noise="sparse")),
    "sine favor, sparse noise, layers of their own": entry(
        own(replace(SINE, noise="sparse")), FAVOR
    ),
    "ungated, not normalized": entry(
        SineSPEConfig(num_sines=2, num_realizations=8, gated=False),
        normalize_queries_keys=False,
        convolution_taps=0,
    ),
    "sine relu, layers of their own": entry(own(SMALL_SINE)),
    "sine windowed": entry(SineSPEConfig(num_realizations=6), SHORT),
    "algebraic windowed": entry(ALGEBRAIC, WindowedAttentionConfig(span=60)),
    "rope softmax": entry(ROPE, SOFTMAX),
    "selective rope softmax": entry(MOVING, SOFTMAX),
    "selective rope favor": entry(SelectiveRopeConfig(base=50.0), FAVOR),
    "structure relu": entry(STRUCTURE),
    "structure favor, layers of their own": entry(own(STRUCTURE), FAVOR),
    "conv relu": entry(CONV),
    "conv favor, ungated, signs": entry(
        ConvSPEConfig(taps=(3,), num_realizations=6, gated=False, noise="signs"), FAVOR
    ),
    "siren spe relu": entry(SIREN_SPE),
    "conv favor, layers of their own": entry(
        own(CONV),
        LinearAttentionConfig(feature_map=FavorConfig(num_features=8, redraw_interval=40)),
    ),
    "siren spe relu, layers of their own": entry(own(SIREN_SPE)),
    "algebraic softmax": entry(AlgebraicConfig(basis=True), SOFTMAX),
    "algebraic softmax, decay": entry(AlgebraicConfig(decay=0.98), SOFTMAX),
    "algebraic favor": entry(own(ALGEBRAIC), FAVOR),
    "algebraic relu, numerator": entry(NUMERATOR),
    "algebraic elu, numerator, fading": entry(NUMERATOR, FADING_ELU),
    "siren windowed": entry(SIREN, WINDOWED),
    "siren softmax, no window": entry(replace(SIREN, window=None), SOFTMAX),
    "transformer-xl windowed": entry(TransformerXLConfig(num_sinusoids=4, span=20), WINDOWED),
    "shaw softmax": entry(ShawConfig(window=4), SOFTMAX),
    "alibi windowed": entry(AlibiConfig(), SHORT),
    "kerple windowed": entry(KerpleConfig(), SHORT),
    "t5 softmax": entry(T5Config(num_buckets=6, max_distance=20), SOFTMAX),
    "sinusoid relu": entry(SinusoidConfig()),
    "tree_sq relu": entry(TreeSQConfig(max_depth=6)),
    "learned softmax": entry(LearnedPositionConfig(num_positions=1000), SOFTMAX),
    "layers: sine relu and algebraic windowed, 3:1": entry(
        SINE,
        FADING,
        num_layers=4,
        layers=(LayerConfig(count=3), LINE_THEN_WINDOW[1]),
    ),
    "layers: sine favor, algebraic windowed and none": entry(
        own(ALGEBRAIC),
        WindowedAttentionConfig(span=9),
        num_layers=5,
        layers=(
            LayerConfig(
                attention=LinearAttentionConfig(feature_map=FavorConfig(num_features=6)),
                encoding=own(SineSPEConfig(num_realizations=6)),
            ),
            LayerConfig(),
            LayerConfig(attention=WindowedAttentionConfig(span=24)),
            LayerConfig(attention=ELU, encoding=NONE),
        ),
    ),
    "layers: siren windowed and siren spe relu": entry(
        SIREN_SPE, layers=(LayerConfig(attention=WINDOWED, encoding=SIREN), LayerConfig())
    ),
    "layers: sinusoid, alibi, two spans of siren": entry(
        SIREN,
        WINDOWED,
        num_layers=4,
        layers=(
            LayerConfig(attention=RELU, encoding=SinusoidConfig()),
            LayerConfig(encoding=AlibiConfig(), attention=SHORT),
            LayerConfig(),
            LayerConfig(encoding=SirenConfig(network=SirenNetworkConfig(width=4))),
        ),
    ),
    "events: sine relu, fading": entry(SINE, FADING, events=EVENTS),
    "events: sine favor": entry(
        own(SineSPEConfig(num_realizations=6)),
        LinearAttentionConfig(feature_map=FavorConfig(num_features=6)),
        events=EVENTS,
        convolution_taps=0,
    ),
    "events: conv relu": entry(CONV, events=EVENTS),
    "events: siren windowed": entry(SIREN, WINDOWED, events=EVENTS),
    "events: sinusoid elu": entry(SinusoidConfig(), ELU, events=EVENTS),
    "events: sine relu and algebraic windowed, 1:1": entry(
        SINE, layers=LINE_THEN_WINDOW, events=EVENTS
    ),
    "events: algebraic elu, numerator, fading": entry(NUMERATOR, FADING_ELU, events=EVENTS),
    "algebraic delta": entry(ALGEBRAIC, DELTA),
    "algebraic delta, negative eigenvalues": entry(
        ALGEBRAIC, DeltaAttentionConfig(negative_eigenvalues=True)
    ),
    "layers: none delta and rope delta": entry(
        ROPE,
        DeltaAttentionConfig(initial_half_lives=(2.0, 30.0)),
        layers=(LayerConfig(encoding=NONE), LayerConfig()),
    ),
    "events: rope delta": entry(ROPE, DELTA, events=EVENTS),
    "events: selective rope delta, windowed": entry(
        MOVING,
        layers=(
            LayerConfig(attention=DELTA),
            LayerConfig(attention=WindowedAttentionConfig(span=13)),
        ),
        events=EVENTS,
    ),
    "events: algebraic delta and windowed, 3:1": entry(
        ALGEBRAIC,
        layers=(
            LayerConfig(attention=DELTA, count=3),
            LayerConfig(attention=WindowedAttentionConfig(span=13)),
        ),
        events=EVENTS,
    ),
    "layers: conv relu and none delta": entry(
        ConvSPEConfig(num_realizations=8, taps=(5,)),
        layers=(LayerConfig(), LayerConfig(attention=DELTA, encoding=NONE)),
    ),
    "sine relu, gated decay": entry(SINE, replace(FADING, gated=True)),
    "algebraic favor, gated decay": entry(
        ALGEBRAIC, replace(FAVOR, half_lives=(1, 40), gated=True)
    ),
    "algebraic elu, numerator, gated decay": entry(NUMERATOR, replace(FADING_ELU, gated=True)),
    "none elu": entry(NONE, ELU),
}
"""Every encoding and attention, and what they can be combined with. Tests of all decoders,
classifiers and encoder-decoders take their entries from here."""

THOROUGH = (
    *("sine favor", "sine relu, fading", "sine softmax", "sine relu, layers of their own"),
    *("selective rope softmax", "selective rope favor", "conv favor, ungated, signs"),
    *("structure favor, layers of their own", "siren spe relu, layers of their own"),
    *("algebraic softmax", "siren softmax, no window"),
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
