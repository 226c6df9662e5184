"""Losses of long examples: the state between chunks, and recomputation of activations."""

from __future__ import annotations

import pytest
import torch

from relpe.models.config import from_plain
from relpe.models.decoder import DecoderConfig
from tokenization.remi.vocabulary import PIANO_FAMILIES
from training.learning.chunked_loss import (
    negative_log_likelihoods,
    num_predicted,
    tokens_of,
)

LENGTH = 40
MODELS = {
    "linear, sine SPE": ({"kind": "linear", "half_lives": [1, 16]}, {"kind": "sine_spe"}),
    "linear, convolutional SPE": ({"kind": "linear"}, {"kind": "conv_spe", "taps": [6]}),
    "FAVOR+": (
        {"kind": "linear", "feature_map": {"kind": "favor", "num_features": 8}},
        {"kind": "sine_spe", "gated": True},
    ),
    "windowed, algebraic": (
        {"kind": "windowed", "span": 11},
        {"kind": "algebraic", "structure": {"kind": "sequence"}},
    ),
    "windowed, algebraic with coordinates": (
        {"kind": "windowed", "span": 11},
        {"kind": "algebraic", "structure": {"kind": "grid", "num_axes": 3, "features": [4, 2, 2]}},
    ),
    "windowed, SIREN": (
        {"kind": "windowed"},
        {"kind": "siren", "network": {"depth": 2, "width": 4}, "window": {"width": [4.0]}},
    ),
}


def decoder(name):
    attention, encoding = MODELS[name]
    size = {"vocabulary_size": 20, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 16}
    torch.manual_seed(1)
    config = from_plain(DecoderConfig, size | {"attention": attention, "encoding": encoding}, "x")
    return config.build().double()


def batch():
    tokens = torch.randint(1, 20, (3, LENGTH + 1), generator=torch.Generator().manual_seed(2))
    tokens[1, 25:] = 0  # rows of different lengths
    return tokens


def gradients(model, chunk=None, *, truncated=False):
    """The sum of all losses in nats, the number of parts, and the gradients."""
    window = model.encoding.training_window()
    if window is not None:
        window.load_span_state({"spans": None, "calls": 0, "outgrown": 0})
    state = model.init_state(3, seed=7)
    model.zero_grad()
    total, parts = 0.0, 0
    for nats in negative_log_likelihoods(
        model, batch(), state, chunk, truncated=truncated, families=PIANO_FAMILIES
    ):
        nats.backward()
        total, parts = total + nats.item(), parts + 1
    return total, parts, {name: value.grad.clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_the_likelihood_and_gradient_of_the_whole(name):
    model = decoder(name)
    whole, _, expected = gradients(model)
    for chunk in (7, 20) if name != "linear, sine SPE" else (1, 20):
        total, parts, found = gradients(model, chunk)
        assert total == pytest.approx(whole, rel=1e-9)
        assert parts == 1
        for key, gradient in expected.items():
            assert gradient.abs().max() > 0, key
            torch.testing.assert_close(found[key], gradient, rtol=1e-8, atol=1e-8, msg=key)


@pytest.mark.parametrize("name", ["linear, convolutional SPE", "FAVOR+", "windowed, SIREN"])
def test_truncated_gradients_stay_within_their_chunk(name):
    model = decoder(name)
    whole, _, expected = gradients(model)
    total, parts, found = gradients(model, 7, truncated=True)
    assert total == pytest.approx(whole, rel=1e-9)  # the state is kept between chunks
    assert parts == 6
    assert any((found[key] - gradient).abs().max() > 1e-6 for key, gradient in expected.items())

    total, parts, found = gradients(model, LENGTH, truncated=True)
    assert (total, parts) == (whole, 1)
    assert all(torch.equal(found[key], gradient) for key, gradient in expected.items())


@pytest.mark.parametrize(
    ("name", "chunk"), [("linear, sine SPE", 7), ("windowed, algebraic", None)]
)
def test_masked_tokens_are_read_but_not_predicted(name, chunk):
    model, tokens = decoder(name), batch()
    is_masked = (tokens % 3 == 0) & (tokens > 0)
    masked = torch.where(is_masked, ~tokens, tokens)
    assert torch.equal(tokens_of(masked), tokens)
    counted = (tokens[:, 1:] != 0) & ~is_masked[:, 1:]
    assert num_predicted(masked) == counted.sum()

    positions = torch.arange(LENGTH)[None, :, None]
    logits, _ = model(tokens[:, :-1], positions, model.init_state(3, seed=7))
    logits.retain_grad()
    nats = -logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    expected = nats[counted].sum()
    expected.backward()
    assert not logits.grad[~counted].any()
    wanted = {name: value.grad.clone() for name, value in model.named_parameters()}

    model.zero_grad()
    state = model.init_state(3, seed=7)
    (found,) = negative_log_likelihoods(model, masked, state, chunk)
    found.backward()
    assert found.item() == pytest.approx(expected.item())
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.grad, wanted[key], rtol=1e-7, atol=1e-9, msg=key)
