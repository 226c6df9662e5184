"""A copy of a decoder studies a sequence; the decoder itself stays as it is."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

from relpe.learning.study import NOT_PREDICTED, Passage, Studied, StudyConfig, study, study_again
from relpe.models.decoder import DecoderConfig

CONFIG = StudyConfig(learning_rate=1e-2, small_learning_rate=1e-2, warm_up=1)
SEQUENCE = torch.arange(64) % 7


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    config = DecoderConfig(vocabulary_size=8, width=16, num_layers=1, num_heads=2, hidden=16)
    return config.build().eval().requires_grad_(requires_grad=False)


def passage(step, sequence=SEQUENCE):
    ids = sequence[step % 7 : step % 7 + 33]
    return Passage(ids[None, :-1], ids[None, 1:], torch.arange(32)[None, :, None])


def ended(steps) -> Any:
    *shares, studied = steps
    assert all(isinstance(share, float) and 0 <= share <= 1 for share in shares)
    assert isinstance(studied, Studied)
    return studied


def studying(decoder, passages=passage, held=None, seconds=12.0, config=CONFIG) -> Any:
    """A study whose clock ticks once a look."""
    held = passage(3) if held is None else held
    return study(decoder, passages, held, seconds, config, now=map(float, count()).__next__)


@pytest.fixture
def two_threads():
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(usual)


def test_a_study_helps_changes_only_its_copy_and_can_be_repeated_by_steps(decoder, two_threads):
    before, random = copy.deepcopy(decoder.state_dict()), torch.get_rng_state()
    studied = ended(studying(decoder))
    again = ended(study_again(decoder, passage, studied.steps, CONFIG))
    assert 0 < studied.steps == again.steps
    assert studied.after < studied.before
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(weight, before[name]) for name, weight in decoder.state_dict().items())
    for one in (studied.decoder, again.decoder):
        assert one.state_dict().keys() == before.keys()
        assert not any(weight.requires_grad for weight in one.parameters())
    pairs = zip(studied.decoder.parameters(), again.decoder.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    own = {weight.data_ptr() for weight in decoder.parameters()}
    assert own.isdisjoint(weight.data_ptr() for weight in studied.decoder.parameters())


@pytest.mark.parametrize("problem", ["other music", "not finite", "no time", "nothing to predict"])
def test_without_a_gain_there_is_no_copy(decoder, problem):
    held, passages, config = passage(3), passage, CONFIG
    if problem == "other music":
        held = passage(0, torch.full((64,), 7))
    elif problem == "not finite":
        config = replace(CONFIG, learning_rate=math.nan)
    elif problem == "no time":
        config = replace(CONFIG, learning_rate=0.0, small_learning_rate=0.0)
    else:
        held = held._replace(targets=torch.full_like(held.targets, NOT_PREDICTED))
    studied = ended(studying(decoder, passages, held, config=config))
    assert (studied.decoder, studied.steps) == (None, 0)


def test_a_study_that_is_closed_ends(decoder):
    steps = studying(decoder, seconds=1e9)
    assert isinstance(next(steps), float)
    steps.close()
    assert next(steps, None) is None
