from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from relpe.attention.layer import causal_convolution
from relpe.models.config import from_plain
from relpe.models.decoder import DecoderConfig
from relpe.models.layers import shared_encodings
from tests.support.decoders import CONFIGS, decoder, every_decoder, in_pieces, tokens_of


@given(
    pieces=st.lists(st.integers(0, 140), min_size=1, max_size=4),
    name=st.sampled_from(sorted(CONFIGS)),
)
def test_any_split_of_a_sequence_gives_the_same_output(pieces: list[int], name: str) -> None:
    model, tokens = decoder(name), tokens_of(sum(pieces))
    torch.testing.assert_close(
        in_pieces(model, tokens, pieces),
        in_pieces(model, tokens, [sum(pieces)]),
        rtol=1e-4,
        atol=2e-5,
    )


@every_decoder
def test_float64_is_exact_and_no_output_depends_on_a_later_token(name: str) -> None:
    model, tokens = decoder(name).double(), tokens_of(150)
    whole = in_pieces(model, tokens, [150])
    torch.testing.assert_close(
        in_pieces(model, tokens, [1] * 5 + [80, 65]), whole, rtol=1e-9, atol=1e-10
    )
    tokens[:, 100:] = (tokens[:, 100:] + 1) % 11
    changed = in_pieces(model, tokens, [150])
    torch.testing.assert_close(changed[:, :100], whole[:, :100], rtol=0, atol=1e-12)
    assert not torch.allclose(changed[:, 100:], whole[:, 100:])


@every_decoder
def test_every_parameter_has_a_gradient_that_checkpoints_of_activations_do_not_change(
    name: str,
) -> None:
    model, tokens = decoder(name), tokens_of(40)

    def loss() -> torch.Tensor:
        out, _ = model(tokens, torch.arange(40)[None, :, None], model.init_state(2))
        return out.logsumexp(-1).mean()

    names, weights = zip(*model.named_parameters(), strict=True)
    recomputed = checkpoint(loss, use_reentrant=False)
    assert isinstance(recomputed, torch.Tensor)
    pairs = (torch.autograd.grad(value, weights) for value in (loss(), recomputed))
    for parameter, once, again in zip(names, *pairs, strict=True):
        assert once.isfinite().all(), parameter
        assert once.abs().max() > 0, parameter
        torch.testing.assert_close(again, once, rtol=1e-5, atol=1e-8)


