"""Uploads on the page, and changes to them, without a browser."""

from __future__ import annotations

import html
import shutil
from functools import partial

import gradio as gr
import pytest

from app.compose.models import Models
from app.server.uploads import Upload
from app.web.callbacks import uploads
from app.web.callbacks.alerts import BROKEN, BUSY
from app.web.callbacks.fitting import TRACKS_ANEW
from app.web.callbacks.jobs import READING
from app.web.callbacks.uploads import GONE, REGION_ANEW
from app.web.examples import EXAMPLES
from app.web.view import READING_NOW
from tests.support import fakes
from tests.support.scores import performance
from tests.support.seen import SOMEONE, begin, event, make, read, seen
from tokenization.errors import MidiError
from tokenization.midi import write_midi


def test_an_upload_shows_its_facts_and_can_be_continued_and_played(calls, midi):
    view, upload = read(calls, midi)
    card = view.card
    for fact in ("96 bpm", "4/4", f"<dd>{upload.whole.facts.notes}</dd>", "<dt>Bars</dt>"):
        assert fact in card
    assert "reads bars 1 to 4; new music begins in bar 5. The fake model continues it." in card
    assert "notices" not in card  # there are none
    assert view.go.interactive
    assert not view.beats.visible
    frame = view.frame
    assert (frame["phase"], frame["title"]) == ("prompt", "My prompt")
    assert (frame["prompt"]["splice"], frame["prompt"]["sound"]) == (16, "ready")
    answer = calls.files.mix({"job": frame["job"], "variation": -1, "without": []})
    assert answer["path"].endswith(".flac")


def test_the_card_lists_every_track_and_says_why_the_model_does_not_read_one(calls, band):
    view, upload = read(calls, band)
    card = view.card
    for row in upload.whole.facts.rows:
        assert row.name in card
        assert row.why in card
    assert "3 tracks: the model reads 2<" in card
    assert card.count("class='unheard'") == 1


@pytest.mark.parametrize("content", [b"", b"MThd", b"<b>no</b>", fakes.example_midi()[:58]])
def test_a_refused_upload_gives_its_reason_and_nothing_else(calls, tmp_path, content):
    path = tmp_path / "<b>odd.mid"
    path.write_bytes(content)
    view, upload = read(calls, path)
    assert upload is None
    assert "role='alert'" in view.card
    assert "&lt;b&gt;odd.mid" in view.card
    assert "<b>" not in view.card
    assert (view.go.value, view.go.interactive) == ("Generate", True)
    assert view.frame["phase"] == "empty"


def test_a_refused_upload_leaves_the_one_before(calls, midi, tmp_path):
    read(calls, midi)
    (tmp_path / "bad.mid").write_bytes(b"no")
    view, upload = read(calls, tmp_path / "bad.mid")
    assert upload.title == "My prompt"
    before, _, card = view.card.partition("class='card'")
    assert card
    assert "class='refused'" in before  # above the card
    assert "My prompt is still loaded.</p>" in before


def test_a_file_that_the_browser_does_not_send_is_refused_in_its_card_alone(calls, midi):
    view, upload = read(calls, midi)
    chosen = event(name="<b>song</b>.mid", size=200_000)
    view = seen(calls.uploads.too_large(chosen, SOMEONE))
    assert html.escape("<b>song</b>.mid: found 200,000 bytes") in view.card
    assert (
        "expected at most 100,000; export a shorter part. My prompt is still loaded." in view.card
    )
    assert calls.view.session(SOMEONE).work.upload is upload


@pytest.mark.parametrize("data", [{}, None, {"name": "a.mid"}, {"name": "a.mid", "size": "big"}])
def test_an_invalid_size_refuses_nothing(calls, midi, data):
    read(calls, midi)
    view = seen(calls.uploads.too_large(type(event())(_data=data), SOMEONE))
    assert "refused" not in view.card


def test_the_card_says_that_a_file_is_being_read(calls, midi):
    view = seen(calls.uploads.reading(str(midi), SOMEONE))
    assert "Reading My prompt.mid" in view.card


def test_each_example_loads_with_one_click(calls):
    for example in EXAMPLES[:3]:
        view = seen(calls.uploads.take_example(example.name, SOMEONE))
        assert view.frame["title"] == example.label
        assert f"<h2>{example.label}</h2>" in view.card
        assert view.go.interactive


def test_beats_of_a_recording_are_estimated_and_those_of_the_file_are_one_click_away(
    calls, tmp_path
):
    path = tmp_path / "played.mid"
    path.write_bytes(write_midi(performance()))
    view, _ = read(calls, path)
    beats = view.beats
    assert (beats.visible, beats.value) == (True, "estimate")
    assert beats.info.startswith("The notes do not follow the file's beats, as in a recording")
    assert "83 bpm" in view.card
    assert "do not follow" not in view.card  # said once
    assert not view.frame["timeline"]["beats"]
    calls.uploads.choose_region(event(first=1, last=4), SOMEONE)
    assert calls.view.session(SOMEONE).work.upload.prompt.facts.beats == "estimate"
    view = seen(calls.uploads.count_anew("file", SOMEONE))
    assert "120 bpm" in view.card
    assert (view.beats.visible, view.beats.value) == (True, "file")
    assert "estimate them instead" in view.beats.info


