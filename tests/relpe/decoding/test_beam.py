"""Beam search finds what an exhaustive search finds, and with one beam what greedy search does."""

from __future__ import annotations

import itertools

import pytest
import torch

from relpe.decoding.beam import beam_search, length_penalty
from relpe.decoding.transduce import Line, transduce
from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderState
from tests.support.encoder_decoders import encoder_decoder

START, END, MOST = 0, 2, 4


def small() -> tuple[EncoderDecoder, EncoderDecoderState]:
    """A model of five tokens that has read a source."""
    model = encoder_decoder("rope softmax", vocabulary_size=5, tied=False)
    with torch.no_grad():
        assert model.project_out is not None
        model.project_out.weight.mul_(30)
        return model, model.read(torch.tensor([[1, 3, 4]]), model.init_state(1))


def every_target() -> list[list[int]]:
    others = [token for token in range(5) if token != END]
    ended = [
        [*begun, END] for size in range(MOST) for begun in itertools.product(others, repeat=size)
    ]
    return [*ended, *map(list, itertools.product(others, repeat=MOST))]


@torch.no_grad()
def log_probability(model: EncoderDecoder, state: EncoderDecoderState, target: list[int]) -> float:
    logits, _ = model(torch.tensor([[START, *target[:-1]]]), state)
    return float(logits[0].log_softmax(-1).gather(-1, torch.tensor(target)[:, None]).sum())


@pytest.mark.parametrize("strength", [0.0, 0.6, 2.0])
def test_wide_beams_find_the_best_of_all_targets(strength: float) -> None:
    model, state = small()
    scored = []
    for target in every_target():
        found = log_probability(model, state, target)
        scored.append((found / length_penalty(len(target), strength), target))
    scored.sort(reverse=True)
    best = beam_search(model, state, START, END, beams=5**MOST, most=MOST, strength=strength)
    assert len(best) == len(scored)
    for one, (score, target) in zip(best[:20], scored, strict=False):
        assert one.tokens == target
        assert one.score == pytest.approx(score)
    few = beam_search(model, state, START, END, beams=3, most=MOST, strength=strength)
    assert len(few) == 3
    assert few[0].score <= best[0].score + 1e-12
    for one in few:
        assert one.log_probability == pytest.approx(log_probability(model, state, one.tokens))


def test_one_beam_without_a_penalty_is_no_worse_than_greedy_search() -> None:
    model, state = small()
    [greedy] = transduce(model, state, START, [Line(END)], MOST)
    [best] = beam_search(model, state, START, END, beams=1, most=MOST, strength=0.0)
    assert best.log_probability >= log_probability(model, state, greedy) - 1e-12


def test_longer_targets_are_preferred_by_a_stronger_penalty() -> None:
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(50, 0.0) == 1
    assert length_penalty(50, 0.6) > length_penalty(20, 0.6)


def test_several_sources_and_bad_numbers_are_refused() -> None:
    model, state = small()
    with pytest.raises(ValueError, match="one source at a time"):
        beam_search(model, state.rows(torch.tensor([0, 0])), START, END)
    with pytest.raises(ValueError, match="beams is 0"):
        beam_search(model, state, START, END, beams=0)
