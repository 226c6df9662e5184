"""Configs that are made in Python are checked like those of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relpe import (
    AlgebraicConfig,
    AttentionLayerConfig,
    ConvSPEConfig,
    DecoderConfig,
    FavorConfig,
    KerpleConfig,
    LayerConfig,
    LearnedPositionConfig,
    LinearAttentionConfig,
    ReluConfig,
    RopeConfig,
    SineSPEConfig,
    SirenConfig,
    SirenNetworkConfig,
    WindowConfig,
    WindowedAttentionConfig,
)


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (
            AlgebraicConfig,
            {"placement": "numeratr"},
            "placement is 'numeratr', expected 'before' or 'numerator'",
        ),
        (AlgebraicConfig, {"initialization": "rop"}, "initialization is 'rop', expected 'rope'"),
        (RopeConfig, {"kind": "alibi"}, "kind is 'alibi', expected 'rope'"),
        (RopeConfig, {"base": 0}, "base is 0, expected a positive number"),
        (SineSPEConfig, {"num_sines": 0}, "num_sines is 0, expected at least 1"),
        (SineSPEConfig, {"num_realizations": -1}, "num_realizations is -1, expected at least"),
        (ConvSPEConfig, {"noise": "uniform"}, "noise is 'uniform', expected 'normal'"),
        (ConvSPEConfig, {"num_realizations": 0}, "num_realizations is 0, expected at least 1"),
        (SirenConfig, {"coordinates": "axes"}, "coordinates is 'axes', expected 'index'"),
        (SirenNetworkConfig, {"initialization": "x"}, "initialization is 'x'"),
        (WindowConfig, {"mode": "hard"}, "mode is 'hard'"),
        (LearnedPositionConfig, {"num_positions": 0}, "num_positions is 0"),
        (ReluConfig, {"offset": -1}, "offset is -1, expected at least 0"),
        (ReluConfig, {"offset": float("nan")}, "offset is nan, expected at least 0"),
        (FavorConfig, {"kind": "relu"}, "kind is 'relu', expected 'favor'"),
        (WindowedAttentionConfig, {"span": 0}, "span is 0, expected at least 1"),
        (LinearAttentionConfig, {"half_lives": (1, -1)}, "expected two positive numbers"),
        (
            LinearAttentionConfig,
            {"half_lives": (1,)},
            "expected a tuple of 2 values",
        ),
        (LinearAttentionConfig, {"half_lives": 5}, "2 values, each a number or None"),
        (ConvSPEConfig, {"taps": 5}, "taps is 5, expected a tuple of any number of values"),
        (SineSPEConfig, {"num_sines": 2.0}, "num_sines is 2.0, expected an integer"),
        (SineSPEConfig, {"num_sines": True}, "num_sines is True, expected an integer"),
        (SineSPEConfig, {"gated": "no"}, "gated is 'no', expected True or False"),
        (RopeConfig, {"base": "10"}, "base is '10', expected a number"),
        (KerpleConfig, {"span": "all"}, "span is 'all', expected an integer or None"),
        (SirenConfig, {"network": 8}, r"network is 8, expected a config such as SirenNetwork"),
        (AttentionLayerConfig, {"encoding": "rope"}, "encoding is 'rope', expected a config such"),
        (AttentionLayerConfig, {"encoding": RopeConfig}, "encoding is the class RopeConfig"),
        (DecoderConfig, {"num_layers": "2"}, "num_layers is '2', expected an integer"),
        (DecoderConfig, {"encoding": torch.nn.ReLU()}, "encoding is of type ReLU, expected"),
        (DecoderConfig, {"encoding": LinearAttentionConfig()}, "encoding is of type LinearAtt"),
        (DecoderConfig, {"layers": (RopeConfig(),)}, "layers is .* each a config such as LayerCon"),
        (LinearAttentionConfig, {"feature_map": RopeConfig()}, "feature_map is of type RopeConfig"),
        (LayerConfig, {"attention": "linear"}, "attention is 'linear', expected a config such"),
    ],
)
def test_values_out_of_range_are_refused_when_a_config_is_made(
    config: Any, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(**values)


def test_integers_may_be_numbers_and_lists_tuples() -> None:
    ReluConfig(offset=1)
    SineSPEConfig(num_sines=np.int64(3))  # pyright: ignore[reportArgumentType] - has no stubs
    ConvSPEConfig(taps=[5])  # pyright: ignore[reportArgumentType] - as from YAML
