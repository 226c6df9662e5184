from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import SirenConfig
from relpe.encodings.offset.windows import WindowConfig
from relpe.inspect.learned import kernel, scores
from relpe.inspect.plots import main, pictures
from relpe.models.checkpoint import save_model
from relpe.models.classifier.model import ClassifierConfig
from tests.support.pictured import CASES, FADING, decoder

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("name", ["sine", "none"])
def test_files_are_written_and_not_blank(name, tmp_path, capsys):
    from matplotlib.image import imread

    save_model(decoder(name), tmp_path / "model")
    folder = tmp_path / "deep" / "pictures"
    assert main([str(tmp_path / "model"), "--output", str(folder)]) == 0
    printed = capsys.readouterr().out.splitlines()
    kinds = CASES[name][2] or ()
    assert {path.name for path in folder.iterdir()} == {f"{kind}.png" for kind in kinds}
    for path in folder.iterdir():
        assert str(path) in printed
        assert imread(path)[..., :3].std() > 0.01
    if name == "none":
        assert len(printed) == 1
        assert "nothing to draw" in printed[0]


@pytest.mark.parametrize("name", CASES)
def test_each_encoding_has_its_plots_of_finite_numbers_that_fit_their_axis(name):
    found, kinds = pictures(decoder(name)), CASES[name][2]
    assert kinds is None or {*found} == kinds
    for picture in found.values():
        for numbers in picture.panels.values():
            assert numbers.isfinite().all()
            assert len(picture.x) >= numbers.shape[1]
        assert not picture.names or len(picture.names) >= len(picture.panels)


def test_the_kernel_plot_is_the_mean_over_features_divided_by_its_maximum():
    model = decoder("sine")
    encoding: Any = model.encoding
    panels = pictures(model)["kernel"].panels
    assert [*panels] == ["P, before gates", "(1 − g) P + g, layer 1", "(1 − g) P + g, layer 2"]
    mean = kernel(encoding, torch.arange(-256, 257)).mean(2)[1]
    expected = mean / mean.abs().max(1, keepdim=True).values
    torch.testing.assert_close(panels["(1 − g) P + g, layer 2"], expected)


def test_the_spectrum_plot_places_the_whole_power_at_its_periods():
    model = decoder("sine")
    encoding: Any = model.encoding
    wanted = torch.tensor([3.0, 100.0, 10**6])  # the last is outside the picture
    with torch.no_grad():
        encoding.frequencies.copy_((2 / wanted).logit().expand_as(encoding.frequencies))
    picture = pictures(model)["spectrum"]
    (shares,) = picture.panels.values()
    torch.testing.assert_close(shares.sum(1), torch.ones_like(shares[:, 0]))
    starts = picture.x[:-1][shares.sum(0) > 0]
    ends = picture.x[1:][shares.sum(0) > 0]
    assert (starts <= torch.tensor([3.0, 100.0, 4097.0])).all()
    assert (ends > torch.tensor([3.0, 100.0, 4096.0])).all()


@pytest.mark.parametrize("name", ["rope", "algebraic"])
def test_the_kernel_of_rotations_is_the_mean_score_of_equal_unit_vectors(name):
    model = decoder(name)
    encoding: Any = model.encoding
    for weight in encoding.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    encoding.double()
    panels = pictures(model)["kernel"].panels
    lags = torch.tensor([0, 1, 7, 200])
    codes, _ = encoding.prepare(
        torch.cat([torch.zeros(1), lags])[None, :, None], encoding.init_state(0, lags.device)
    )
    units = torch.eye(8).double()[:, None, None].expand(8, 5, 2, 8)
    for layer in range(2):
        q, k = encoding.encode(units, units, codes, layer)
        expected = (q[:, 1:] * k[:, :1]).sum(-1).mean(0).T
        found = [*panels.values()][layer % len(panels)][:, 256 + lags]
        torch.testing.assert_close(found.expand(2, -1).to(expected), expected)


