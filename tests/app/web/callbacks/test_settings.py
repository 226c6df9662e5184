"""Settings of a piece in the form of the page."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gradio as gr
import pytest

from app.compose.options import MusicOptions
from app.compose.plan.asked import NOTHING
from app.compose.replay import chosen_options
from app.web.callbacks.alerts import BUSY
from app.web.callbacks.settings import ASKED_BY_ROWS
from tests.support.seen import SOMEONE, begin, event, filled_form, make, read, seen


def complete(**options):
    """All options of a piece, as settings have them."""
    return chosen_options(MusicOptions(**options), after_prompt=True)


def test_settings_and_their_file_make_the_same_piece_again(calls, midi, tmp_path):
    read(calls, midi)
    calls.uploads.choose_region(event(first=2, last=3), SOMEONE)
    _, view = make(calls, bars=4, key="C", seed=11)
    job = view.frame["job"]
    told = calls.files.file({"job": job, "variation": 0, "kind": "replay"})["path"]
    first = calls.files.file({"job": job, "variation": 0, "kind": "midi"})["path"]

    other = type(SOMEONE)(session_hash="other", username=None, client=None)
    view, upload = read(calls, told, who=other)
    assert upload is None
    assert "upload its MIDI file" in view.card
    view, upload = read(calls, midi, who=other)
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert "All settings are restored" in view.card
    filled = filled_form(calls, other)
    assert (filled["seed"], filled["fresh"], filled["key"]) == (11, False, "C")
    assert filled["bars"].value == 4
    assert filled_form(calls, other)["bars"] == gr.skip()  # only once
    _, view = make(calls, who=other, bars=4, key="C", seed=11)
    again = calls.files.file({"job": view.frame["job"], "variation": 0, "kind": "midi"})["path"]
    assert again != first
    assert Path(again).read_bytes() == Path(first).read_bytes()


def test_settings_of_another_file_fill_the_form_with_a_note(calls, midi, band, tmp_path):
    read(calls, midi)
    _, view = make(calls, bars=2, seed=11, temperature=1.1)
    told = calls.files.file({"job": view.frame["job"], "variation": 0, "kind": "replay"})["path"]
    other = type(SOMEONE)(session_hash="other", username=None, client=None)
    read(calls, told, who=other)
    view, upload = read(calls, band, who=other)
    assert upload.title == "band"
    assert "settings were made with another file" in view.card
    assert "the music will differ" in view.card
    filled = filled_form(calls, other)
    assert (filled["seed"], filled["temperature"]) == (11, 1.1)
    view, _ = read(calls, midi, who=other)  # the settings were kept until the file was uploaded
    assert "All settings are restored" in view.card


@pytest.mark.parametrize(("prompt_bars", "first"), [(0, None), (3, 2), (8, None)])
def test_the_bars_that_a_command_let_the_model_hear_are_restored(
    calls, midi, tmp_path, prompt_bars, first
):
    told = {"model": "fake", "seed": 3, "options": complete(prompt_bars=prompt_bars, memory=0.0)}
    path = tmp_path / "settings.json"
    path.write_text(
        json.dumps(told | {"prompt_sha256": hashlib.sha256(midi.read_bytes()).hexdigest()})
    )
    read(calls, midi)  # four bars
    _, upload = read(calls, path)
    assert upload.prompt.first_bar == first
    assert filled_form(calls)["memory"] == 0


def test_settings_are_forgotten_once_music_is_made_from_another_file(calls, midi, band, tmp_path):
    path = tmp_path / "settings.json"
    told = {"model": "fake", "seed": 3, "options": complete(bars=4), "prompt_sha256": "0" * 64}
    path.write_text(json.dumps(told))
    read(calls, path)
    read(calls, midi)
    make(calls)
    view, _ = read(calls, band)
    assert "settings" not in view.card
    calls.settings.fill_form(SOMEONE)
    assert calls.settings.fill_form(SOMEONE)[0] == gr.skip()


def test_unusable_settings_are_reported_in_one_sentence(calls, midi, tmp_path):
    read(calls, midi)
    path = tmp_path / "settings.json"
    for text in ("{", "{}", json.dumps({"model": "other", "seed": 1, "options": {}})):
        path.write_text(text)
        view, upload = read(calls, path)
        assert "class='refused'" in view.card
        assert upload is not None


def test_settings_of_another_model_of_the_same_name_are_refused_in_one_sentence(calls, tmp_path):
    path = tmp_path / "settings.json"
    told = {"model": "fake", "seed": 3, "options": complete(bars=4)}
    path.write_text(json.dumps(told | {"model_sha256": "0" * 64}))
    view, _ = read(calls, path)
    assert "another model named fake, whose weights differ from" in view.card


@pytest.mark.parametrize("prompt", [False, True])
def test_settings_beyond_the_ranges_of_the_page_are_refused_by_name(calls, midi, tmp_path, prompt):
    read(calls, midi)
    options = complete(bars=4, temperature=2.0, top_k=500, variations=8)
    told = {"model": "fake", "seed": 3, "options": options}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(told | ({"prompt_sha256": "0" * 64} if prompt else {})))
    view, _ = read(calls, path)
    for wrong in (
        "temperature is 2, expected 0.5 to 1.5",
        "top-k is 500, expected 0 to 100",
        "variations is 8, expected 1 to 4",
        "relpe replay",
    ):
        assert wrong in view.card
    assert calls.settings.fill_form(SOMEONE)[0] == gr.skip()


def test_settings_of_a_new_piece_fill_the_form_and_choose_its_model(calls, midi, tmp_path, second):
    read(calls, midi)
    path = tmp_path / "settings.json"
    options = complete(seconds=2.0, temperature=1.2)  # shorter than the page's default
    path.write_text(json.dumps({"model": second, "seed": 3, "options": options}))
    view = seen(calls.uploads.read(str(path), SOMEONE)[1:])
    assert view.model.value == second
    assert "press Generate" in view.card
    filled = filled_form(calls)
    length = filled["bars"]
    assert (length.minimum, length.value, filled["unit"]) == (2.0, 2.0, "seconds")
    assert make(calls, bars=2.0, unit="seconds")[1].frame["phase"] == "done"


def test_settings_of_a_result_fill_the_form(calls, midi):
    read(calls, midi)
    make(calls, bars=2, variations=2, seed=7, density=3.0)
    calls.settings.use_settings(event(variation=1), SOMEONE)
    filled = filled_form(calls)
    assert (filled["seed"], filled["density"], filled["variations"]) == (8, 3.0, 1)


def test_form_and_chords_of_a_piece_from_nothing_are_asked_as_those_after_a_file(calls, second):
    view = seen(calls.uploads.plan_new(SOMEONE))
    plan = view.frame["plan"]
    assert (view.frame["phase"], plan["first"], plan["bars"]) == ("prompt", 1, MusicOptions.bars)
    assert view.frame["timeline"]["bars"].count(";") == plan["bars"] + 1
    rows = calls.settings.ask(event(form="A4 B20", chords="C | ?"), SOMEONE)
    filled = dict(zip(ASKED_BY_ROWS, rows, strict=True))
    assert (filled["form"], filled["chords"], filled["bars"].value) == ("A4 B20", "C | ?", 24)
    ignored = calls.settings.ask(event(growth="vary"), SOMEONE)  # there is no loop
    assert set(map(str, ignored)) == {str(gr.skip())}
    shown = calls.settings.plan(6, "bars", "", "C | ?", 0.5, "bar", "", SOMEONE)[0]
    assert shown["plan"]["asked"] == "chords in 3 of 6 bars"  # a distance is one from a prompt
    seen(calls.uploads.choose_model(second, SOMEONE))
    assert begin(calls, bars=2, chords="C | ?")[1].frame["plan"]["chords"] == ["C", ""]
    assert seen(calls.uploads.plan_new(SOMEONE)).frame["alert"] == BUSY


def test_a_text_that_asks_begins_a_new_piece_on_an_empty_page(calls, midi):
    asked = ("", "C | G", 0, "bar", "", SOMEONE)
    assert calls.settings.plan(8, "bars", "", "", 0, "bar", "", SOMEONE)[0] == gr.skip()
    shown = calls.settings.plan(8, "bars", *asked)[0]
    assert (shown["phase"], shown["plan"]["chords"]) == ("prompt", ["C", "G"] * 4)
    read(calls, midi)
    make(calls, bars=2)
    assert calls.settings.plan(8, "bars", *asked)[0] == gr.skip()  # a result is shown


def ask(calls, **sent):
    """The fields that the rows of the player change."""
    rows = calls.settings.ask(event(**sent), SOMEONE)
    return dict(zip(ASKED_BY_ROWS, rows, strict=True))


def test_a_way_to_continue_is_taken_back_if_it_is_pressed_again(calls, midi):
    read(calls, midi)
    pressed = ask(calls, growth="ending")
    assert (pressed["bars"].value, pressed["ending"]) == (4, "cadence")
    calls.settings.plan(4, "bars", "", "", 0, "cadence", "", SOMEONE)
    again = ask(calls, growth="ending")
    assert (again["bars"].value, again["ending"]) == (MusicOptions.bars, "bar")
    assert (again["form"], again["distance"]) == ("", 0)
    other = ask(calls, growth="vary")
    assert (other["bars"].value, other["ending"], other["distance"]) == (4, "bar", 0.5)


def test_what_was_asked_of_a_piece_is_cleared_with_the_next_file(calls, midi, band):
    read(calls, midi)
    calls.settings.plan(9, "bars", "", "C | G", 0.5, "cadence", "", SOMEONE)
    view, _ = read(calls, band)
    assert "What was asked of the piece before is cleared: Chords, Ending." in view.card
    filled = filled_form(calls)
    assert (filled["chords"], filled["ending"]) == ("", "bar")
    for kept in ("bars", "distance", "temperature", "seed", "fresh"):
        assert filled[kept] == gr.skip()
    assert calls.view.session(SOMEONE).work.needs == NOTHING
    assert "cleared" not in read(calls, midi)[0].card


@pytest.mark.parametrize("way", ["edit", "continue_this", "choose_passage"])
def test_the_form_and_the_ending_are_cleared_when_a_result_is_worked_on(calls, midi, way):
    read(calls, midi)
    make(calls, bars=2)
    calls.settings.plan(9, "bars", "B8", "C | G", 0.5, "cadence", "", SOMEONE)
    sent = {
        "edit": {"semitones": 1},
        "continue_this": {},
        "choose_passage": {"first": 2, "last": 3, "tracks": None},
    }
    view = seen(getattr(calls.uploads, way)(event(variation=0, **sent[way]), SOMEONE))
    assert "What was asked of the piece before is cleared: Form, Ending." in view.card
    filled = filled_form(calls)
    assert (filled["form"], filled["ending"], filled["chords"]) == ("", "bar", gr.skip())
    work = calls.view.session(SOMEONE).work
    assert (work.form, work.chords, work.ending) == ("", "C | G", "bar")
    calls.settings.plan(9, "bars", "B8", "C | G", 0.5, "cadence", "", SOMEONE)
    view = seen(calls.uploads.edit(event(semitones=1), SOMEONE))
    assert "cleared" not in view.card  # the prompt was edited
    assert (work.form, work.ending) == ("B8", "cadence")


def test_the_length_of_a_way_to_continue_is_cleared_with_the_next_file(calls, midi, band):
    read(calls, midi)
    calls.settings.plan(4, "bars", "", "", 0, "cadence", "", SOMEONE)  # Ending
    read(calls, band)
    filled = filled_form(calls)
    assert (filled["bars"].value, filled["ending"]) == (MusicOptions.bars, "bar")


def test_what_was_asked_is_cleared_when_the_file_is_removed(calls, midi):
    read(calls, midi)
    calls.settings.plan(9, "bars", "", "C | G", 0, "bar", "", SOMEONE)
    assert "is cleared: Chords." in seen(calls.uploads.forget(SOMEONE)).card
    assert filled_form(calls)["chords"] == ""
