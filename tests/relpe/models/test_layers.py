"""Patterns of layers: which block has which attention and encoding."""

from __future__ import annotations

import pytest
import torch

from relpe.attention.feature_maps import FavorConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlgebraicConfig, SineSPEConfig, SirenConfig
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.models.config import CheckpointError, from_plain, to_plain
from relpe.models.decoder import DecoderConfig
from relpe.models.layers import LayerConfig
from tests.support.decoders import decoder, tokens_of

WINDOWED = LayerConfig(attention=WindowedAttentionConfig(), encoding=AlgebraicConfig())
PLACES = torch.arange(20)[None, :, None]


def test_a_pattern_is_repeated_and_equal_encodings_are_shared() -> None:
    config = DecoderConfig(
        num_layers=6, layers=(LayerConfig(count=2), WINDOWED, LayerConfig(axes=(0,)))
    )
    kinds = [layer.encoding.kind for layer in config.layers_in_order]
    assert kinds == ["sine_spe", "sine_spe", "algebraic", "sine_spe", "sine_spe", "sine_spe"]
    model = config.build()
    assert len(model.encodings) == 3  # axes of their own are another encoding
    assert [model.blocks_of(index) for index in range(3)] == [[0, 1, 4, 5], [2], [3]]
    assert [model.place_in_encoding(block) for block in range(6)] == [0, 1, 0, 0, 2, 3]
    assert model.encoding_of(4) is model.encoding
    assert model.encoding.get_parameter("gates").shape[0] == 4


def test_a_pattern_of_equal_layers_is_the_plain_model() -> None:
    torch.manual_seed(0)
    plain = DecoderConfig(width=16, num_heads=2, num_layers=2, hidden=8).build()
    torch.manual_seed(0)
    pattern = DecoderConfig(
        width=16, num_heads=2, num_layers=2, hidden=8, layers=(LayerConfig(), LayerConfig())
    ).build()
    for (name, one), (other_name, other) in zip(
        plain.state_dict().items(), pattern.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
    out, _ = plain(tokens_of(20), PLACES, plain.init_state(2))
    assert torch.equal(out, pattern(tokens_of(20), PLACES, pattern.init_state(2))[0])


def test_codes_are_computed_once_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("layers: sine relu and algebraic windowed, 3:1")
    calls = []
    for encoding in model.encodings:
        prepare = encoding.prepare
        monkeypatch.setattr(
            encoding, "prepare", lambda *x, own=prepare: calls.append(own) or own(*x)
        )
    model(tokens_of(20), PLACES, model.init_state(2))
    assert len(calls) == len(model.encodings) == 2


def test_plain_values_name_only_what_differs() -> None:
    plain = {
        "encoding": {"kind": "sine_spe", "num_realizations": 8},
        "layers": [
            {"count": 3},
            {"attention": {"kind": "windowed", "span": 640}, "encoding": {"kind": "algebraic"}},
        ],
    }
    config = from_plain(DecoderConfig, plain)
    kinds = [(x.attention.name, x.encoding.kind) for x in config.layers_in_order[2:5]]
    assert kinds == [("relu", "sine_spe"), ("windowed", "algebraic"), ("relu", "sine_spe")]
    assert from_plain(DecoderConfig, to_plain(config)) == config


def test_mistakes_in_patterns_are_named() -> None:
    for layer, message in (
        ({"count": 0}, r"layers\[0\]: count is 0"),
        ({"axes": [-1]}, r"axes are \(-1,\)"),
        ({"axes": []}, "expected at least one"),
        ({"attention": {"kind": "winded"}}, r"layers\[0\].attention.kind: found 'winded'"),
        ({"encodings": {}}, r"layers\[0\].encodings: unknown"),
    ):
        with pytest.raises(CheckpointError, match=message):
            from_plain(DecoderConfig, {"layers": [layer]})


def test_layers_that_do_not_fit_are_refused() -> None:
    wrong = LayerConfig(encoding=AlgebraicConfig())  # with linear attention and relu
    with pytest.raises(ValueError, match="encoding algebraic does not fit relu attention"):
        DecoderConfig(layers=(LayerConfig(), wrong)).build()
    often, seldom = (
        LayerConfig(attention=LinearAttentionConfig(feature_map=FavorConfig(redraw_interval=n)))
        for n in (1, 40)
    )
    with pytest.raises(ValueError, match="redrawn at different steps"):
        DecoderConfig(layers=(often, seldom)).build()
    model = DecoderConfig(layers=(LayerConfig(), seldom), num_layers=2).build()
    assert model.last_redraw(85) == 80
    assert DecoderConfig().build().last_redraw(85) == 85


def test_the_windows_of_all_encodings_are_trained_together() -> None:
    torch.manual_seed(0)
    small = SirenNetworkConfig(width=4)
    siren = [SirenConfig(network=small), SirenConfig(network=small, reference_length=(512.0,))]
    model = DecoderConfig(
        vocabulary_size=11,
        width=16,
        num_heads=2,
        num_layers=3,
        hidden=8,
        attention=WindowedAttentionConfig(),
        encoding=SineSPEConfig(num_realizations=4),
        layers=tuple(LayerConfig(encoding=one) for one in siren),
    ).build()
    windows = model.training_window()
    assert windows is not None
    first, second = windows.windows
    torch.testing.assert_close(windows.penalty(), first.penalty() + second.penalty())
    with windows.one_step():
        model(tokens_of(20), PLACES, model.init_state(2))
    metrics = windows.metrics()
    assert metrics["receptive_field"] == (
        first.metrics()["receptive_field"] + second.metrics()["receptive_field"] - 1
    )
    spans = [value for name, value in metrics.items() if name.startswith("span/")]
    assert sum(spans) / len(spans) == metrics["mean_span"]
    with torch.no_grad():
        second.log_width.add_(1.0)
    with windows.one_step():
        pass
    state = windows.span_state()
    windows.load_span_state(state)
    assert windows.span_state() == state
    assert DecoderConfig().build().training_window() is None
