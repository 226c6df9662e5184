"""The model studies a prompt before it writes: a copy writes, and nothing else changes."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from app.compose import replay, study
from app.compose.continuation import Result, continue_prompt
from app.compose.fill.passage import Passage
from app.compose.models import load_music_model
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt.prompt import read_prompt
from app.compose.study import FEWEST_BARS, StudyMaterial, study_prompt
from app.server.memory.sizes import size_of
from relpe.decoding.compiled import CompiledDecoder
from relpe.learning.study import Studied, StudyConfig
from tests.support.scores import two_hands
from tokenization.midi import write_midi
from tokenization.remi.vocabulary import BAR

OPTIONS = MusicOptions(bars=1, seed=1)
MOST_BYTES = 40e6


@pytest.fixture(autouse=True)
def _ticking(monkeypatch):
    """Studies are fast, and count seconds by a clock that ticks at each look."""
    monkeypatch.setattr(study, "CONFIG", StudyConfig(learning_rate=3e-2))
    ticking = map(float, count()).__next__
    monkeypatch.setattr(study, "study", partial(study.study, now=ticking))


def prompt_of(bars=8, **how):
    return read_prompt(write_midi(two_hands(bars)), **how)


def made(model, prompt, stop=lambda: False, **options: Any) -> tuple[Any, Any]:
    """The steps, and the first piece."""
    asked = dataclasses.replace(OPTIONS, **options)
    *steps, result = continue_prompt(model, prompt, asked, stop=stop)
    assert isinstance(result, Result)
    return steps, result.pieces[0]


def test_a_copy_writes_and_its_steps_give_the_same_bytes(small_model):
    before = copy.deepcopy(small_model.decoder.state_dict())
    prompt = prompt_of()
    _, plain = made(small_model, prompt)
    shown, piece = made(small_model, prompt, study=20.0, variations=2)
    after = small_model.decoder.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    parts = [step.studying for step in shown if step.studying is not None]
    assert parts == sorted(parts)
    assert 0 == parts[0] < parts[-1] <= 1
    assert piece.midi != plain.midi
    assert piece.studied.steps > 0
    assert "fewer nats" in piece.studied.line
    settings = replay.settings(piece.studied.settled(OPTIONS), small_model, prompt)
    told = replay.from_settings(settings)
    assert (told.options.study, told.options.study_steps) == (0, piece.studied.steps)
    *_, again = continue_prompt(small_model, prompt, told.options)
    assert isinstance(again, Result)
    assert again.pieces[0].midi == piece.midi
    assert made(small_model, prompt)[1].midi == plain.midi


def test_without_a_gain_the_model_itself_writes_and_it_is_said_why(small_model, monkeypatch):
    short = prompt_of(FEWEST_BARS - 1)
    stop = iter([False, True, True, True, True]).__next__
    cases = {
        "found 3 bars to study, expected 4 or more": (short, {}, lambda: False),
        "the job was stopped": (prompt_of(), {"bars": 400}, stop),
        "did not become more likely": (prompt_of(), {}, lambda: False),
    }
    for why, (prompt, options, stopping) in cases.items():
        if "likely" in why:
            monkeypatch.setattr(study, "study", lambda *_: iter([Studied(None, 0, 1.0, 1.0)]))
        _, piece = made(small_model, prompt, stopping, study=20.0, **options)
        studied = piece.studied
        assert studied.steps == 0
        assert studied.line.startswith("not studied: ")
        assert why in studied.line
        assert studied.settled(OPTIONS) == OPTIONS
        if not options:
            assert piece.midi == made(small_model, prompt)[1].midi


@pytest.mark.parametrize(
    ("passage", "kept"),
    [
        (Passage(first_bar=3, last_bar=4), 6),
        (Passage(first_bar=9, last_bar=10), 8),  # a continuation
        (Passage(first_bar=1, last_bar=5), 3),
    ],
)
def test_bars_that_are_to_be_written_are_not_studied(small_model, passage, kept):
    prompt = prompt_of(passage=passage)
    material = StudyMaterial(small_model, prompt, 0)
    assert material.bars == kept
    options = dataclasses.replace(OPTIONS, study_steps=2)
    *_, opening = study_prompt(Opening.after(small_model, prompt, options), lambda: False)
    assert isinstance(opening, Opening)
    assert opening.has_copy == (kept >= FEWEST_BARS)


def test_a_step_reads_whole_bars_but_not_those_that_are_held_back(small_model):
    prompt = prompt_of(32)
    material = StudyMaterial(small_model, prompt, 0)
    rows = [row for step in range(20) for row in material(step).tokens.numpy()]
    assert max(np.count_nonzero(row == BAR) for row in rows) <= 32 - 32 // study.HELD_SHARE
    predicted = material.held.targets[0] != study.NOT_PREDICTED
    held = material.held.tokens[0][predicted]
    assert int((held == BAR).sum()) == 32 // study.HELD_SHARE
    again = material(3)
    assert all(torch.equal(*pair) for pair in zip(again, material(3), strict=True))


def test_only_the_last_bars_are_studied_if_only_they_are_read(small_model):
    assert StudyMaterial(small_model, prompt_of(), 5).bars == 5


@pytest.mark.parametrize("name", ["piano", "groove"])
def test_a_copy_costs_at_most_forty_megabytes(name):
    decoder = load_music_model(name).decoder
    compiled = CompiledDecoder(decoder)
    weights = sum(one.numel() * one.element_size() for one in decoder.state_dict().values())
    assert weights + size_of([compiled.weights, compiled.attention]) < MOST_BYTES