def test_the_window_plot_ends_at_the_widest_span():
    picture = pictures(decoder("siren, per head"))["window"]
    widest = max(int(name.split(": ")[1]) for names in picture.names for name in names)
    assert widest > 257
    assert len(picture.x) == widest


def test_the_fading_plot_matches_the_attention():
    model = decoder("none, fading")
    operation = FADING.build()
    length, picture = 30, pictures(model)["fading"]
    values = torch.eye(length).double()[None, :, None].expand(-1, -1, 2, -1)
    ones = torch.ones(1, length, 2, 4).double()
    state = operation.init_state((1, 2, length), torch.Generator(), ones, 4)
    weights, _ = operation(ones, ones, values, state)
    (curves,) = picture.panels.values()
    found = torch.log2(curves[:, -1]) / picture.x[-1]  # exponential, so one point suffices
    ratio = weights[0, -1] / weights[0, -1, :, -1:]
    lags = torch.arange(length - 1, -1, -1)
    torch.testing.assert_close(torch.exp2(found[:, None] * lags), ratio)


def test_the_memory_plot_is_what_the_delta_rule_keeps_without_inputs():
    model = decoder("none, delta")
    picture = pictures(model)["memory"]
    assert [*picture.panels] == ["layer 1", "layer 2"]
    attention: Any = model.blocks[1].attention
    decay = attention.gates(torch.zeros(1, 1, 16)).log_decay[0, 0].double()
    found = picture.panels["layer 2"][:, -1].log() / picture.x[-1]
    torch.testing.assert_close(found, decay, rtol=1e-5, atol=0)


def test_the_plot_of_a_learned_bias_of_buckets_is_its_factor_of_weights():
    model = decoder("t5")
    biases = model.encoding.get_parameter("biases")
    torch.nn.init.normal_(biases)
    (panel,) = pictures(model)["window"].panels.values()
    torch.testing.assert_close(panel[:, 0], biases[0].exp())
    torch.testing.assert_close(panel[:, 256], biases[-1].exp())


def test_the_bias_plot_is_the_score_of_a_query_of_zeros():
    model = decoder("transformer-xl")
    encoding: Any = model.encoding
    table: Any = scores(encoding, 1, torch.arange(3))
    panels = pictures(model)["bias"].panels
    torch.testing.assert_close([*panels.values()][-1][:, :3], table.bias.T)


def test_mistakes_are_reported_in_one_sentence(capsys, tmp_path, monkeypatch):
    def error_of(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments])
        error = capsys.readouterr().err
        assert stopped.value.code == 2
        assert error.count("\n") == 1
        return error

    monkeypatch.chdir(tmp_path)
    assert "no model 'nothing'" in error_of("nothing", "--output", "x")
    assert "--output" in error_of("piano")
    assert "--outptu" in error_of("piano", "--output", "x", "--outptu", "y")
    assert "--out" in error_of("piano", "--out", "x")
    assert not [*tmp_path.iterdir()]
    save_model(decoder("none"), tmp_path / "model")
    (tmp_path / "taken").write_text("")
    assert "taken" in error_of("model", "--output", "taken")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if not installed
    error = error_of("piano", "--output", "x")
    assert "matplotlib" in error
    assert "train" in error


@pytest.mark.parametrize("num_axes", [1, 2])
def test_features_of_a_classifier_have_keys_on_both_sides(num_axes):
    encoding = SirenConfig(
        num_axes=num_axes, window=WindowConfig(width=(4.0,), max_span=8, block=1)
    )
    config = ClassifierConfig(
        **{"width": 16, "num_layers": 2, "num_heads": 2, "encoding": encoding},
        attention=WindowedAttentionConfig(),
    )
    found = pictures(config.build())
    assert {*found} == {"features", "bias", "window"}
    lags = found["window"].x
    assert torch.equal(lags, -lags.flip(0))
    assert found["window"].panels["all layers"].shape[-1] == len(lags)
