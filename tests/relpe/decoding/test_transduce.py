"""Generation by an encoder-decoder equals a loop without a state."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from relpe.decoding.transduce import Line, Target, transduce
from relpe.models.encoder_decoder.model import EncoderDecoder
from tests.support.encoder_decoders import encoder_decoder

START, MOST = 0, 7


class Summed(NamedTuple):
    """A target of `left` tokens; the second axis of a position is the sum of its tokens."""

    left: int
    total: int = 0

    @property
    def has_ended(self) -> bool:
        return self.left < 0

    def read(self, token: int) -> tuple[tuple[int, ...], Summed]:
        total = self.total + token
        return (total,), Summed(self.left - 1, total)


def naive(model: EncoderDecoder, source: torch.Tensor, target: Target) -> list[int]:
    """Tokens of one row, each predicted from the whole target so far."""
    axes, target = target.read(START)
    written, places = [START], [(0, *axes)]
    while len(written) <= MOST and not target.has_ended:
        state = read(model, source, len(places[0]))
        logits, _ = model(torch.tensor([written]), state, positions=torch.tensor([places]))
        written.append(int(logits[0, -1].argmax()))
        axes, target = target.read(written[-1])
        places.append((len(written) - 1, *axes))
    return written[1:]


def read(model: EncoderDecoder, source: torch.Tensor, num_axes: int):
    index = torch.arange(source.shape[1])[None, :, None].expand(-1, -1, num_axes)
    return model.read(source, model.init_state(len(source)), positions=index)


@pytest.mark.parametrize("name", ["rope softmax", "sine relu", "shaw softmax", "tree softmax"])
@torch.no_grad()
def test_rows_that_end_at_different_times_equal_a_loop_without_a_state(name: str) -> None:
    model = encoder_decoder(name, tied=False)
    source = torch.randint(11, (4, 5), generator=torch.Generator().manual_seed(3))
    targets = [Summed(size) for size in (6, 2, 9, 4)]
    found = transduce(model, read(model, source, 2), START, targets, MOST)
    pairs = zip(source, targets, strict=True)
    assert found == [naive(model, row[None], target) for row, target in pairs]
    assert [len(row) for row in found] == [6, 2, MOST, 4]


@torch.no_grad()
def test_a_line_ends_with_its_last_token() -> None:
    model = encoder_decoder("rope softmax", tied=False)
    source = torch.tensor([[1, 2]])
    endless = transduce(model, read(model, source, 1), START, [Line(end=99)], MOST)[0]
    assert endless == naive(model, source, Line(end=99))
    assert len(endless) == MOST
    end = endless[2]
    found = transduce(model, read(model, source, 1), START, [Line(end)], MOST)[0]
    assert found == endless[: endless.index(end) + 1]