@every_decoder
def test_rows_are_independent_and_can_be_repeated(name: str) -> None:
    model, tokens = decoder(name), tokens_of(20, rows=3)
    together = in_pieces(model, tokens, [20])
    for row in range(3):
        torch.testing.assert_close(
            in_pieces(model, tokens[row : row + 1], [20])[0], together[row], rtol=1e-4, atol=1e-5
        )
    with torch.no_grad():
        _, state = model(tokens[:, :12], torch.arange(12)[None, :, None], model.init_state(3))
        positions = torch.arange(12, 20)[None, :, None]
        twice = torch.arange(3).repeat_interleave(2)
        out, _ = model(tokens[twice, 12:], positions, state.rows(twice))
        swapped, _ = model(tokens[[2, 0], 12:], positions, state.rows(torch.tensor([2, 0])))
    torch.testing.assert_close(out[::2], together[:, 12:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[1::2], together[:, 12:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(swapped, together[[2, 0], 12:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sine relu", "conv relu", "siren spe relu", "algebraic favor"])
def test_rows_may_have_positions_of_their_own(name: str) -> None:
    model, tokens = decoder(name), tokens_of(40, rows=3)
    starts = torch.tensor([0, 40, 1000])
    places = (starts[:, None] + torch.arange(40))[..., None]
    outs = in_pieces(model, tokens, [1, 29, 10], places)
    shared = in_pieces(model, tokens, [40], places[[1, 1, 1]])
    for row in range(3):
        alone = in_pieces(model, tokens[row : row + 1], [40], places[row : row + 1])[0]
        torch.testing.assert_close(outs[row], alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        shared, in_pieces(model, tokens, [40], places[1:2]), rtol=1e-4, atol=1e-5
    )


def test_state_is_of_constant_size_with_linear_attention() -> None:
    for name in ("sine relu", "algebraic delta", "events: sine relu, fading"):
        model, tokens, sizes = decoder(name), tokens_of(200), []
        for length in (5, 200):
            positions = torch.arange(length)[None, :, None]
            _, state = model(tokens[:, :length], positions, model.init_state(2))
            found: list[int] = []
            state.map_rows(lambda x, found=found: found.append(x.nbytes) or x)
            sizes.append(sum(found))
        assert sizes[0] == sizes[1]


def test_noise_is_a_function_of_the_seed() -> None:
    model, tokens = decoder("sine favor"), tokens_of(10)
    positions = torch.arange(10)[None, :, None]
    with torch.no_grad():
        outs = [
            model(tokens, positions, model.init_state(2, seed))[0] for seed in (3, 3, 4, None, 0)
        ]
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert torch.equal(outs[3], outs[4])


@every_decoder
def test_bfloat16_is_close_to_float32(name: str) -> None:
    model, tokens = decoder(name), tokens_of(40)
    exact = in_pieces(model, tokens, [40])
    with torch.autocast("cpu", torch.bfloat16):
        out, state = model(tokens, torch.arange(40)[None, :, None], model.init_state(2))
    out.float().logsumexp(-1).sum().backward()
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.05)
    for layer in state.layers:
        if hasattr(layer.operation, "sums"):
            assert layer.operation.sums.kv.dtype == torch.float32
    rounded = in_pieces(model.bfloat16(), tokens, [15, 1, 24])
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() < 0.03 * exact.norm()


def test_impossible_sizes_are_refused() -> None:
    changes: list[tuple[dict[str, object], str]] = [
        ({"num_heads": 0}, "num_heads is 0, expected at least 1"),
        ({"width": -16}, "width is -16"),
        ({"width": 18, "num_heads": 4}, "width is 18, expected a multiple of num_heads, 4"),
        ({"convolution_taps": -1}, "convolution_taps is -1"),
        ({"convolution_start": "delayed", "convolution_taps": 1}, "expected at least 2"),
        ({"convolution_start": "late"}, "late"),
    ]
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            from_plain(DecoderConfig, change)


def test_wrong_calls_are_refused_in_one_sentence() -> None:
    model, places, tokens = decoder("sine relu"), torch.arange(5)[None, :, None], tokens_of(5)
    state = model.init_state(2)
    calls: list[tuple[Any, Any, str]] = [
        (tokens.float(), state, r"tokens has the shape \(2, 5\) and is torch.float32"),
        (tokens[0], state, r"tokens has the shape \(5,\) .* expected \(b, l\) and int64"),
        (tokens.tolist(), state, "tokens is of type list, expected Tensor"),
        (tokens.to("meta"), state, "tokens is on meta, expected cpu"),
        (tokens + 20, state, "expected 0 to 10, below the size of the vocabulary"),
        (tokens - 11, state, "expected 0 to 10, below the size of the vocabulary"),
        (tokens, model.init_state(3), "the state has 3 rows and the inputs have 2"),
        (tokens, None, "state is None, expected DecoderState"),
    ]
    for given_tokens, given_state, message in calls:
        with pytest.raises((TypeError, ValueError), match=message):
            model(given_tokens, places, given_state)


def test_the_state_of_another_model_is_refused() -> None:
    model = decoder("sine relu")
    for name in (
        "rope softmax",
        "algebraic delta",
        "layers: sine relu and algebraic windowed, 3:1",
    ):
        other = decoder(name)
        for one, state in ((model, other.init_state(2)), (other, model.init_state(2))):
            with pytest.raises(TypeError, match="the state is that of another model or layer"):
                one(tokens_of(5), torch.arange(5)[None, :, None], state)


def test_a_short_convolution_starts_as_identity_or_delays_every_other_feature() -> None:
    x = torch.randn(2, 9, 16)
    late = torch.cat([torch.zeros(2, 1, 16), x[:, :-1]], 1)
    for start, odd in (("present", x), ("delayed", late)):
        config = from_plain(
            DecoderConfig, {"width": 16, "num_heads": 2, "convolution_start": start}
        )
        taps = config.build().blocks[1].attention.convolution
        out, _ = causal_convolution(x, taps, torch.zeros(2, 3, 16))
        assert torch.equal(out[..., ::2], x[..., ::2])
        assert torch.equal(out[..., 1::2], odd[..., 1::2])


def test_encodings_keep_the_initial_values_that_they_chose() -> None:
    for name in CONFIGS:
        config = decoder(name).config
        torch.manual_seed(7)
        whole = config.build()
        torch.manual_seed(7)
        nn.Embedding(config.vocabulary_size, config.width)  # its weights are drawn first
        for shared, encoding in zip(
            shared_encodings(config.layers_in_order), whole.encodings, strict=True
        ):
            sizes = {"num_layers": len(shared.blocks), "num_heads": config.num_heads, "head_dim": 8}
            alone = shared.encoding.build(**sizes).state_dict()
            for key, values in encoding.state_dict().items():
                assert torch.equal(values, alone[key]), (name, key)
