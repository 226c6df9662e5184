"""Uploads on the page: what comes of a file, and of changes to it; no browser."""

from __future__ import annotations

import html
import json
import shutil
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest

from app.compose.models import Models
from app.server.uploads import Upload
from app.web.examples import EXAMPLES
from app.web.upload_calls import GONE, REGION_ANEW, TRACKS_ANEW
from app.web.view import BROKEN, BUSY, READING
from tests.app.compose.test_timing import performance
from tests.support import fakes
from tests.support.seen import SETTINGS, SOMEONE, begin, event, make, read, seen
from tokenization.errors import MidiError
from tokenization.midi import write_midi
from tokenization.score import Score, Track


@pytest.fixture
def band(tmp_path):
    path = tmp_path / "band.mid"
    drums = Track.of([(48 * bar, 24, 36, 90) for bar in range(4)], is_drum=True)
    flute = Track.of([(48 * bar, 40, 60 + bar, 80) for bar in range(4)], program=73)
    bass = Track.of([(48 * bar, 40, 40 + bar, 80) for bar in range(4)], program=33)
    path.write_bytes(write_midi(Score(12, (flute, bass, drums))))
    return path


def test_an_upload_shows_its_facts_and_allows_to_continue_and_to_listen(calls, midi):
    view, upload = read(calls, midi)
    card = view.cards["continue"]
    for fact in ("96 bpm", "4/4", f"<dd>{upload.whole.facts.notes}</dd>", "<dt>Bars</dt>"):
        assert fact in card
    assert "hears bars 1 to 4; new music begins in bar 5. The fake model continues it." in card
    assert "notices" not in card  # nothing that the user should know
    assert view.go["continue"].interactive
    assert not view.go["groove"].interactive
    assert not view.beats["continue"].visible
    frame = view.frame
    assert (frame["phase"], frame["title"]) == ("prompt", "My prompt")
    assert (frame["prompt"]["joint"], frame["prompt"]["sound"]) == (16, "ready")
    answer = calls.mix({"job": frame["job"], "variation": -1, "without": []})
    assert answer["path"].endswith(".flac")


def test_the_card_names_every_track_and_says_why_one_is_not_heard(calls, band):
    view, upload = read(calls, band)
    card = view.cards["continue"]
    for row in upload.whole.facts.rows:
        assert row.name in card
        assert row.why in card
    assert "3 tracks, 2 heard" in card
    assert card.count("class='unheard'") == 1


@pytest.mark.parametrize("content", [b"", b"MThd", b"<b>no</b>", fakes.example_midi()[:58]])
def test_a_refused_upload_gives_its_reason_and_nothing_else(calls, tmp_path, content):
    path = tmp_path / "<b>odd.mid"
    path.write_bytes(content)
    view, upload = read(calls, path)
    assert upload is None
    assert "role='alert'" in view.cards["continue"]
    assert "&lt;b&gt;odd.mid" in view.cards["continue"]
    assert "<b>" not in view.cards["continue"]
    assert not view.go["continue"].interactive
    assert view.frame["phase"] == "empty"


def test_a_refused_upload_leaves_the_one_before(calls, midi, tmp_path):
    read(calls, midi)
    (tmp_path / "bad.mid").write_bytes(b"no")
    view, upload = read(calls, tmp_path / "bad.mid")
    assert upload.title == "My prompt"
    assert "class='card'" in view.cards["continue"]
    assert "class='refused'" in view.cards["continue"]


def test_a_file_that_the_browser_does_not_send_is_refused_in_its_card_alone(calls, midi):
    view, upload = read(calls, midi)
    chosen = event(name="<b>song</b>.mid", size=200_000)
    view = seen(calls.too_large("continue", chosen, SOMEONE))
    assert html.escape("<b>song</b>.mid: found 200,000 bytes") in view.cards["continue"]
    assert "expected at most 100,000; export a shorter part." in view.cards["continue"]
    assert "refused" not in view.cards["groove"]
    assert calls.session(SOMEONE).tabs["continue"].upload is upload


@pytest.mark.parametrize("data", [{}, None, {"name": "a.mid"}, {"name": "a.mid", "size": "big"}])
def test_a_size_that_is_none_refuses_nothing(calls, midi, data):
    read(calls, midi)
    view = seen(calls.too_large("continue", type(event())(_data=data), SOMEONE))
    assert "refused" not in view.cards["continue"]


