"""Laws of encoder-decoders, for every encoding and attention that fit them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from relpe import (
    AlgebraicConfig,
    DeltaAttentionConfig,
    LinearAttentionConfig,
    RopeConfig,
    SelectiveRopeConfig,
    ShawConfig,
    SirenConfig,
    WindowedAttentionConfig,
)
from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderConfig
from tests.support.decoders import parameters
from tests.support.encoder_decoders import ENCODER_DECODERS, encoder_decoder

every_model = pytest.mark.parametrize("name", parameters(ENCODER_DECODERS))
HEAPS = torch.tensor([0, 1, 2, 3, 5, 4, 11, 22])
"""Nodes of a tree, of which a sequence of length l has the first l."""


def tokens(length: int, rows: int = 2, seed: int = 0) -> Tensor:
    return torch.randint(11, (rows, length), generator=torch.Generator().manual_seed(seed))


def places(length: int, first: int = 0) -> Tensor:
    """Positions (1, l, 2): the index and the node of a tree."""
    index = torch.arange(first, first + length)
    return torch.stack([index, HEAPS[:length]], -1)[None]


def read(model: EncoderDecoder, source: Tensor, mask: Tensor | None = None, first: int = 0) -> Any:
    state = model.init_state(len(source))
    return model.read(source, state, positions=places(source.shape[1], first), mask=mask)


@every_model
@torch.no_grad()
def test_parts_of_the_target_give_the_logits_of_the_whole(name: str) -> None:
    """Hence logits depend on no later token of the target; they do on all of the source."""
    model, target, source = encoder_decoder(name), tokens(8, seed=1), tokens(6)
    start = read(model, source)
    whole, _ = model(target, start, positions=places(8))
    for sizes in ([1, 1, 1, 5], [4, 3, 1]):
        state, parts, done = start, [], 0
        for size in sizes:
            part = slice(done, done + size)
            logits, state = model(target[:, part], state, positions=places(8)[:, part])
            parts.append(logits)
            done += size
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-8, atol=1e-8)
        assert state.length == 8
    for place in (0, 5):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % 11
        changed, _ = model(target[:, :1], read(model, other), positions=places(1))
        assert not torch.allclose(changed, whole[:, :1])


@every_model
@torch.no_grad()
def test_padding_of_the_source_and_other_rows_change_nothing(name: str) -> None:
    model, target, source = encoder_decoder(name), tokens(4, seed=1), tokens(8)
    mask = torch.arange(8) < torch.tensor([5, 8])[:, None]
    logits, _ = model(target, read(model, source, mask), positions=places(4))
    source[0, 5:] = 9
    again, state = model(target, read(model, source, mask), positions=places(4))
    assert torch.equal(again, logits)
    alone, _ = model(target[:1], read(model, source[:1, :5]), positions=places(4))
    torch.testing.assert_close(alone, logits[:1], rtol=1e-8, atol=1e-8)
    # rows of a state go on as in the batch
    more = tokens(1, seed=2)
    both, _ = model(more, state, positions=places(5)[:, 4:])
    swapped, _ = model(more.flip(0), state.rows(torch.tensor([1, 0])), positions=places(5)[:, 4:])
    torch.testing.assert_close(swapped.flip(0), both, rtol=1e-9, atol=1e-9)


@every_model
def test_every_weight_learns(name: str) -> None:
    model = encoder_decoder(name)
    logits, _ = model(tokens(8, seed=1), read(model, tokens(6)), positions=places(8))
    logits.square().mean().backward()
    for weight_name, weight in model.named_parameters():
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        assert weight.grad.any() or "encoding" in weight_name, weight_name


@pytest.mark.parametrize("name", ["rope softmax", "alibi softmax", "none elu"])
@torch.no_grad()
def test_only_differences_of_positions_count(name: str) -> None:
    model, target, source = encoder_decoder(name), tokens(4, seed=1), tokens(6)
    logits, _ = model(target, read(model, source), positions=places(4))
    moved, _ = model(target, read(model, source, first=1000), positions=places(4, 1000))
    torch.testing.assert_close(moved, logits, rtol=1e-6, atol=1e-6)
    apart, _ = model(target, read(model, source), positions=places(4, 3))
    assert torch.allclose(apart, logits) == (name in ("none elu", "alibi softmax"))  # no positions


def naive_shaw(model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
    """Logits of a model with Shaw's encoding, pair by pair."""
    vectors: Any = model.encoding.vectors
    window = len(vectors) // 2

    def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        out = torch.zeros_like(q)
        for b in range(len(q)):
            for i in range(q.shape[1]):
                keys = range(i + 1 if causal else k.shape[1])
                rows = [max(-window, min(window, i - j)) + window for j in keys]
                scores = [q[b, i] @ k[b, j].mT for j in keys]
                dots = torch.stack([score.diagonal() for score in scores]) / q.shape[-1] ** 0.5
                dots = dots + torch.stack([q[b, i] @ vectors[row] for row in rows])
                out[b, i] = torch.einsum("sh,shd->hd", dots.softmax(0), v[b, : len(keys)])
        return out.flatten(2)

    def scaled(x: Tensor, scale: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6) * scale

    def temperatures(layer: Any) -> Tensor:
        return layer.log_temperature.exp()

    def own(layer: Any, x: Tensor, *, causal: bool) -> Tensor:
        q, k, v = layer.project_in(x).unflatten(-1, (3, 2, -1)).unbind(2)
        q, k = (scaled(y, t) for y, t in zip((q, k), temperatures(layer), strict=True))
        return layer.project_out(attend(q, k, v, causal=causal))

    x = model.embedding(source)
    for block in model.encoder_blocks:
        x = x + own(block.attention, block.attention_norm(x), causal=False)
        x = x + block.feed_forward(block.feed_forward_norm(x))
    context, y = model.encoder_norm(x), model.embedding(target)
    for block in model.decoder_blocks:
        y = y + own(block.attention, block.attention_norm(y), causal=True)
        layer = block.context
        q = layer.project_queries(block.context_norm(y)).unflatten(-1, (2, -1))
        k, v = layer.project_context(context).unflatten(-1, (2, 2, -1)).unbind(2)
        q, k = (scaled(z, t) for z, t in zip((q, k), temperatures(layer), strict=True))
        y = y + layer.project_out(attend(q, k, v, causal=False))
        y = y + block.feed_forward(block.feed_forward_norm(y))
    return model.norm(y) @ model.embedding.weight.mT


