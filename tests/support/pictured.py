"""Small decoders of every encoding, and the names of their plots."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.encodings import (
    AlgebraicConfig,
    AlibiConfig,
    ConvSPEConfig,
    EncodingConfig,
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
from relpe.encodings.algebraic.structures import (
    CycleStructure,
    DirectSum,
    SequenceStructure,
    TreeStructure,
)
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig
from relpe.encodings.stochastic.structure import LabelsKernel, PlacesKernel
from relpe.models.decoder import Decoder, DecoderConfig
from tests.support.decoders import FADING, RELU, SHORT, SOFTMAX

DELTA = DeltaAttentionConfig(initial_half_lives=(2.0, 30.0))
SMALL = SirenNetworkConfig(width=8)
STOCHASTIC = {"kernel", "features", "spectrum", "gates"}
MIXED = DirectSum(
    parts=(SequenceStructure(), CycleStructure(period=5), TreeStructure()), features=(2, 2, 4)
)
# encoding, attention, and the plots that are drawn; None: any
CASES: dict[str, tuple[EncodingConfig, object, set[str] | None]] = {
    "sine": (SineSPEConfig(num_sines=3, num_realizations=4), FADING, {*STOCHASTIC, "fading"}),
    "sine, ungated": (SineSPEConfig(gated=False), RELU, STOCHASTIC - {"gates"}),
    "conv": (ConvSPEConfig(taps=(5,), num_realizations=4), RELU, STOCHASTIC),
    "conv, two axes": (ConvSPEConfig(taps=(5, 3), num_realizations=4), RELU, STOCHASTIC),
    "siren spe": (SirenSPEConfig(network=SMALL, max_taps=(32,)), RELU, STOCHASTIC),
    "structure, two axes": (
        StructureSPEConfig(terms=((PlacesKernel(),), (PlacesKernel(axis=1), LabelsKernel()))),
        RELU,
        STOCHASTIC - {"spectrum"},
    ),
    "rope": (RopeConfig(), SOFTMAX, {"kernel", "angles"}),
    "selective rope": (SelectiveRopeConfig(), SOFTMAX, {"moves"}),
    "algebraic": (AlgebraicConfig(shared_by_layers=False), SOFTMAX, {"kernel", "angles"}),
    "algebraic sum": (AlgebraicConfig(structure=MIXED), SOFTMAX, {"kernel", "angles"}),
    "algebraic, decaying logits": (
        AlgebraicConfig(decay=0.98),
        SOFTMAX,
        {"kernel", "angles", "window"},
    ),
    "rope delta": (RopeConfig(), DELTA, {"kernel", "angles", "memory"}),
    "none, delta": (NoEncodingConfig(), DELTA, {"memory"}),
    "numerator": (AlgebraicConfig(placement="numerator"), FADING, {"kernel", "angles", "fading"}),
    "siren": (SirenConfig(network=SMALL), SHORT, {"features", "bias", "window"}),
    "siren, per head": (
        SirenConfig(network=SMALL, window=WindowConfig(width=(8.0, 150.0), per_head=True)),
        SHORT,
        {"features", "bias", "window"},
    ),
    "siren, joint": (
        SirenConfig(network=SMALL, window=None, coordinates="joint", num_axes=2),
        SOFTMAX,
        {"features", "bias"},
    ),
    "siren, additive": (
        SirenConfig(network=SMALL, coordinates="additive", num_axes=2),
        SHORT,
        {"features", "bias", "window"},
    ),
    "transformer-xl": (
        TransformerXLConfig(num_sinusoids=4, span=20),
        SHORT,
        {"features", "bias"},
    ),
    "shaw": (ShawConfig(window=4), SOFTMAX, {"features"}),
    "alibi": (AlibiConfig(), SHORT, {"window"}),
    "kerple": (KerpleConfig(), SOFTMAX, {"window"}),
    "t5": (T5Config(), SOFTMAX, {"window"}),
    "sinusoid": (SinusoidConfig(), RELU, {"positions"}),
    "learned": (LearnedPositionConfig(num_positions=30), SOFTMAX, {"positions"}),
    "tree": (TreeSQConfig(), SOFTMAX, {"positions"}),
    "tree of words": (
        TreeSQConfig(max_depth=4, tree=TreeStructure(word_axes=4)),
        SOFTMAX,
        {"positions"},
    ),
    "none": (NoEncodingConfig(), RELU, set()),
    "none, fading": (NoEncodingConfig(), FADING, {"fading"}),
    "none, gated decay": (NoEncodingConfig(), replace(FADING, gated=True), {"fading"}),
}
ATTENTIONS = {"softmax": SOFTMAX, "windowed": SHORT, "relu": RELU}
_seen = {type(case[0]) for case in CASES.values()}
for _config in (x for x in get_args(EncodingConfig) if x not in _seen):  # in one order
    _fits = _config().build(num_heads=2, head_dim=8).fits
    CASES[_config.kind] = (_config(), next(ATTENTIONS[x] for x in ATTENTIONS if x in _fits), None)


def decoder(name: str) -> Decoder:
    """The decoder of an entry of `CASES`, with new weights."""
    encoding, attention, _ = CASES[name]
    sizes = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24}
    return DecoderConfig(**sizes, encoding=encoding, attention=attention).build().eval()  # pyright: ignore[reportArgumentType]
