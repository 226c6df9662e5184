"""Classifiers: what padding, rows, positions and towers change, and what they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relpe.encodings import LearnedPositionConfig, SelectiveRopeConfig, SinusoidConfig, SirenConfig
from relpe.models.classifier.inputs import ConvolutionInputConfig
from relpe.models.classifier.model import ClassifierConfig
from tests.support.classifiers import (
    CLASSIFIERS,
    GRID,
    GRIDS,
    NARROW,
    SIREN_2D,
    SIZES,
    TOKENS,
    classifier,
    on_grid,
    tokens,
)
from tests.support.decoders import DELTA, FADING, FAVOR, NONE, RELU, ROPE, SOFTMAX, parameters

POOLINGS = ("mean", "max", "last", "cls", "learned")
every_classifier = pytest.mark.parametrize("name", parameters(CLASSIFIERS))
every_grid = pytest.mark.parametrize("name", GRIDS)


def pooling_for(name: str) -> str:
    """One of the poolings, each for about as many classifiers."""
    return POOLINGS[[*CLASSIFIERS].index(name) % len(POOLINGS)]


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    assert (a - b).abs().max() < tolerance * (1 + a.abs().max())


def differ(a: Tensor, b: Tensor) -> None:
    assert (a - b).abs().max() > 1e-4 * a.abs().max()


@every_classifier
def test_padding_at_any_place_and_other_rows_change_nothing(name: str) -> None:
    model = classifier(name, pooling=pooling_for(name))
    x = tokens(9)
    lengths = torch.tensor([9, 4, 7])
    mask = torch.arange(9) < lengths[:, None]
    whole = torch.cat([model(x[i : i + 1, :n]) for i, n in enumerate(lengths)])
    same(model(x, mask=mask), whole)
    longer = torch.cat([x.where(mask, 10), torch.zeros(3, 5, dtype=torch.int64)], 1)
    same(model(longer, mask=torch.cat([mask, torch.zeros(3, 5, dtype=torch.bool)], 1)), whole)
    # the padding of every second place
    spread = torch.full((3, 18), 3)
    spread[:, ::2] = x
    wide = torch.zeros(3, 18, dtype=torch.bool)
    wide[:, ::2] = mask
    same(model(spread, mask=wide), whole)
    same(model(x)[1:], model(x[1:]))


@every_classifier
def test_gradients_are_finite_and_reach_every_parameter(name: str) -> None:
    model = classifier(name, pooling=pooling_for(name)).train()
    mask = torch.arange(7) < torch.tensor([7, 1, 3])[:, None]
    model(tokens(7), mask=mask).square().sum().backward()
    for key, weight in model.named_parameters():
        if weight.grad is None:
            # the penalty of a window, and generators that have no axis of heads, aside
            assert key.startswith("encoding."), key
            continue
        assert weight.grad.isfinite().all(), key


RELATIVE = [
    name
    for name, config in CLASSIFIERS.items()
    if config["encoding"].kind in ("rope", "algebraic", "alibi", "kerple", "t5", "shaw", "siren")
    and "numerator" not in name
    and "favor" not in name  # relative in the mean over its random features
]


@pytest.mark.parametrize("name", parameters(RELATIVE))
def test_shifting_positions_changes_nothing_with_a_relative_encoding(name: str) -> None:
    model = classifier(name, pooling=pooling_for(name))
    x, places = tokens(9), torch.arange(1, 10)[None, :, None]
    same(model(x, positions=places), model(x))
    same(model(x, positions=places + 400), model(x), 1e-6)


def test_without_an_encoding_order_does_not_matter() -> None:
    x = tokens(9)
    for pooling, attention in (
        ("mean", SOFTMAX),
        ("max", RELU),
        ("cls", FAVOR),
        ("learned", SOFTMAX),
    ):
        model = classifier(pooling=pooling, attention=attention, encoding=NONE)
        same(model(x[:, torch.randperm(9)]), model(x))


@every_classifier
def test_every_place_and_with_an_encoding_their_order_matter(name: str) -> None:
    # every place attends to earlier and later ones
    model = classifier(name)
    x = tokens(9, rows=1)
    for place in (0, 4, 8):
        other = x.clone()
        other[:, place] = (x[:, place] + 1) % 11
        differ(model(other), model(x))
    if "none" not in name and "t5" not in name:  # biases are zero at first
        differ(model(x.roll(4, 1)), model(x))


def dense(model: Any, x: Tensor) -> Tensor:
    """Logits of one layer of softmax attention with rotary encoding, by loops."""
    block = model.blocks[0]
    h = model.embedding(x)
    read = block.attention_norm(h)
    q, k, v = block.attention.project_in(read).unflatten(-1, (3, 2, 8)).unbind(2)
    scales = block.attention.log_temperature.exp()
    q, k = (
        y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * s
        for y, s in zip((q, k), scales, strict=True)
    )
    q, k = model.encoding(q, k)
    out = torch.zeros_like(v)
    for i in range(x.shape[1]):
        weights = (torch.einsum("bhd,bshd->bsh", q[:, i], k) / 8**0.5).softmax(1)
        out[:, i] = torch.einsum("bsh,bshd->bhd", weights, v)
    h = h + block.attention.project_out(out.flatten(2))
    h = h + block.feed_forward(block.feed_forward_norm(h))
    return model.project_out(model.norm(h).mean(1))


def test_softmax_attention_equals_a_loop_over_queries() -> None:
    model = classifier("rope softmax", num_layers=1)
    x = tokens(7)
    same(model(x), dense(model, x))


def test_a_window_as_wide_as_the_sequence_equals_no_window() -> None:
    x = tokens(9)
    wide = classifier("rope softmax", attention=replace(NARROW, span=9))
    same(wide(x), classifier("rope softmax")(x))
    differ(classifier("rope softmax", attention=NARROW)(x), wide(x))


def test_a_window_sees_its_span_on_both_sides() -> None:
    model = classifier("rope softmax", attention=NARROW, num_layers=1, pooling="cls")
    x = tokens(9, rows=1)
    for place in range(9):  # cls, the position before the first, sees two places
        other = x.clone()
        other[:, place] = (x[:, place] + 1) % 11
        assert torch.equal(model(other), model(x)) == (place > 1)


@pytest.mark.parametrize("reduction", [(), (2, 1)])
@every_grid
def test_grids(name: str, reduction: tuple[int, ...]) -> None:
    x = torch.randn(2, 5, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for pooling in ("mean", "learned"):
        model = on_grid(*GRIDS[name], pooling=pooling, reduction=reduction)
        logits = model(x)
        assert logits.shape == (2, 5)
        same(model(x[1:]), logits[1:])
        model.train()(x).square().sum().backward()
        for key, weight in model.named_parameters():
            assert weight.grad is None or weight.grad.isfinite().all(), key


@every_grid
def test_a_grid_is_not_a_sequence(name: str) -> None:
    # the same pixels in the same order, on another grid
    model = on_grid(*GRIDS[name])
    with torch.no_grad():
        for weight in model.blocks.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
    x = torch.randn(1, 6, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    compare = same if "sequence" in name else differ
    compare(model(x), model(x.reshape(1, 3, 8, 2)))


@pytest.mark.parametrize("name", ["siren softmax", "siren with a learned span"])
def test_a_network_of_one_axis_alone_makes_a_grid_of_one_row_a_sequence(name: str) -> None:
    encoding, attention = GRIDS[name]
    model = on_grid(encoding, attention)
    x = torch.randn(2, 1, 6, 2, dtype=torch.float64)
    same(model(x), model(x.transpose(1, 2).contiguous().transpose(1, 2)))
    assert model(x).isfinite().all()


def test_a_learned_span_has_a_gradient_and_counts_its_steps() -> None:
    model = on_grid(*GRIDS["siren with a learned span"]).train()
    window = model.training_window()
    assert window is not None
    model(torch.randn(2, 6, 6, 2, dtype=torch.float64)).square().sum().backward()
    (one,) = window.windows
    assert one.log_width.grad is not None
    assert (one.log_width.grad != 0).all()
    assert window.span_state()["calls"] == 1
    assert window.metrics()["mean_span"] < 7


@pytest.mark.parametrize("combine", ["concatenate", "symmetric"])
def test_two_towers(combine: str) -> None:
    model = classifier("rope softmax", towers=2, combine=combine, head_hidden=(12, 6))
    x = torch.stack([tokens(8), tokens(8).flip(0).roll(1, 1)], 1)
    mask = (torch.arange(8) < torch.tensor([[8, 3], [5, 8], [1, 2]])[..., None]).clone()
    logits = model(x, mask=mask)
    assert logits.shape == (3, 5)
    exchanged = model(x.flip(1), mask=mask.flip(1))
    same(exchanged, logits) if combine == "symmetric" else differ(exchanged, logits)
    # each tower sees its own input only
    alone = torch.stack([model.encode(x[:, i], mask=mask[:, i]) for i in (0, 1)], 1)
    together = model.encode(x.flatten(0, 1), mask=mask.flatten(0, 1)).unflatten(0, (-1, 2))
    same(alone, together)
    same(model(x[:1, :, :8], mask=mask[:1]), logits[:1])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_and_skipped_branches_only_in_training(norm: str) -> None:
    plain = classifier(norm=norm)
    model = classifier(norm=norm, dropout=0.3, skipped=0.5)
    x = tokens(9)
    same(model(x), plain(x))
    assert not torch.equal(model.train()(x), plain(x))


def test_outputs_of_blocks_are_normalized_once() -> None:
    pooled = {}
    for norm in ("pre", "post"):
        model = classifier(norm=norm, pooling="last")
        pooled[norm] = model.encode(tokens(9))
        same(pooled[norm].mean(-1), torch.zeros(3, dtype=torch.float64))
        norms = [name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)]
        assert ("norm" in norms) == (norm == "pre")
    differ(pooled["pre"], pooled["post"])


@pytest.mark.parametrize("encoding", [SinusoidConfig(), LearnedPositionConfig()])
def test_positions_are_not_lost_beside_values(encoding: Any) -> None:
    # the vectors of positions are added to projected values, which are as large, as they are
    model = on_grid(encoding, SOFTMAX)
    received: list[Tensor] = []
    model.blocks[0].register_forward_hook(lambda m, inputs, out: received.append(inputs[0]))
    x = torch.randn(2, 6, 2, dtype=torch.float64)
    model(x)
    table, _ = model.encoding.prepare(torch.arange(6)[None, :, None], ())
    same(received[0] - model.embedding(x), table.to(x).expand(2, -1, -1))


def test_a_convolution_leaves_the_grid_of_the_compact_transformer() -> None:
    torch.manual_seed(0)
    config = ClassifierConfig(
        input=ConvolutionInputConfig(),
        encoding=GRID,
        attention=SOFTMAX,
        pooling="learned",
        skipped=0.6,
        **SIZES,
    )
    model = config.build()
    x = torch.randn(2, 32, 32, 3)
    assert model.embedding(x).shape == (2, 10, 10, 16)
    assert model(x).shape == (2, 5)
    with pytest.raises(ValueError, match="too small"):
        model(torch.randn(2, 4, 4, 3))


def test_noise_is_that_of_the_seed_and_shared_by_rows() -> None:
    model, x = classifier(), tokens(9)
    x[1:] = x[:1]
    first, second = (model(x, model.init_state(seed=seed)) for seed in (1, 2))
    assert torch.equal(first, model(x, model.init_state(seed=1)))
    differ(first, second)
    same(first, first[:1].expand_as(first))


def test_what_does_not_fit_is_refused() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"attention": DELTA, "encoding": ROPE}, "delta attention"),
        ({"attention": FADING}, "half_lives"),
        ({"encoding": ROPE}, "rope does not fit relu"),
        ({"encoding": SIREN_2D, "attention": SOFTMAX, "pooling": "cls"}, "cls has no place"),
        ({"encoding": SirenConfig(coordinates="joint"), "attention": SOFTMAX}, "coordinates"),
        ({"encoding": SelectiveRopeConfig(), "attention": SOFTMAX}, "inputs read so far"),
        ({"num_classes": 1}, "num_classes is 1, expected at least 2"),
        ({"num_heads": 3}, "expected a multiple of num_heads"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"pooling": "first"}, "pooling is 'first'"),
    ]
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            ClassifierConfig(**{"input": TOKENS, **SIZES, **change}).build()


def test_wrong_inputs_are_refused_in_one_sentence() -> None:
    model = classifier()
    with pytest.raises(ValueError, match=r"torch\.float32, expected \(b, ...\) and int64"):
        model(tokens(9).float())
    with pytest.raises(ValueError, match=r"mask has the shape \(3, 8\)"):
        model(tokens(9), mask=torch.ones(3, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask is False everywhere"):
        model(tokens(9), mask=torch.zeros(3, 9, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"expected \(b, 2, ...\)"):
        classifier(towers=2)(tokens(9))
    grid = on_grid(GRID, SOFTMAX)
    with pytest.raises(ValueError, match="has 2 axes and the input 1"):
        grid(torch.zeros(1, 4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected a sequence with a mask"):
        grid(torch.zeros(1, 4, 4, 2, dtype=torch.float64), mask=torch.ones(1, 16).bool())
