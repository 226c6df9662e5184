"""Configs that are made in Python are checked like those of files."""

from __future__ import annotations

from typing import Any

import pytest

from relpe import (
    AlgebraicConfig,
    ConvSPEConfig,
    FavorConfig,
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
    ],
)
def test_values_out_of_range_are_refused_when_a_config_is_made(
    config: Any, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(**values)
