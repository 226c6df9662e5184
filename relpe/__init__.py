"""Positional encodings for linear attention, and the decoder that uses them."""

from __future__ import annotations

from relpe.attention.feature_maps import EluConfig, FavorConfig, ReluConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import (
    AlgebraicConfig,
    AlibiConfig,
    ConvSPEConfig,
    EncodingConfig,
    LearnedPositionConfig,
    NoEncodingConfig,
    RopeConfig,
    ShawConfig,
    SineSPEConfig,
    SinusoidConfig,
    SirenConfig,
    SirenSPEConfig,
    TransformerXLConfig,
    TreeSQConfig,
)
from relpe.encodings.base import Encoding, OffsetTable
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig

__all__ = [
    "AlgebraicConfig",
    "AlibiConfig",
    "ConvSPEConfig",
    "Decoder",
    "DecoderConfig",
    "DecoderState",
    "EluConfig",
    "Encoding",
    "EncodingConfig",
    "EventsConfig",
    "FavorConfig",
    "LayerConfig",
    "LearnedPositionConfig",
    "LinearAttentionConfig",
    "NoEncodingConfig",
    "OffsetTable",
    "ReluConfig",
    "RopeConfig",
    "ShawConfig",
    "SineSPEConfig",
    "SinusoidConfig",
    "SirenConfig",
    "SirenSPEConfig",
    "SoftmaxAttentionConfig",
    "TransformerXLConfig",
    "TreeSQConfig",
    "WindowedAttentionConfig",
]
