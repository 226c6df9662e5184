"""Settings of a piece in the form of the page."""

from __future__ import annotations

import json

import gradio as gr
import pytest

from app.compose.options import MusicOptions
from app.compose.replay import chosen_options
from app.web.callbacks.alerts import BUSY
from app.web.callbacks.settings import ASKED_BY_ROWS
from tests.support.seen import (
    OTHER,
    SOMEONE,
    begin,
    event,
    file_of,
    filled_form,
    make,
    planned,
    read,
    seen,
    shown,
    work_of,
)


def test_settings_and_their_file_make_the_same_piece_again(calls, midi, band):
    read(calls, midi)
    calls.uploads.choose_region(event(first=2, last=3), SOMEONE)
    _, view = make(calls, bars=4, key="C", seed=11, temperature=1.1)
    settings, first = file_of(calls, view, "replay"), file_of(calls, view)
    view, upload = read(calls, settings, who=OTHER)
    assert upload is None
    assert "upload its MIDI file" in view.card
    view, upload = read(calls, band, who=OTHER)  # another file
    assert upload.title == "band"
    assert "settings were made with another file" in view.card
    assert "the music will differ" in view.card
    filled = filled_form(calls, OTHER)
    assert (filled["seed"], filled["temperature"]) == (11, 1.1)
    view, upload = read(calls, midi, who=OTHER)  # they were kept until the file was uploaded
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert "All settings are restored" in view.card
    filled = filled_form(calls, OTHER)
    assert (filled["seed"], filled["fresh"], filled["key"]) == (11, False, "C")
    assert filled["bars"].value == 4
    assert filled_form(calls, OTHER)["bars"] == gr.skip()  # only once
    _, view = make(calls, who=OTHER, bars=4, key="C", seed=11, temperature=1.1)
    again = file_of(calls, view)
    assert again != first
    assert again.read_bytes() == first.read_bytes()


def test_drums_that_are_switched_on_the_card_are_pinned_in_the_settings(calls, band):
    """Also in later versions of the piece; tracks that share a channel are switched together."""

    def drums(who=SOMEONE):
        rows = work_of(calls, who).upload.whole.facts.rows
        assert shown(calls, who).card.count("aria-pressed='true'") == sum(r.drums for r in rows)
        return [row.id for row in rows if row.drums]

    view, _ = read(calls, band)
    assert drums() == [2]
    for data in ({}, {"track": 9}, {"track": True}):
        calls.uploads.choose_drums(event(**data), SOMEONE)
        assert work_of(calls).frame["job"] == view.frame["job"]
    view = seen(calls.uploads.choose_drums(event(track=1, drums=True), SOMEONE))
    assert drums() == [1, 2]
    assert [track["drums"] for track in view.frame["prompt"]["tracks"]] == [False, True, True]
    calls.history.undo(SOMEONE)
    assert drums() == [2]
    calls.history.redo(SOMEONE)
    calls.uploads.edit(event(variation=-1, semitones=1), SOMEONE)
    assert drums() == [1, 2]
    calls.history.undo(SOMEONE)
    _, view = make(calls, bars=2, seed=4)
    settings, first = file_of(calls, view, "replay"), file_of(calls, view).read_bytes()
    assert json.loads(settings.read_text())["options"]["drums"] == "2,3"
    read(calls, band, who=OTHER)
    before = work_of(calls, OTHER).frame["job"]
    read(calls, settings, who=OTHER)
    assert drums(OTHER) == [1, 2]
    assert work_of(calls, OTHER).frame["job"] != before  # which has another sound
    _, view = make(calls, who=OTHER, bars=2, seed=4)
    assert file_of(calls, view).read_bytes() == first
    begin(calls, who=OTHER)  # continues the result
    assert drums(OTHER) == [1, 2]


def write_settings(path, **changed):
    """A file of settings."""
    whole = chosen_options(MusicOptions(), after_prompt="prompt_sha256" in changed)
    options = whole | changed.pop("options", {"bars": 4})
    settings = {"model": "fake", "seed": 3, "options": options}
    path.write_text(json.dumps(settings | changed))
    return path


@pytest.fixture
def path(tmp_path):
    """Where settings are written."""
    return tmp_path / "settings.json"


def test_unusable_settings_are_reported_in_one_sentence(calls, midi, path):
    """Those beyond the ranges of the page by name."""
    read(calls, midi)
    for text in ("{", "{}"):
        path.write_text(text)
        view, upload = read(calls, path)
        assert "class='refused'" in view.card
        assert upload is not None
    options = {"bars": 4, "temperature": 2.0, "top_k": 500, "variations": 8}
    limits = ["temperature is 2, expected 0.5 to 1.5", "top-k is 500, expected 0 to 100"]
    limits += ["variations is 8, expected 1 to 4", "relpe replay"]
    for changed, errors in (
        ({"model": "other"}, ["class='refused'"]),
        ({"model_sha256": "0" * 64}, ["another model named fake, whose weights differ"]),
        ({"options": options}, limits),
        ({"options": options, "prompt_sha256": "0" * 64}, limits),
    ):
        view, _ = read(calls, write_settings(path, **changed))
        assert [error for error in errors if error not in view.card] == []
        assert calls.settings.fill_form(SOMEONE)[0] == gr.skip()


