"""Positional encodings: `EncodingConfig` lists them all."""

from __future__ import annotations

from relpe.encodings.algebraic import AlgebraicConfig
from relpe.encodings.baselines import NoEncodingConfig, RopeConfig
from relpe.encodings.conv_spe import ConvSPEConfig
from relpe.encodings.relative import (
    AlibiConfig,
    LearnedPositionConfig,
    ShawConfig,
    SinusoidConfig,
    TransformerXLConfig,
)
from relpe.encodings.sine_spe import SineSPEConfig
from relpe.encodings.siren import SirenConfig
from relpe.encodings.siren_spe import SirenSPEConfig
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
