"""Positional encodings: `EncodingConfig` lists them all."""

from __future__ import annotations

from relpe.encodings.absolute import LearnedPositionConfig, SinusoidConfig, TreeSQConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.base import NoEncodingConfig
from relpe.encodings.offset.alibi import AlibiConfig
from relpe.encodings.offset.kerple import KerpleConfig
from relpe.encodings.offset.shaw import ShawConfig
from relpe.encodings.offset.siren import SirenConfig
from relpe.encodings.offset.t5 import T5Config
from relpe.encodings.offset.transformer_xl import TransformerXLConfig
from relpe.encodings.rope import RopeConfig
from relpe.encodings.selective import SelectiveRopeConfig
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.encodings.stochastic.siren import SirenSPEConfig
from relpe.encodings.stochastic.structure import StructureSPEConfig

EncodingConfig = (
    SineSPEConfig
    | ConvSPEConfig
    | SirenSPEConfig
    | StructureSPEConfig
    | AlgebraicConfig
    | SirenConfig
    | RopeConfig
    | SelectiveRopeConfig
    | AlibiConfig
    | KerpleConfig
    | T5Config
    | ShawConfig
    | TransformerXLConfig
    | SinusoidConfig
    | LearnedPositionConfig
    | TreeSQConfig
    | NoEncodingConfig
)
