"""Positional encodings: `EncodingConfig` lists them all."""

from __future__ import annotations

from relpe.encodings.baselines import NoEncodingConfig, RopeConfig
from relpe.encodings.sine_spe import SineSPEConfig

EncodingConfig = SineSPEConfig | RopeConfig | NoEncodingConfig