def test_the_region_decides_which_bars_are_read_and_where_new_music_begins(calls, midi):
    view, _ = read(calls, midi)
    job = view.frame["job"]
    view = seen(calls.uploads.choose_region(event(first=2, last=3), SOMEONE))
    upload = calls.view.session(SOMEONE).work.upload
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert (view.frame["prompt"]["first"], view.frame["prompt"]["splice"]) == (4, 12)
    assert view.frame["job"] == job  # view and sound stay
    assert view.frame["prompt"]["sound"] == "ready"
    assert "reads bars 2 to 3" in view.card
    assert not view.frame["can_undo"]  # not a separate step


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
def test_an_invalid_region_changes_nothing(calls, midi, bars):
    _, before = read(calls, midi)
    calls.uploads.choose_region(event(**bars), SOMEONE)
    assert calls.view.session(SOMEONE).work.upload is before


def test_tracks_can_be_left_out_of_the_prompt(calls, band):
    view, _ = read(calls, band)
    assert "may play" not in view.card
    view = seen(calls.uploads.choose_tracks(event(heard=[0], played=[0, 1]), SOMEONE))
    assert [track["heard"] for track in view.frame["prompt"]["tracks"]][:2] == [True, False]
    upload = calls.view.session(SOMEONE).work.upload
    calls.uploads.choose_region(event(first=1, last=2), SOMEONE)
    moved = calls.view.session(SOMEONE).work.upload
    assert moved.prompt.parts == upload.prompt.parts  # the choice stays
    view = seen(calls.uploads.choose_tracks(event(heard=[0], played=[1]), SOMEONE))
    moved = calls.view.session(SOMEONE).work.upload
    assert "1 may play in the new music" in view.card
    assert view.card.count("does not play in the new music") == 2
    view = seen(calls.uploads.choose_tracks(event(heard=[], played=[0]), SOMEONE))
    assert view.frame["alert"]
    assert calls.view.session(SOMEONE).work.upload is moved