@torch.no_grad()
def test_offsets_are_those_of_places_in_source_and_target() -> None:
    model = encoder_decoder("shaw softmax", encoding=ShawConfig(window=3))
    source, target = tokens(7), tokens(5, seed=1)
    logits, _ = model(target, model.read(source, model.init_state(2)))
    torch.testing.assert_close(logits, naive_shaw(model, source, target), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_dropout_changes_training_only_and_weights_may_be_untied() -> None:
    source, target = tokens(6), tokens(4, seed=1)
    norms: tuple[Any, ...] = ("pre", "post")
    for norm in norms:
        model = encoder_decoder("rope softmax", dropout=0.5, norm=norm, tied=False)
        logits, _ = model(target, read(model, source))
        assert torch.equal(model(target, read(model, source))[0], logits)
        model.train()
        assert not torch.allclose(model(target, read(model, source))[0], logits)
        assert model.project_out is not None


@torch.no_grad()
def test_encoding_reads_the_axes_of_the_config() -> None:
    model = encoder_decoder("tree softmax")
    source, target = tokens(6), tokens(4, seed=1)
    logits, _ = model(target, read(model, source), positions=places(4))
    later, _ = model(target, read(model, source, first=9), positions=places(4, 5))
    assert torch.equal(later, logits)  # the index is not read
    assert model.num_axes == 2
    with pytest.raises(ValueError, match="expected at least 2 axes"):
        model(target, read(model, source))


def test_what_is_not_defined_between_two_sequences_is_refused() -> None:
    fading = LinearAttentionConfig(half_lives=(1, 2))
    numerator = AlgebraicConfig(placement="numerator")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"attention": WindowedAttentionConfig()}, "windowed attention is"),
        ({"attention": DeltaAttentionConfig()}, "delta attention is"),
        ({"attention": fading, "encoding": ShawConfig()}, "does not fit"),
        ({"attention": fading, "encoding": numerator}, "half_lives"),
        ({"encoding": SelectiveRopeConfig()}, "without causality"),
        ({"encoding": SirenConfig()}, "has a window or span"),
        ({"encoding": ShawConfig(span=3)}, "has a window or span"),
        ({"encoding": AlgebraicConfig(decay=0.9)}, "decay is that of one sequence"),
        ({"encoding": SirenConfig(window=None, coordinates="joint")}, "expected index"),
        ({"width": 12, "num_heads": 5}, "a multiple of num_heads"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"axes": (-1,)}, "counted from 0"),
        ({"tied": False, "logit_scale": 0.5}, "expected 1, since tied is false"),
        ({"logit_scale": 0}, "logit_scale is 0, expected more than 0"),
    ]
    sizes = {"width": 16, "num_heads": 2, "hidden": 8, "encoding": RopeConfig()}
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            EncoderDecoderConfig(**{**sizes, **changes}).build()


@torch.no_grad()
def test_wrong_calls_are_refused_in_one_sentence() -> None:
    model, source = encoder_decoder("rope softmax"), tokens(3)
    state = model.init_state(2)
    with pytest.raises(ValueError, match="has read no source"):
        model(source, state)
    with pytest.raises(ValueError, match="has read a source"):
        model.read(source, model.read(source, state))
    with pytest.raises(ValueError, match=r"source has the shape .* expected .* int64"):
        model.read(source.float(), state)
    with pytest.raises(ValueError, match="the state has 3 rows and the inputs have 2"):
        model.read(source, model.init_state(3))
    with pytest.raises(ValueError, match="the state has 2 rows and the inputs have 1"):
        model(source[:1], model.read(source, state))
    with pytest.raises(TypeError, match="state is of type tuple, expected EncoderDecoderState"):
        model(source, model(source, model.read(source, state)))
    with pytest.raises(ValueError, match=r"expected \(2, 3\) and bool"):
        model.read(source, state, mask=torch.ones(2, 3))
    with pytest.raises(ValueError, match="the source is empty"):
        model.read(source[:, :0], state)


@pytest.mark.parametrize(
    ("width", "scale", "repeats"), [(64, 1.0, False), (512, 0.125, False), (512, 1.0, True)]
)
@torch.no_grad()
def test_with_scaled_logits_a_new_model_has_the_loss_of_guessing(
    width: int, scale: float, repeats: bool
) -> None:
    config = EncoderDecoderConfig(
        vocabulary_size=22, width=width, hidden=width, norm="post", logit_scale=scale
    )
    torch.manual_seed(0)
    model, target = config.build().eval(), tokens(32, rows=4, seed=1)
    logits, _ = model(target, model.read(target, model.init_state(len(target))))
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    assert (loss > math.log(22) + 0.12) == repeats
