"""Positional encodings: `EncodingConfig` lists them all."""

from __future__ import annotations

from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.baselines import NoEncodingConfig, RopeConfig
from relpe.encodings.offset.baselines import (
    AlibiConfig,
    LearnedPositionConfig,
    ShawConfig,
    SinusoidConfig,
    TransformerXLConfig,
)
from relpe.encodings.offset.siren import SirenConfig
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.encodings.stochastic.siren import SirenSPEConfig
from relpe.encodings.tree_sq import TreeSQConfig

EncodingConfig = (
    SineSPEConfig
    | ConvSPEConfig
    | SirenSPEConfig
    | AlgebraicConfig
    | SirenConfig
    | RopeConfig
    | AlibiConfig
    | ShawConfig
    | TransformerXLConfig
    | SinusoidConfig
    | LearnedPositionConfig
    | TreeSQConfig
    | NoEncodingConfig
)
