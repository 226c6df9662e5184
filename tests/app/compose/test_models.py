"""Choosing, loading and preparing models."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest

from app.compose import models
from app.compose.fill.passage import Passage
from app.compose.models import Models, suited_to
from app.compose.options import MusicOptions
from tests.support.bands import model_of
from tests.support.scores import two_hands
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.score import Score, Track


@pytest.fixture
def fresh_model(small_model, monkeypatch):
    """A model that is not prepared yet; it reports immediately during preparation."""
    monkeypatch.setattr(models, "_PREPARED", {})
    monkeypatch.setattr(models, "LOADING_SECONDS", 0.001)
    monkeypatch.setattr(models, "PREPARING_SECONDS", 0.001)
    return small_model


def test_a_model_yields_until_its_steps_are_compiled_which_happens_once(fresh_model):
    compiled, calls = Event(), []

    def warm_up():
        calls.append(1)
        compiled.wait(60)

    model = replace(fresh_model, steps=fresh_model.steps._replace(warm_up=warm_up))
    preparing = model.preparing()
    for _ in range(3):
        next(preparing)
    compiled.set()
    assert sum(1 for _ in preparing) < 1000
    assert list(model.preparing()) == []
    assert len(calls) == 1


def test_failed_compilation_is_tried_again(fresh_model):
    def fail():
        raise RuntimeError("no room")

    model = replace(fresh_model, steps=fresh_model.steps._replace(warm_up=fail))
    with pytest.raises(RuntimeError, match="no room"):
        list(model.preparing())
    list(fresh_model.preparing())


def test_drums_and_several_instruments_are_for_the_groove_model(small_model):
    only = Models.only(small_model)
    assert only.names == ("small",)
    assert only.to_generate() is only.to_continue(two_hands()) is small_model
    assert only.folder("small") is None
    (drums,) = DRUMS.tracks
    piano, electric, flute = (Track.of([(0, 10, 60, 90)], program=p) for p in (0, 5, 73))
    nothing = Track.of([], program=40)
    assert suited_to(two_hands()) == "piano"
    assert suited_to(Score(12, (piano, electric, nothing))) == "piano"
    assert suited_to(Score(12, (flute,))) == "piano"
    assert suited_to(Score(12, (piano, flute))) == "groove"
    assert suited_to(Score(12, (piano, drums))) == "groove"
    assert suited_to(DRUMS) == "groove"


DRUMS = Score(12, (Track.of([(0, 10, 36, 90)], is_drum=True),))


def models_of(**tokenizers: Remi) -> Models:
    models = Models(())
    models.names = tuple(tokenizers)
    models._loaded = {name: replace(model_of(t), name=name) for name, t in tokenizers.items()}
    return models


def test_the_automatic_choice_has_the_style_that_is_asked():
    several = models_of(
        piano=PianoRemi(),
        groove=MultitrackRemi(),
        styled=MultitrackRemi(MultitrackRemiConfig(styles=("jazz",))),
    )
    pianos = two_hands()
    for score, style, name in (
        (None, "", "piano"),
        (None, "jazz", "styled"),
        (pianos, "jazz", "styled"),
        (DRUMS, "", "groove"),
        (DRUMS, "jazz", "styled"),
        # no model has this style: the error of one with styles lists them
        (pianos, "polka", "styled"),
    ):
        assert several.suited(score, style) == name
    assert several.to_generate(MusicOptions(style="jazz")).name == "styled"
    assert several.to_continue(pianos, "jazz").name == "styled"
    assert several.with_style(DRUMS, "jazz") == ["styled"]
    assert several.to_fill(pianos, Passage(), "jazz").name == "styled"
    several.names = ("groove", "piano")  # a model for pianos is not chosen for a band
    assert several.suited(DRUMS, "jazz") == "groove"
    assert several.with_style(DRUMS, "jazz") == []


def test_single_tracks_and_new_ones_are_written_by_a_model_of_several_instruments():
    chosen = models_of(
        piano=PianoRemi(),
        band=MultitrackRemi(),
    )
    hands = Score(12, (Track.of([(0, 10, 60, 90)]), Track.of([(0, 10, 40, 90)])))
    for score, passage, name in (
        (hands, Passage(), "piano"),
        (hands, Passage(tracks=frozenset({0, 1})), "piano"),
        (hands, Passage(tracks=frozenset({1})), "band"),
        (hands, Passage(instrument=32), "band"),
        (DRUMS, Passage(), "band"),
    ):
        assert chosen.to_fill(score, passage).name == name
