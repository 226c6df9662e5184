"""Choosing, loading and preparing models."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest

from app.compose import models
from app.compose.fill.passage import Passage
from app.compose.models import Models, suited_to
from app.compose.plan.asked import NOTHING, Needs
from tests.support.bands import model_of
from tests.support.scores import two_hands
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track

if TYPE_CHECKING:
    from app.compose.models import MusicModel


@pytest.fixture
def fresh_model(small_model: MusicModel, monkeypatch: pytest.MonkeyPatch) -> MusicModel:
    """A model that is not prepared yet; it reports immediately during preparation."""
    monkeypatch.setattr(models, "_PREPARED", {})
    monkeypatch.setattr(models, "LOADING_SECONDS", 0.001)
    monkeypatch.setattr(models, "PREPARING_SECONDS", 0.001)
    return small_model


def test_a_model_yields_until_its_steps_are_compiled_which_happens_once(
    fresh_model: MusicModel,
) -> None:
    compiled, calls = Event(), []

    def warm_up() -> None:
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


def test_failed_compilation_is_tried_again(fresh_model: MusicModel) -> None:
    def fail() -> None:
        raise RuntimeError("no room")

    model = replace(fresh_model, steps=fresh_model.steps._replace(warm_up=fail))
    with pytest.raises(RuntimeError, match="no room"):
        list(model.preparing())
    list(fresh_model.preparing())


def test_a_loaded_model_is_the_only_one(small_model: MusicModel) -> None:
    only = Models.only(small_model)
    assert only.names == ("small",)
    assert only.to_generate() is only.to_continue(two_hands()) is small_model
    assert only.folder("small") is None


def test_drums_and_several_instruments_are_for_the_groove_model() -> None:
    drums = Track.of([(0, 10, 36, 90)], is_drum=True)
    piano, electric, flute = (Track.of([(0, 10, 60, 90)], program=p) for p in (0, 5, 73))
    nothing = Track.of([], program=40)
    assert suited_to(two_hands()) == "piano"
    assert suited_to(Score(12, (piano, electric, nothing))) == "piano"
    assert suited_to(Score(12, (flute,))) == "piano"
    assert suited_to(Score(12, (piano, flute))) == "groove"
    assert suited_to(Score(12, (piano, drums))) == "groove"
    assert suited_to(Score(12, (drums,))) == "groove"


@pytest.fixture
def several(small_model: MusicModel) -> Models:
    """Models of both versions, for pianos and for bands."""
    chosen = Models.only(small_model)
    styles = MultitrackRemiConfig(styles=("jazz",))
    tokenizers = {
        "piano": PianoRemi(),
        "groove": MultitrackRemi(),
        "piano-new": PianoRemi(),
        "groove-new": MultitrackRemi(styles),
    }
    chosen.names = tuple(tokenizers)
    chosen._loaded = {name: replace(model_of(t), name=name) for name, t in tokenizers.items()}
    return chosen


def test_the_automatic_choice_can_do_what_is_needed(several: Models) -> None:
    pianos = two_hands()
    drums = Score(12, (Track.of([(0, 10, 36, 90)], is_drum=True),))
    form, jazz, ending = Needs(form=True), Needs(style="jazz"), Needs(ending=True)
    for score, needs, name in (
        (None, NOTHING, "piano"),
        (None, form, "piano-new"),
        (None, ending, "piano-new"),
        (None, jazz, "groove-new"),
        (pianos, form, "piano-new"),
        (pianos, Needs(form=True, style="jazz"), "groove-new"),
        (drums, NOTHING, "groove"),
        (drums, form, "groove-new"),
        # no model has this style: the error of one with styles lists them
        (pianos, Needs(form=True, style="polka"), "groove-new"),
        (pianos, Needs(style="polka"), "groove-new"),
    ):
        assert several.suited(score, needs) == name
    assert several.to_generate(form).name == several.to_continue(pianos, form).name == "piano-new"
    assert several.able(drums, form) == ["groove-new"]
    assert several.able(None, form) == ["piano-new", "groove-new"]
    filled = several.to_fill(pianos, Passage(), jazz)
    assert filled is not None
    assert filled.name == "groove-new"


def test_a_model_for_pianos_is_not_chosen_for_a_band(several: Models) -> None:
    several.names = ("groove", "piano-new")
    drums = Score(12, (Track.of([(0, 10, 36, 90)], is_drum=True),))
    assert several.suited(drums, Needs(form=True)) == "groove"
    assert several.able(drums, Needs(form=True)) == []


def test_single_tracks_and_new_ones_are_written_by_a_model_of_several_instruments(
    small_model: MusicModel,
) -> None:
    chosen = Models.only(small_model)
    tokenizers = {
        "one": MultitrackRemi(),
        "piano": PianoRemi(),
        "band": MultitrackRemi(),
    }
    chosen.names = tuple(tokenizers)
    chosen._loaded = {name: replace(model_of(t), name=name) for name, t in tokenizers.items()}
    hands = Score(12, (Track.of([(0, 10, 60, 90)]), Track.of([(0, 10, 40, 90)])))
    drums = Score(12, (Track.of([(0, 10, 36, 90)], is_drum=True),))
    for score, passage, name in (
        (hands, Passage(), "piano"),
        (hands, Passage(tracks=frozenset({0, 1})), "piano"),
        (hands, Passage(tracks=frozenset({1})), "band"),
        (hands, Passage(instrument=32), "band"),
        (drums, Passage(), "band"),
    ):
        found = chosen.to_fill(score, passage)
        assert found is not None
        assert found.name == name
    chosen.names = ("one",)
    assert chosen.to_fill(hands, Passage()) is None
