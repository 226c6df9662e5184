from __future__ import annotations

from typing import Any

import pytest
import torch

from relpe.encodings import AlgebraicConfig, SirenConfig, TreeSQConfig
from relpe.encodings.algebraic.structures import TreeStructure
from relpe.encodings.offset.windows import WindowConfig
from relpe.inspect.learned import (
    angles,
    covariance,
    gates,
    kernel,
    position_vectors,
    scores,
    spectrum,
    window,
)
from tests.support.pictured import SMALL, decoder


@pytest.mark.parametrize("name", ["sine", "conv", "siren spe"])
def test_the_kernel_is_the_covariance_with_the_gates_of_each_layer(name):
    encoding: Any = decoder(name).encoding
    lags = torch.arange(-6, 7)
    found, gate = kernel(encoding, lags), gates(encoding)
    assert found.shape == (2, 2, 8, 13)
    assert gate is not None
    for layer in range(2):
        g = 1 / (1 + (-encoding.gates[layer].double()).exp())
        torch.testing.assert_close(gate[layer], g)
        expected = (1 - g)[..., None] * encoding.covariance(lags) + g[..., None]
        torch.testing.assert_close(found[layer], expected)


def test_filters_over_two_axes_are_shown_along_the_first():
    encoding: Any = decoder("conv, two axes").encoding
    lags = torch.arange(-6, 7)
    points = torch.stack([lags, torch.zeros_like(lags)], -1)
    torch.testing.assert_close(covariance(encoding, lags), encoding.covariance(points))


def test_the_spectrum_of_sines_sums_to_the_covariance():
    encoding: Any = decoder("sine").encoding
    torch.nn.init.zeros_(encoding.offsets)
    lags = torch.arange(-9, 10)
    frequencies, power = spectrum(encoding)
    waves = (2 * torch.pi * frequencies[..., None] * lags).cos()
    made = (power[..., None] * waves).sum(1)
    torch.testing.assert_close(made, encoding.covariance(lags).sum(1))


@pytest.mark.parametrize("name", ["conv", "siren spe"])
def test_the_spectrum_is_the_product_of_both_filters(name):
    encoding: Any = decoder(name).encoding
    frequencies, power = spectrum(encoding)
    filters = encoding.filters().values.double()
    times = torch.arange(filters.shape[-1])
    for index in (0, 7, 1000, power.shape[1] - 1):
        wave = torch.exp(-2j * torch.pi * frequencies[0, index] * times)
        queries, keys = (filters * wave).sum(-1).abs()
        torch.testing.assert_close(power[:, index], (queries * keys).sum(1))


def test_angles_of_rope_are_those_of_the_paper():
    encoding: Any = decoder("rope").encoding
    (found,) = angles(encoding).values()
    expected = 10_000.0 ** -(torch.arange(0, 8, 2).double() / 8)
    torch.testing.assert_close(found, expected[None, None])


@pytest.mark.parametrize("features", [4, 5])
def test_angles_of_a_branch_give_the_traces_of_its_powers(features):
    structure = TreeStructure(branching=3)
    config = AlgebraicConfig(structure=structure, initialization="near_identity")
    encoding = config.build(num_layers=2, num_heads=2, head_dim=features).double()
    torch.nn.init.normal_(next(encoding.parameters()), std=0.4)
    part: Any = encoding.parts[0]
    found = angles(encoding)
    assert [*found] == [f"branch {branch}, axis 1," for branch in (1, 2, 3)]
    for branch, turns in enumerate(found.values()):
        assert turns.shape == (1, 2, features // 2)
        for power in (1, 2, 5):
            maps = torch.linalg.matrix_power(part.generators()[:, :, branch], power)
            trace = 2 * (power * turns).cos().sum(-1) + features % 2
            torch.testing.assert_close(maps.diagonal(dim1=-2, dim2=-1).sum(-1), trace)


@pytest.mark.parametrize(
    "name", ["siren", "siren, per head", "siren, joint", "transformer-xl", "shaw", "alibi"]
)
def test_scores_are_those_that_a_call_uses(name):
    encoding: Any = decoder(name).encoding
    positions = torch.arange(9)[None, :, None] * torch.tensor([1, 0])
    codes, _ = encoding.prepare(positions, encoding.init_state(0, positions.device))
    for layer in range(2):
        table, used = scores(encoding, layer, torch.arange(9)), encoding.table(codes, layer)
        if used.features is not None and table.features is not None:
            features = used.features
            if used.rows is not None:
                features = features[used.rows[0, -1, :, 0]]
            torch.testing.assert_close(table.features, features[:9])
        for ours, theirs in ((table.log_weight, used.log_weight), (table.factor, used.factor)):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                torch.testing.assert_close(ours, theirs[:9].to(ours))


def test_additive_features_are_those_of_the_first_axis():
    encoding: Any = decoder("siren, additive").encoding
    lags = torch.arange(9)
    offsets = -lags.double()[:, None]
    both = encoding.features([offsets, offsets], 1)
    found = scores(encoding, 1, lags).features
    torch.testing.assert_close(found, both[:9])


def test_windows_match_their_config():
    lags = torch.arange(20).double()
    gaussian = (-(lags / 3).square() / 2).exp()
    modes: dict[Any, torch.Tensor] = {
        "logit_multiply": gaussian * (lags <= 7),  # 3 sqrt(-2 ln 0.1) is 6.4
        "log_bias": gaussian,
        "soft_threshold": ((gaussian - 0.1) / 0.9).clamp(min=0),
        "adaptive_ramp": ((3 + 4 - lags) / 4).clamp(0, 1),
    }
    for mode, expected in modes.items():
        config = WindowConfig(width=(3.0,), mode=mode, threshold=0.1, ramp=4.0)
        encoding = SirenConfig(network=SMALL, window=config)
        built = encoding.build(num_layers=1, num_heads=2, head_dim=4).eval()
        found = window(scores(built, 0, lags))
        assert found is not None
        torch.testing.assert_close(found, expected[:, None].expand(-1, 2).to(found))


def test_position_vectors_are_those_that_the_model_adds():
    model = decoder("learned")
    found = position_vectors(model.encoding, model.config.width, 40)
    assert found.shape == (40, 16)
    vectors = model.encoding.get_parameter("vectors")
    torch.testing.assert_close(found[:30], vectors)
    torch.testing.assert_close(found[30:], vectors[-1:].expand(10, -1))


def test_trees_given_by_words_and_by_heap_ids_look_alike():
    by_words = decoder("tree of words")
    config = TreeSQConfig(max_depth=4)
    by_ids = decoder("tree")
    by_ids.encoding = config.build(num_layers=2, num_heads=2, head_dim=8)
    by_ids.encoding.load_state_dict(by_words.encoding.state_dict())
    found = position_vectors(by_words.encoding, 16, 100)
    assert len(found) == 31  # nodes at depths up to 4
    torch.testing.assert_close(found, position_vectors(by_ids.encoding, 16, 31))
