"""Linear attention, and positional encodings that know relative positions."""

from __future__ import annotations

from relpe.attention import LinearAttentionConfig
from relpe.decoder import Decoder, DecoderConfig, DecoderState
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
from relpe.feature_maps import EluConfig, FavorConfig, ReluConfig
from relpe.softmax_attention import SoftmaxAttentionConfig
from relpe.windowed_attention import WindowedAttentionConfig

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
    "FavorConfig",
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
