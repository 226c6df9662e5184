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
    [best] = beam_search(model, state, START, END, [MOST], beams=5**MOST, strength=strength)
    assert len(best) == len(scored)
    for one, (score, target) in zip(best[:20], scored, strict=False):
        assert one.tokens == target
        assert one.score == pytest.approx(score)
    [few] = beam_search(model, state, START, END, [MOST], beams=3, strength=strength)
    assert len(few) == 3
    assert few[0].score <= best[0].score + 1e-12
    for one in few:
        assert one.log_probability == pytest.approx(log_probability(model, state, one.tokens))


SOURCES = torch.tensor([[1, 3, 4, 1], [3, 3, 0, 0], [4, 1, 1, 0]])
LENGTHS = (4, 2, 3)


def several(seed: int) -> tuple[EncoderDecoder, EncoderDecoderState]:
    """A model that has read three sources of different lengths."""
    torch.manual_seed(seed)
    model, _ = small()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(torch.rand_like(weight) + 0.5)
        mask = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
        return model, model.read(SOURCES, model.init_state(3), mask=mask)


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy_search_and_no_best_score_is_below_its(seed: int) -> None:
    model, state = several(seed)
    greedy = transduce(model, state, START, [Line(END)] * 3, 8)
    ones = beam_search(model, state, START, END, [8] * 3, beams=1)
    assert [[one.tokens for one in each] for each in ones] == [[tokens] for tokens in greedy]
    for beams in (2, 3, 5):
        found = beam_search(model, state, START, END, [8] * 3, beams=beams)
        for [one], each in zip(ones, found, strict=True):
            assert len(each) == beams
            assert each[0].score >= one.score - 1e-12
            assert one.tokens in [other.tokens for other in each]


def test_sources_do_not_affect_each_other() -> None:
    model, state = several(0)
    most = [3, 8, 5]
    together = beam_search(model, state, START, END, most)
    for row, length in enumerate(LENGTHS):
        alone = model.read(SOURCES[row : row + 1, :length], model.init_state(1))
        [found] = beam_search(model, alone, START, END, [most[row]])
        assert max(len(one.tokens) for one in found) <= most[row]
        assert [one.tokens for one in found] == [one.tokens for one in together[row]]
        for one, other in zip(found, together[row], strict=True):
            assert one.score == pytest.approx(other.score)


def test_longer_targets_are_preferred_by_a_stronger_penalty() -> None:
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(50, 0.0) == 1
    assert length_penalty(50, 0.6) > length_penalty(20, 0.6)


def test_bad_numbers_are_refused() -> None:
    model, state = small()
    with pytest.raises(ValueError, match="the state has 1 rows, but most has 2 numbers"):
        beam_search(model, state, START, END, [4, 4])
    with pytest.raises(ValueError, match="beams is 0"):
        beam_search(model, state, START, END, [4], beams=0)
    with pytest.raises(ValueError, match=r"most \[0\]"):
        beam_search(model, state, START, END, [0])