def test_settings_of_a_new_piece_fill_the_form_and_choose_its_model(
    calls, midi, band, path, second
):
    read(calls, midi)
    options = {"seconds": 2.0, "temperature": 1.2}  # shorter than the page's default
    view, _ = read(calls, write_settings(path, model=second, options=options))
    assert view.model.value == second
    assert "press Continue" in view.card
    filled = filled_form(calls)
    length = filled["bars"]
    assert (length.minimum, length.value, filled["unit"]) == (2.0, 2.0, "seconds")
    assert make(calls, bars=2.0, unit="seconds")[1].frame["phase"] == "done"
    # those of a file are forgotten once music is made from another one
    read(calls, write_settings(path, prompt_sha256="0" * 64))
    read(calls, midi)
    make(calls)
    assert "settings" not in read(calls, band)[0].card
    calls.settings.fill_form(SOMEONE)
    assert calls.settings.fill_form(SOMEONE)[0] == gr.skip()


def plan(calls, bars=9, **changed):
    """The frame after a field of the form has changed."""
    return planned(calls, bars=bars, **changed).frame


def ask(calls, **sent):
    """The fields that the rows of the player change."""
    rows = calls.settings.ask(event(**sent), SOMEONE)
    return dict(zip(ASKED_BY_ROWS, rows, strict=True))


def test_form_and_chords_of_a_piece_from_nothing_are_asked_as_those_after_a_file(calls, second):
    assert plan(calls)["phase"] == "empty"
    frame = plan(calls, 8, chords="C | G")  # a text begins a new piece on an empty page
    assert (frame["phase"], frame["plan"]["chords"]) == ("prompt", ["C", "G"] * 4)
    view = seen(calls.uploads.new_piece(SOMEONE))
    assert (view.frame["phase"], view.frame["plan"]["first"]) == ("prompt", 1)
    assert view.frame["timeline"]["bars"].count(";") == 8 + 1
    filled = ask(calls, form="A4 B20", chords="C | ?")
    assert (filled["form"], filled["chords"]) == ("A4 B20", "C | ?")
    view = planned(calls, bars=8, form="A4 B20")  # the length follows the form
    assert (view.length.value, view.frame["plan"]["bars"]) == (24, 24)
    assert planned(calls, bars=24, form="A4 B2").length == gr.skip()
    ignored = ask(calls, growth="vary").values()  # there is no loop
    assert set(map(str, ignored)) == {str(gr.skip())}
    frame = plan(calls, 6, chords="C | ?", distance=0.5)
    assert frame["plan"]["asked"] == "chords in 3 of 6 bars"  # a distance is one from a prompt
    seen(calls.uploads.choose_model(second, SOMEONE))
    assert begin(calls, bars=2, chords="C | ?")[1].frame["plan"]["chords"] == ["C", ""]
    assert seen(calls.uploads.new_piece(SOMEONE)).frame["alert"] == BUSY
    list(calls.jobs.compose(SOMEONE))
    calls.jobs.end(SOMEONE)
    assert plan(calls, 8, chords="C | G")["phase"] == "done"  # a result is shown


def test_a_way_to_continue_is_taken_back_if_it_is_pressed_again_and_with_another_file(
    calls, midi, band
):
    read(calls, midi)
    pressed = ask(calls, growth="ending")
    assert (pressed["bars"].value, pressed["ending"]) == (4, "cadence")
    plan(calls, 4, ending="cadence")
    again = ask(calls, growth="ending")
    assert (again["bars"].value, again["ending"]) == (MusicOptions.bars, "auto")
    assert (again["form"], again["distance"]) == ("", 0)
    other = ask(calls, growth="vary")
    assert (other["bars"].value, other["ending"], other["distance"]) == (4, "auto", 0.5)
    read(calls, band)
    filled = filled_form(calls)
    assert (filled["bars"].value, filled["ending"]) == (MusicOptions.bars, "auto")


def test_what_was_asked_of_a_piece_is_cleared_with_the_next_file(calls, midi, band):
    read(calls, midi)
    plan(calls, chords="C | G", distance=0.5, ending="cadence")
    view, _ = read(calls, band)
    assert "What was asked of the piece before is cleared: Chords." in view.card
    filled = filled_form(calls)
    assert filled["chords"] == ""
    for kept in ("ending", "bars", "distance", "temperature", "seed", "fresh"):
        assert filled[kept] == gr.skip()
    assert work_of(calls).asked_style == ""
    assert "cleared" not in read(calls, midi)[0].card
    plan(calls, chords="C | G")
    assert "is cleared: Chords." in seen(calls.uploads.new_piece(SOMEONE)).card
    assert filled_form(calls)["chords"] == ""


def test_the_form_that_a_result_has_is_cleared(calls, midi):
    read(calls, midi)
    asked = {"form": "B8", "chords": "C | G", "ending": "cadence"}
    _, view = make(calls, bars=8, variations=2, seed=7, density=3.0, **asked)  # pyright: ignore[reportArgumentType]
    assert "What was asked of the piece before is cleared: Form." in view.card
    filled = filled_form(calls)
    assert (filled["form"], filled["ending"], filled["chords"]) == ("", gr.skip(), gr.skip())