def test_while_a_file_is_read_its_card_says_so(calls, midi):
    view = seen(calls.reading("groove", str(midi), SOMEONE))
    assert "Reading My prompt.mid" in view.cards["groove"]


def test_each_example_loads_with_one_click(calls):
    for example in EXAMPLES[:3]:
        view = seen(calls.take_example("continue", example.name, SOMEONE))
        assert view.frame["title"] == example.name
        assert view.go["continue"].interactive


def test_beats_are_offered_where_those_of_the_file_mean_nothing(calls, tmp_path):
    path = tmp_path / "played.mid"
    path.write_bytes(write_midi(performance()))
    view, _ = read(calls, path)
    beats = view.beats["continue"]
    assert (beats.visible, beats.value) == (True, "file")
    assert "played freely" in view.cards["continue"]
    assert "--beats" not in view.cards["continue"]  # an option of the commands
    view = seen(calls.count_anew("continue", "estimate", SOMEONE))
    assert "83 bpm" in view.cards["continue"]
    assert (view.beats["continue"].visible, view.beats["continue"].value) == (True, "estimate")
    assert not view.frame["timeline"]["beats"]
    calls.choose_region(event(first=1, last=4), SOMEONE)
    assert calls.session(SOMEONE).current.upload.prompt.facts.beats == "estimate"


def test_the_region_decides_what_is_heard_and_where_new_music_begins(calls, midi):
    view, _ = read(calls, midi)
    job = view.frame["job"]
    view = seen(calls.choose_region(event(first=2, last=3), SOMEONE))
    upload = calls.session(SOMEONE).current.upload
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert (view.frame["prompt"]["first"], view.frame["prompt"]["joint"]) == (4, 12)
    assert view.frame["job"] == job  # view and sound stay
    assert view.frame["prompt"]["sound"] == "ready"
    assert "hears bars 2 to 3" in view.cards["continue"]
    assert not view.frame["can_undo"]  # a step of its own it is not


@pytest.mark.parametrize(
    "bars",
    [
        {},
        {"first": 3, "last": 2},
        {"first": 0, "last": 2},
        {"first": 1, "last": 99},
        {"first": "1", "last": 2},
        {"first": True, "last": 2},
    ],
)
def test_a_region_that_cannot_be_changes_nothing(calls, midi, bars):
    _, before = read(calls, midi)
    calls.choose_region(event(**bars), SOMEONE)
    assert calls.session(SOMEONE).current.upload is before


def test_tracks_can_be_left_out_of_the_prompt(calls, band):
    view, _ = read(calls, band, "groove")
    assert "play on" not in view.cards["groove"]
    calls.open_tab("groove", SOMEONE)
    view = seen(calls.choose_tracks(event(heard=[0], played=[0, 1]), SOMEONE))
    assert [track["heard"] for track in view.frame["prompt"]["tracks"]][:2] == [True, False]
    assert view.frame["table"]
    upload = calls.session(SOMEONE).current.upload
    calls.choose_region(event(first=1, last=2), SOMEONE)
    moved = calls.session(SOMEONE).current.upload
    assert moved.prompt.parts == upload.prompt.parts  # the choice stays
    view = seen(calls.choose_tracks(event(heard=[0], played=[1]), SOMEONE))
    moved = calls.session(SOMEONE).current.upload
    assert "1 plays on" in view.cards["groove"]
    assert view.cards["groove"].count("does not play on") == 2
    view = seen(calls.choose_tracks(event(heard=[], played=[0]), SOMEONE))
    assert view.frame["alert"]
    assert calls.session(SOMEONE).current.upload is moved