def test_a_bug_in_a_callback_is_an_alert_and_is_logged(calls, midi, monkeypatch, caplog):
    read(calls, midi)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.server.uploads.READER.call", broken)
    view, _ = read(calls, midi)
    assert f"role='alert'>{html.escape(BROKEN)}" in view.card
    view = seen(calls.uploads.choose_region(event(first=1, last=2), SOMEONE))
    assert (view.frame["alert"], view.frame["phase"]) == (BROKEN, "prompt")
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_a_file_can_be_taken_away_and_restored(calls, midi):
    read(calls, midi)
    view = seen(calls.uploads.forget(SOMEONE))
    assert (view.card, view.frame["phase"]) == ("", "empty")
    assert view.go.value == "Generate"
    view = seen(calls.history.undo(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.go.interactive


def test_uploads_wait_while_music_is_generated(calls, midi):
    _, before = read(calls, midi)
    begin(calls)
    view, upload = read(calls, midi)
    assert upload is before
    assert html.escape(BUSY) in view.card
    for change in (
        calls.uploads.forget(SOMEONE),
        calls.uploads.choose_region(event(first=1, last=2), SOMEONE),
        calls.uploads.continue_this(event(variation=0), SOMEONE),
    ):
        assert seen(change).frame["alert"] == BUSY
    assert calls.view.session(SOMEONE).work.upload is before


def test_no_job_begins_while_a_file_is_read(calls, midi, band, monkeypatch):
    read(calls, midi)
    make(calls)
    really, really_of = uploads.read_upload, uploads.upload_of

    def slowly(*arguments, read=really):
        with pytest.raises(gr.Error):
            begin(calls)
        assert seen(calls.jobs.refuse(SOMEONE)).frame["alert"] == READING
        view = seen(calls.view.show(calls.view.session(SOMEONE)))
        assert not view.go.interactive
        return read(*arguments)

    monkeypatch.setattr(uploads, "read_upload", slowly)
    monkeypatch.setattr(uploads, "upload_of", partial(slowly, read=really_of))
    view = seen(calls.uploads.reading(str(band), SOMEONE))
    assert (view.go.interactive, view.estimate) == (False, READING_NOW)
    view, upload = read(calls, band)
    assert (view.frame["title"], upload.title) == ("band", "band")
    assert view.go.interactive
    done = seen(calls.history.undo(SOMEONE)).frame
    assert (done["phase"], done["title"]) == ("done", "My prompt")
    view = seen(calls.uploads.continue_this(event(variation=0), SOMEONE))
    assert view.frame["phase"] == "prompt"
    monkeypatch.setattr(uploads, "read_upload", really)
    monkeypatch.setattr(uploads, "upload_of", really_of)
    (midi.parent / "bad.mid").write_bytes(b"no")
    assert read(calls, midi.parent / "bad.mid")[0].go.interactive
    assert make(calls)[1].frame["phase"] == "done"


def test_another_model_cannot_be_chosen_while_a_job_runs(calls, midi, second):
    read(calls, midi)
    calls.uploads.choose_model("fake", SOMEONE)
    begin(calls)
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    assert view.frame["alert"] == BUSY
    assert view.model.value == "fake"
    list(calls.jobs.compose(SOMEONE))
    calls.jobs.end(SOMEONE)
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    assert view.model.value == second
    view = seen(calls.history.undo(SOMEONE))
    assert (view.frame["phase"], view.model.value) == ("done", "fake")
    calls.uploads.forget(SOMEONE)
    assert seen(calls.uploads.choose_model("fake", SOMEONE)).model.value == "fake"
    assert seen(calls.uploads.choose_model("nobody", SOMEONE)).model.value == "fake"


def test_an_unusable_model_is_not_chosen(calls, midi, second, monkeypatch):
    read(calls, midi)

    def broken(*_):
        raise MidiError("The second model cannot be had.")

    monkeypatch.setattr(Models, "load", broken)
    monkeypatch.setattr("app.web.view.model_line", lambda *_: "")
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    assert "cannot be had" in view.frame["alert"]
    assert view.model.value == "auto"


def test_region_and_tracks_stay_with_another_model(calls, band, second):
    read(calls, band)
    calls.uploads.choose_region(event(first=2, last=3), SOMEONE)
    calls.uploads.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    before = calls.view.session(SOMEONE).work.upload
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    after = calls.view.session(SOMEONE).work.upload
    assert after.model.name == second
    assert (after.first_bar, after.bars) == (2, 3)
    assert after.prompt.parts == before.prompt.parts
    assert "class='said'" not in view.card


def test_tracks_stay_with_other_beats_and_a_note_says_that_the_region_is_lost(calls, band):
    read(calls, band)
    calls.uploads.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    before = calls.view.session(SOMEONE).work.upload
    view = seen(calls.uploads.count_anew("grid", SOMEONE))
    upload = calls.view.session(SOMEONE).work.upload
    assert upload.prompt.facts.beats == "grid"
    assert upload.prompt.parts == before.prompt.parts
    assert "class='said'" not in view.card
    calls.uploads.choose_region(event(first=1, last=2), SOMEONE)
    view = seen(calls.uploads.count_anew("file", SOMEONE))
    assert html.escape(REGION_ANEW) in view.card
    assert calls.view.session(SOMEONE).work.upload.prompt.parts == before.prompt.parts
    view = seen(calls.uploads.choose_region(event(first=1, last=2), SOMEONE))
    assert REGION_ANEW not in view.card


def test_all_tracks_are_chosen_again_if_another_model_cannot_read_some(
    calls, band, second, monkeypatch
):
    read(calls, band)
    calls.uploads.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    really = Upload.choose

    def choose(upload, first, last, heard, played):
        if heard is not None:
            raise MidiError("nothing to hear")
        return really(upload, first, last, heard, played)

    monkeypatch.setattr(Upload, "choose", choose)
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    assert html.escape(TRACKS_ANEW) in view.card
    tab = calls.view.session(SOMEONE).work
    assert (tab.heard, tab.played, tab.upload.model.name) == (None, None, second)


def test_a_choice_of_tracks_is_undone_as_a_whole(calls, band):
    read(calls, band)
    make(calls)
    calls.uploads.choose_tracks(event(heard=[0], played=[0]), SOMEONE)
    tab = calls.view.session(SOMEONE).work
    assert tab.heard == {0}
    calls.history.undo(SOMEONE)
    assert (tab.frame["phase"], tab.heard, tab.played) == ("done", None, None)
    assert tab.upload.prompt.parts.heard is None


def test_a_result_without_its_files_cannot_be_continued(calls, midi, caplog):
    read(calls, midi)
    make(calls)
    for folder in calls.studio.folders.root.glob("*/*"):
        shutil.rmtree(folder)
    view = seen(calls.uploads.continue_this(event(variation=0), SOMEONE))
    assert (view.frame["alert"], view.frame["phase"]) == (GONE, "done")
    assert not caplog.records


def test_a_result_becomes_the_prompt_of_what_comes_next(calls, midi):
    read(calls, midi)
    make(calls, bars=6, variations=2)
    view = seen(calls.uploads.continue_this(event(variation=1), SOMEONE))
    upload = calls.view.session(SOMEONE).work.upload
    assert (view.frame["phase"], view.frame["title"]) == ("prompt", "My prompt")
    assert (upload.bars, upload.first_bar) == (10, 1)  # all its bars
    assert view.frame["can_undo"]
    back = seen(calls.history.undo(SOMEONE)).frame
    assert (back["phase"], len(back["variations"])) == ("done", 2)


def test_a_piece_from_nothing_is_continued(calls):
    make(calls)
    view = seen(calls.uploads.continue_this(event(variation=0), SOMEONE))
    assert view.frame["title"] == "A new piece"
    assert view.go.value == "Continue"
