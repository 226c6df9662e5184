"""Events: what the blocks and the local decoder see, and the likelihood of sequences."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlgebraicConfig, RopeConfig, SineSPEConfig, SirenConfig
from relpe.encodings.algebraic.structures import GridStructure
from relpe.models.decoder import DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig
from tests.support.compared import compare_with_gradients
from tests.support.decoders import CONFIGS, EVENTS, decoder, in_pieces, parameters, tokens_of
from tests.support.reference_events import logits_by_event

with_events = pytest.mark.parametrize(
    "name", parameters(name for name in CONFIGS if name.startswith("events"))
)
INDEX = torch.arange(60)[None, :, None]


@with_events
def test_logits_and_gradients_are_those_of_one_event_after_another(name: str) -> None:
    model, tokens = decoder(name).double(), tokens_of(60, rows=3)
    for weight in model.parameters():
        weight.data *= 3  # so that all parts matter
    found, _ = model(tokens, INDEX, model.init_state(3))
    expected = torch.stack([logits_by_event(model, row) for row in tokens.tolist()])
    compare_with_gradients(found, expected, [*model.parameters()], rtol=1e-6, atol=1e-7)


@with_events
def test_gradients_do_not_depend_on_the_split(name: str) -> None:
    model, tokens = decoder(name).double(), tokens_of(40, rows=3)

    def gradients(pieces: list[int]) -> list[torch.Tensor]:
        loss = in_pieces(model, tokens, pieces).logsumexp(-1).sum()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    whole = gradients([40])
    for pieces in ([1, 2, 0, 37], [7] * 5 + [5]):
        for one, other in zip(gradients(pieces), whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_the_probabilities_of_all_sequences_sum_to_one() -> None:
    model = replace(decoder("events: sine relu, fading").config, vocabulary_size=4)
    model = replace(model, events=EventsConfig(closing=((1, 2), (3, 4)), hidden=16)).build().eval()
    for weight in model.parameters():
        weight.data *= 4
    sequences = torch.tensor(list(itertools.product(range(4), repeat=5)))
    given = torch.cat([torch.full((len(sequences), 2), 2), sequences], 1)  # an open event first
    with torch.no_grad():
        logits, _ = model(given[:, :-1], INDEX[:, :6], model.init_state(len(given)))
    nats = logits.double().log_softmax(-1).gather(2, given[:, 1:, None])[..., 0]
    assert nats[:, 1:].sum(1).exp().sum().item() == pytest.approx(1, abs=1e-6)
    assert nats.std() > 0.1


def test_blocks_have_a_position_for_each_event_only() -> None:
    model, seen = decoder("events: sine relu, fading"), []
    model.blocks[0].register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    tokens = torch.tensor([[0, 1, 3, 8, 0, 0, 4, 1], [0, 1, 2, 0, 1, 2, 0, 10]])
    _, state = model(tokens, INDEX[:, :8], model.init_state(2))
    assert state.events is not None
    assert seen == [3]
    assert state.events.closed.tolist() == [3, 1]
    assert state.events.size.tolist() == [1, 0]
    model(tokens[:, :1], INDEX[:, :1], state)
    assert seen == [3]  # no event was closed


COORDINATES = DecoderConfig(
    vocabulary_size=11,
    width=16,
    num_layers=4,
    num_heads=2,
    hidden=24,
    encoding=SineSPEConfig(num_realizations=6),
    layers=(
        LayerConfig(),
        LayerConfig(
            attention=WindowedAttentionConfig(span=9),
            encoding=AlgebraicConfig(structure=GridStructure()),
            axes=(2, 1),
        ),
    ),
)


def placed(length: int) -> torch.Tensor:
    """Positions (3, length, 3): the index, and two coordinates of each row."""
    torch.manual_seed(2)
    others = torch.randint(0, 9, (3, length, 2))
    return torch.cat([torch.arange(length).expand(3, -1)[..., None], others], -1)


@pytest.mark.parametrize("events", [None, EVENTS])
def test_layers_read_the_axes_that_they_choose(events: EventsConfig | None) -> None:
    torch.manual_seed(0)
    model = replace(COORDINATES, events=events).build().eval()
    tokens, places = tokens_of(40, rows=3), placed(40)
    whole = in_pieces(model, tokens, [40], places)
    torch.testing.assert_close(
        in_pieces(model, tokens, [1, 5, 1, 33], places), whole, rtol=1e-4, atol=1e-5
    )
    shifted = in_pieces(model, tokens, [40], places + torch.tensor([0, 100, 7]))
    torch.testing.assert_close(shifted, whole, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(in_pieces(model, tokens, [40], places * 2), whole, atol=1e-4)
    if events is not None:
        for row in range(3):
            expected = logits_by_event(model, tokens[row].tolist(), places[row, :, 1:])
            torch.testing.assert_close(whole[row], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"reads the axes \[2, 1\]; expected at least 3"):
        model(tokens, INDEX[:, :40], model.init_state(3))


def test_what_does_not_fit_is_refused() -> None:
    for closing, message in (
        ((), "closing is empty"),
        (((3, 12),), "has ids up to 11, but the vocabulary has 11"),
        (((3, 3),), "expected ascending ranges"),
        (((5, 7), (6, 9)), "expected ascending ranges"),
        (((-1, 2),), "expected ascending ranges"),
    ):
        with pytest.raises(ValueError, match=message):
            DecoderConfig(vocabulary_size=11, events=EventsConfig(closing=closing)).build()
    # attention whose state has one length for all rows
    for layer in (
        LayerConfig(attention=SoftmaxAttentionConfig(), encoding=RopeConfig()),
        LayerConfig(attention=WindowedAttentionConfig(), encoding=SirenConfig(coordinates="joint")),
    ):
        with pytest.raises(ValueError, match="models with events do not support"):
            DecoderConfig(vocabulary_size=11, events=EVENTS, layers=(layer,)).build()


def test_ranges_of_ids() -> None:
    ranges = EventsConfig.ranges([9, 3, 10, 4, 8])
    assert EventsConfig(closing=ranges, hidden=24, most=3) == EVENTS
