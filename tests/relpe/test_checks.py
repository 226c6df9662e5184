"""Configs that are made in Python are checked like those of files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from relpe import (
    AlgebraicConfig,
    AttentionLayerConfig,
    ConvSPEConfig,
    DecoderConfig,
    KerpleConfig,
    LearnedPositionConfig,
    LinearAttentionConfig,
    LinearState,
    OffsetTable,
    ReluConfig,
    RopeConfig,
    SineSPEConfig,
    SirenConfig,
    WindowConfig,
    WindowedAttentionConfig,
    causal_linear_attention,
    gated_delta_rule,
    linear_attention,
    windowed_attention,
)
from tests.support.flip import FlipConfig


def test_values_out_of_range_are_refused_when_a_config_is_made() -> None:
    cases: list[tuple[Any, str, object, str]] = [
        (AlgebraicConfig, "placement", "numeratr", "expected 'before' or 'numerator'"),
        (AlgebraicConfig, "initialization", "rop", "expected 'rope'"),
        (RopeConfig, "kind", "alibi", "expected 'rope'"),
        (RopeConfig, "base", 0, "expected a positive number"),
        (RopeConfig, "base", "10", "expected a number"),
        (SineSPEConfig, "num_sines", 0, "expected at least 1"),
        (SineSPEConfig, "num_sines", 2.0, "expected an integer"),
        (SineSPEConfig, "num_sines", True, "expected an integer"),
        (SineSPEConfig, "gated", "no", "expected True or False"),
        (ConvSPEConfig, "num_realizations", 0, "expected at least 1"),
        (ConvSPEConfig, "taps", 5, "expected a tuple of any number of values"),
        (SirenConfig, "network", 8, "expected a config such as SirenNetwork"),
        (WindowConfig, "mode", "hard", "expected"),
        (LearnedPositionConfig, "num_positions", 0, "expected at least 1"),
        (KerpleConfig, "span", "all", "expected an integer or None"),
        (ReluConfig, "offset", -1, "expected at least 0"),
        (ReluConfig, "offset", float("nan"), "expected at least 0"),
        (WindowedAttentionConfig, "span", 0, "expected at least 1"),
        (LinearAttentionConfig, "half_lives", (1,), "expected a tuple of 2 values"),
        (LinearAttentionConfig, "half_lives", 5, "2 values, each a number or None"),
        (LinearAttentionConfig, "feature_map", RopeConfig(), "of type RopeConfig"),
        (AttentionLayerConfig, "encoding", "rope", "is 'rope', expected a config such"),
        (AttentionLayerConfig, "encoding", RopeConfig, "is the class RopeConfig"),
        (DecoderConfig, "encoding", torch.nn.ReLU(), "is of type ReLU, expected"),
        (DecoderConfig, "layers", (RopeConfig(),), "each a config such as LayerCon"),
    ]
    for config, name, value, message in cases:
        with pytest.raises(ValueError, match=f"{name} .*{message}"):
            config(**{name: value})


def test_integers_may_be_numbers_lists_tuples_and_encodings_those_of_users() -> None:
    AttentionLayerConfig(encoding=FlipConfig())  # pyright: ignore[reportArgumentType]
    ReluConfig(offset=1)
    SineSPEConfig(num_sines=np.int64(3))  # pyright: ignore[reportArgumentType] - has no stubs
    ConvSPEConfig(taps=[5])  # pyright: ignore[reportArgumentType] - as from YAML


def test_the_operations_refuse_shapes_and_dtypes_that_would_be_spread_silently() -> None:
    # without the types that tests check
    causal, delta, full = map(
        inspect.unwrap, (causal_linear_attention, gated_delta_rule, linear_attention)
    )
    q = torch.rand(2, 12, 4, 8)
    state = LinearState.empty((2, 4, 8, 8), device=q.device, dtype=q.dtype)
    calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
        (causal, (state,)),
        (full, ()),
        (delta, (q[..., 0], -q[..., 0], state.kv)),
        (windowed_attention, (OffsetTable(), (3,))),
    ]
    for function, rest in calls:
        function(q, q, q, *rest)
        for wrong in (q[:1], q[:, :, :2], q.transpose(1, 2), q.long(), q[0]):
            with pytest.raises(ValueError, match="q, k"):
                function(q, wrong, q, *rest)
            with pytest.raises(ValueError, match="q, k"):
                function(q, q, wrong, *rest)
        if function is not full:
            few: list[Any] = [x[:, :5] if getattr(x, "ndim", 0) == 3 else x for x in rest]
            with pytest.raises(ValueError, match="expected as many queries as keys"):
                function(q, q[:, :5], q[:, :5], *few)
    for strength in (q[:, :, :1, 0], q[:1, ..., 0], q):
        with pytest.raises(ValueError, match="for what there is of keys"):
            delta(q, q, q, strength, -q[..., 0], state.kv)
    for one in (state.kv[:1], state.kv[:, :2], state.kv[..., :3]):
        with pytest.raises(TypeError, match="the state is that of another model"):
            delta(q, q, q, q[..., 0], -q[..., 0], one)
        with pytest.raises(TypeError, match="the state is that of another model"):
            causal(q, q, q, state._replace(kv=one))
    for scale in (q[..., :1, 0], q[:, 0, :, 0]):
        with pytest.raises(ValueError, match="log_scale has the shape"):
            causal(q, q, q, state, scale)