def test_a_bug_in_a_callback_is_an_alert_and_in_the_log(calls, midi, monkeypatch, caplog):
    read(calls, midi)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.server.uploads.READER.call", broken)
    view, _ = read(calls, midi)
    assert f"role='alert'>{html.escape(BROKEN)}" in view.cards["continue"]
    view = seen(calls.choose_region(event(first=1, last=2), SOMEONE))
    assert (view.frame["alert"], view.frame["phase"]) == (BROKEN, "prompt")
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_the_file_can_be_taken_away_and_had_again(calls, midi):
    read(calls, midi)
    view = seen(calls.forget("continue", SOMEONE))
    assert (view.cards["continue"], view.frame["phase"]) == ("", "empty")
    assert not view.go["continue"].interactive
    view = seen(calls.undo(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.go["continue"].interactive


def test_uploads_wait_while_music_is_written(calls, midi):
    _, before = read(calls, midi)
    begin(calls)
    view, upload = read(calls, midi)
    assert upload is before
    assert html.escape(BUSY) in view.cards["continue"]
    for change in (
        calls.forget("continue", SOMEONE),
        calls.choose_region(event(first=1, last=2), SOMEONE),
        calls.continue_this(event(variation=0), SOMEONE),
    ):
        assert seen(change).frame["alert"] == BUSY
    assert calls.session(SOMEONE).current.upload is before


def test_no_job_begins_while_a_file_is_read(calls, midi, band, monkeypatch):
    read(calls, midi)
    make(calls)
    from app.web import upload_calls

    really = upload_calls.read_upload

    def slowly(*arguments):
        with pytest.raises(gr.Error):
            begin(calls)
        assert seen(calls.refuse(SOMEONE)).frame["alert"] == READING
        view = seen(calls.open_tab("continue", SOMEONE))
        assert not view.go["continue"].interactive
        assert not view.go["piano"].interactive
        return really(*arguments)

    monkeypatch.setattr(upload_calls, "read_upload", slowly)
    assert not seen(calls.reading("continue", str(band), SOMEONE)).go["continue"].interactive
    view, upload = read(calls, band)
    assert (view.frame["title"], upload.title) == ("band", "band")
    assert view.go["continue"].interactive
    done = seen(calls.undo(SOMEONE)).frame
    assert (done["phase"], done["title"]) == ("done", "My prompt")
    view = seen(calls.continue_this(event(variation=0), SOMEONE))
    assert view.frame["phase"] == "prompt"
    monkeypatch.setattr(upload_calls, "read_upload", really)
    (midi.parent / "bad.mid").write_bytes(b"no")
    assert read(calls, midi.parent / "bad.mid")[0].go["continue"].interactive
    assert make(calls)[1].frame["phase"] == "done"


@pytest.fixture
def second(calls):
    """Another model that can be chosen."""
    models, fake = calls.studio.models, calls.studio.models.load("fake")
    models.names = ("fake", "second")
    models._loaded["second"] = replace(fake, name="second")
    return "second"


def test_another_model_is_chosen_only_where_that_can_be(calls, midi, second):
    read(calls, midi)
    calls.choose_model("continue", "fake", SOMEONE)
    begin(calls)
    view = seen(calls.choose_model("continue", second, SOMEONE))
    assert view.frame["alert"] == BUSY
    assert view.models["continue"].value == "fake"
    list(calls.compose(SOMEONE))
    calls.end(SOMEONE)
    view = seen(calls.choose_model("continue", second, SOMEONE))
    assert view.models["continue"].value == second
    view = seen(calls.undo(SOMEONE))
    assert (view.frame["phase"], view.models["continue"].value) == ("done", "fake")
    assert seen(calls.choose_model("piano", second, SOMEONE)).models["piano"].value == second
    assert seen(calls.choose_model("piano", "nobody", SOMEONE)).models["piano"].value == second


def test_a_model_that_cannot_be_used_is_not_chosen(calls, midi, second, monkeypatch):
    read(calls, midi)

    def broken(*_):
        raise MidiError("The second model cannot be had.")

    monkeypatch.setattr(Models, "load", broken)
    monkeypatch.setattr("app.web.view.model_line", lambda *_: "")
    view = seen(calls.choose_model("continue", second, SOMEONE))
    assert "cannot be had" in view.frame["alert"]
    assert view.models["continue"].value == "auto"


def test_region_and_tracks_stay_with_another_model(calls, band, second):
    read(calls, band)
    calls.choose_region(event(first=2, last=3), SOMEONE)
    calls.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    before = calls.session(SOMEONE).current.upload
    view = seen(calls.choose_model("continue", second, SOMEONE))
    after = calls.session(SOMEONE).current.upload
    assert after.model.name == second
    assert (after.first_bar, after.bars) == (2, 3)
    assert after.prompt.parts == before.prompt.parts
    assert "class='said'" not in view.cards["continue"]


def test_tracks_stay_with_other_beats_and_a_lost_region_is_said(calls, band):
    read(calls, band)
    calls.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    before = calls.session(SOMEONE).current.upload
    view = seen(calls.count_anew("continue", "grid", SOMEONE))
    upload = calls.session(SOMEONE).current.upload
    assert upload.prompt.facts.beats == "grid"
    assert upload.prompt.parts == before.prompt.parts
    assert "class='said'" not in view.cards["continue"]
    calls.choose_region(event(first=1, last=2), SOMEONE)
    view = seen(calls.count_anew("continue", "file", SOMEONE))
    assert html.escape(REGION_ANEW) in view.cards["continue"]
    assert calls.session(SOMEONE).current.upload.prompt.parts == before.prompt.parts
    view = seen(calls.choose_region(event(first=1, last=2), SOMEONE))
    assert REGION_ANEW not in view.cards["continue"]


def test_tracks_that_another_model_cannot_have_are_chosen_again_with_a_word(
    calls, band, second, monkeypatch
):
    read(calls, band)
    calls.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    really = Upload.choose

    def choose(upload, first, last, heard, played):
        if heard is not None:
            raise MidiError("nothing to hear")
        return really(upload, first, last, heard, played)

    monkeypatch.setattr(Upload, "choose", choose)
    view = seen(calls.choose_model("continue", second, SOMEONE))
    assert html.escape(TRACKS_ANEW) in view.cards["continue"]
    tab = calls.session(SOMEONE).current
    assert (tab.heard, tab.played, tab.upload.model.name) == (None, None, second)


def test_a_choice_of_tracks_is_undone_as_a_whole(calls, band):
    read(calls, band)
    make(calls)
    calls.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    tab = calls.session(SOMEONE).current
    assert tab.heard == {0}
    calls.undo(SOMEONE)
    assert (tab.frame["phase"], tab.heard, tab.played) == ("done", None, None)
    assert tab.upload.prompt.parts.heard is None


def test_a_result_whose_files_are_gone_is_continued_by_nobody(calls, midi, caplog):
    read(calls, midi)
    make(calls)
    for folder in calls.studio.folders.root.glob("*/*"):
        shutil.rmtree(folder)
    view = seen(calls.continue_this(event(variation=0), SOMEONE))
    assert (view.frame["alert"], view.frame["phase"]) == (GONE, "done")
    assert not caplog.records


def test_a_result_becomes_the_prompt_of_what_comes_next(calls, midi):
    read(calls, midi)
    make(calls, length=6, variations=2)
    view = seen(calls.continue_this(event(variation=1), SOMEONE))
    upload = calls.session(SOMEONE).current.upload
    assert (view.frame["phase"], view.frame["title"]) == ("prompt", "My prompt")
    assert (upload.bars, upload.first_bar) == (10, 3)  # its last 8 bars
    assert view.frame["can_undo"]
    back = seen(calls.undo(SOMEONE)).frame
    assert (back["phase"], len(back["variations"])) == ("done", 2)


def test_a_new_piece_goes_on_in_the_tab_for_files(calls):
    calls.open_tab("piano", SOMEONE)
    make(calls, "piano")
    view = seen(calls.continue_this(event(variation=0), SOMEONE))
    assert "data-open='continue'" in view.results
    assert view.frame["title"] == "A new piece"
    assert calls.session(SOMEONE).tabs["piano"].frame["phase"] == "done"


def test_settings_and_their_file_make_the_same_piece_again(calls, midi, tmp_path):
    read(calls, midi)
    calls.choose_region(event(first=2, last=3), SOMEONE)
    _, view = make(calls, length=4, key="C", seed=11)
    job = view.frame["job"]
    told = calls.file({"job": job, "variation": 0, "kind": "replay"})["path"]
    first = calls.file({"job": job, "variation": 0, "kind": "midi"})["path"]

    other = type(SOMEONE)(session_hash="other")
    view, upload = read(calls, told, who=other)
    assert upload is None
    assert "bring its MIDI file" in view.cards["continue"]
    view, upload = read(calls, midi, who=other)
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert "All is set as it was" in view.cards["continue"]
    filled = dict(zip(SETTINGS, calls.fill(other), strict=False))
    assert (filled["seed"], filled["fresh"], filled["key"]) == (11, False, "C")
    assert filled["length"].value == 4
    assert not isinstance(calls.fill(other)[0], type(filled["length"]))  # only once
    _, view = make(calls, who=other, length=4, key="C", seed=11)
    again = calls.file({"job": view.frame["job"], "variation": 0, "kind": "midi"})["path"]
    assert again != first
    assert Path(again).read_bytes() == Path(first).read_bytes()


def test_settings_whose_file_is_another_are_in_the_form_all_the_same(calls, midi, band, tmp_path):
    read(calls, midi)
    _, view = make(calls, length=2, seed=11, temperature=1.1)
    told = calls.file({"job": view.frame["job"], "variation": 0, "kind": "replay"})["path"]
    other = type(SOMEONE)(session_hash="other")
    read(calls, told, who=other)
    view, upload = read(calls, band, who=other)
    assert upload.title == "band"
    assert "not the file that the settings were made with" in view.cards["continue"]
    assert "the music will be another" in view.cards["continue"]
    filled = dict(zip(SETTINGS, calls.fill(other), strict=False))
    assert (filled["seed"], filled["temperature"]) == (11, 1.1)
    view, _ = read(calls, midi, who=other)  # they have waited for it
    assert "All is set as it was" in view.cards["continue"]


def test_who_makes_music_of_another_file_is_not_reminded_of_the_settings_again(
    calls, midi, band, tmp_path
):
    path = tmp_path / "settings.json"
    told = {"model": "fake", "seed": 3, "options": {"bars": 4}, "prompt_sha256": "0" * 64}
    path.write_text(json.dumps(told))
    read(calls, path)
    read(calls, midi)
    make(calls)
    view, _ = read(calls, band)
    assert "settings" not in view.cards["continue"]
    calls.fill(SOMEONE)
    assert calls.fill(SOMEONE)[0] == gr.skip()


def test_settings_that_cannot_be_used_are_one_sentence(calls, midi, tmp_path):
    read(calls, midi)
    path = tmp_path / "settings.json"
    for text in ("{", "{}", json.dumps({"model": "other", "seed": 1, "options": {}})):
        path.write_text(text)
        view, upload = read(calls, path)
        assert "class='refused'" in view.cards["continue"]
        assert upload is not None


@pytest.mark.parametrize("prompt", [False, True])
def test_settings_that_the_page_has_no_room_for_are_refused_by_name(calls, midi, tmp_path, prompt):
    read(calls, midi)
    options = {"bars": 4, "temperature": 2.0, "top_k": 500, "variations": 8}
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
        assert wrong in view.cards["continue"]
    assert calls.fill(SOMEONE)[0] == gr.skip()
    assert calls.session(SOMEONE).tab == "continue"


def test_settings_of_a_new_piece_go_to_its_tab_with_their_model(calls, tmp_path, second):
    path = tmp_path / "settings.json"
    options = {"seconds": 2.0, "temperature": 1.2}  # shorter than what the page begins with
    path.write_text(json.dumps({"model": second, "seed": 3, "options": options}))
    view = seen(calls.read("continue", str(path), SOMEONE)[1:])
    assert "data-open='piano'" in view.results
    assert view.models["piano"].value == second
    row = len(SETTINGS) + 1  # its creativity
    length, unit = calls.fill(SOMEONE)[2 * row : 2 * row + 2]
    assert (length.minimum, length.value, unit) == (2.0, 2.0, "seconds")
    assert make(calls, "piano", length=2.0, unit="seconds")[1].frame["phase"] == "done"


def test_settings_of_a_result_go_into_the_form(calls, midi):
    read(calls, midi)
    make(calls, length=2, variations=2, seed=7, density=3.0)
    calls.use_settings(event(variation=1), SOMEONE)
    filled = dict(zip(SETTINGS, calls.fill(SOMEONE), strict=False))
    assert (filled["seed"], filled["density"], filled["variations"]) == (8, 3.0, 1)
