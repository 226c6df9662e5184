"""Uploads on the page, and changes to them, without a browser."""

from __future__ import annotations

import html
import shutil
from functools import partial

import gradio as gr
import pytest

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
from tests.support.seen import SOMEONE, begin, event, make, read, seen, shown, work_of
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi


def region(calls, first, last):
    return seen(calls.uploads.choose_region(event(first=first, last=last), SOMEONE))


def tracks(calls, heard, played):
    return seen(calls.uploads.choose_tracks(event(heard=heard, played=played), SOMEONE))


def test_an_upload_shows_its_facts_and_can_be_continued_and_played(calls, midi):
    view, upload = read(calls, midi)
    for fact in ("4 bars · 4/4 · 96 bpm", f"{upload.whole.facts.notes} notes"):
        assert fact in view.card
    assert "Reads bars 1 to 4; new music begins in bar 5.</p>" in view.card
    assert "notices" not in view.card  # there are none
    assert (view.go.interactive, view.beats.visible) == (True, False)
    frame = view.frame
    assert (frame["phase"], frame["title"]) == ("prompt", "My prompt")
    assert frame["prompt"]["splice"] == 16
    answer = calls.files.file({"job": frame["job"], "variation": -1, "kind": "flac"})
    assert answer["path"].endswith(".flac")
    view = seen(calls.uploads.take_example(EXAMPLES[1].name, SOMEONE))
    assert view.frame["title"] == EXAMPLES[1].label
    assert f"<h2>{EXAMPLES[1].label}</h2>" in view.card


SUFFIXES = {"midi": "mid", "score": "musicxml"}
NEW = "Continue\nwrites a new piece of 16 bars"


def test_a_refused_upload_gives_its_reason_and_leaves_the_one_before(calls, midi, tmp_path):
    path = tmp_path / "<b>odd.mid"
    for content in (b"", b"MThd", fakes.example_midi()[:58]):
        path.write_bytes(content)
        view, upload = read(calls, path)
        assert (upload, view.frame["phase"], view.go.value) == (None, "empty", NEW)
        assert "role='alert'" in view.card
        assert "&lt;b&gt;odd.mid" in view.card
        assert "<b>" not in view.card
    _, before = read(calls, midi)
    view, upload = read(calls, path)
    assert upload is before
    above, _, card = view.card.partition("class='card'")
    assert card
    assert "class='refused'" in above
    assert "My prompt is still loaded.</p>" in above
    # the browser does not send a file that is too large
    chosen = event(name="<b>song</b>.mid", size=200_000)
    view = seen(calls.uploads.too_large(chosen, SOMEONE))
    assert html.escape("<b>song</b>.mid: found 200,000 bytes") in view.card
    assert "expected at most 100,000; export a shorter part. My prompt is still" in view.card
    read(calls, midi)
    for data in (None, {"name": "a.mid"}, {"name": "a.mid", "size": "big"}):
        view = seen(calls.uploads.too_large(type(event())(_data=data), SOMEONE))
        assert "refused" not in view.card


def test_beats_of_a_recording_are_estimated_and_those_of_the_file_are_one_click_away(
    calls, tmp_path
):
    path = tmp_path / "played.mid"
    path.write_bytes(write_midi(performance()))
    view, _ = read(calls, path)
    assert (view.beats.visible, view.beats.value) == (True, "estimate")
    assert view.beats.info.startswith("The notes do not follow the file's beats")
    assert "83 bpm" in view.card
    assert "do not follow" not in view.card  # said once
    assert not view.frame["timeline"]["beats"]
    region(calls, 1, 4)
    assert work_of(calls).upload.prompt.facts.beats == "estimate"
    view = seen(calls.uploads.count_anew("file", SOMEONE))
    assert "120 bpm" in view.card
    assert (view.beats.visible, view.beats.value) == (True, "file")
    assert "estimate them instead" in view.beats.info


def test_the_region_decides_which_bars_are_read_and_where_new_music_begins(calls, midi):
    view, before = read(calls, midi)
    for bars in ({}, {"first": 3, "last": 2}, {"first": 0, "last": 2}, {"first": 1, "last": 99}):
        calls.uploads.choose_region(event(**bars), SOMEONE)
        assert work_of(calls).upload is before
    for wrong in ("1", True):
        region(calls, wrong, 2)
        assert work_of(calls).upload is before
    job = view.frame["job"]
    view = region(calls, 2, 3)
    upload = work_of(calls).upload
    assert (upload.first_bar, upload.bars) == (2, 3)
    assert (view.frame["prompt"]["first"], view.frame["prompt"]["splice"]) == (4, 12)
    assert view.frame["job"] == job  # view and sound stay
    assert "Reads bars 2 to 3" in view.card
    assert not view.frame["can_undo"]  # not a separate step
    region(calls, 1, 4)
    assert work_of(calls).upload.prompt.first_bar is None  # as by default


def test_tracks_can_be_left_out_of_the_prompt(calls, band):
    view, upload = read(calls, band)
    for row in upload.whole.facts.rows:
        assert row.name in view.card
        assert row.why in view.card
    assert "3 tracks: the model reads 2<" in view.card
    assert view.card.count("class='unheard'") == 1
    assert "may play" not in view.card
    view = tracks(calls, [0], [0, 1])
    assert [track["heard"] for track in view.frame["prompt"]["tracks"]][:2] == [True, False]
    parts = work_of(calls).upload.prompt.parts
    region(calls, 1, 2)
    assert work_of(calls).upload.prompt.parts == parts  # the choice stays
    view = tracks(calls, [0], [1])
    before = work_of(calls).upload
    assert "1 may play in the new music" in view.card
    assert view.card.count("does not play in the new music") == 2
    assert tracks(calls, [], [0]).frame["alert"]
    assert work_of(calls).upload is before
    make(calls)
    tracks(calls, [0, 1], [0])
    work = work_of(calls)
    assert (work.heard, work.played) == ({0, 1}, {0})
    calls.history.undo(SOMEONE)  # as a whole
    assert (work.frame["phase"], work.heard, work.played) == ("done", {0}, {1})
    assert work.upload.prompt.parts == before.prompt.parts


def test_an_error_in_a_callback_is_an_alert_and_a_bug_is_logged(
    calls, midi, second, monkeypatch, caplog
):
    read(calls, midi)

    def raise_error(error):
        def fail(*_, **__):
            raise error

        return fail

    with monkeypatch.context() as patch:
        patch.setattr(
            calls.studio.models, "load", raise_error(MidiError("The model cannot be loaded."))
        )
        patch.setattr("app.web.view.model_line", lambda *_: "")
        view = seen(calls.uploads.choose_model(second, SOMEONE))
    assert (view.frame["alert"], view.model.value) == ("The model cannot be loaded.", "auto")
    assert not caplog.records
    monkeypatch.setattr("app.server.uploads.READER.call", raise_error(ZeroDivisionError()))
    view, _ = read(calls, midi)
    assert f"role='alert'>{html.escape(BROKEN)}" in view.card
    view = region(calls, 1, 2)
    assert (view.frame["alert"], view.frame["phase"]) == (BROKEN, "prompt")
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_uploads_and_models_wait_while_music_is_generated(calls, midi, second):
    _, before = read(calls, midi)
    choose = calls.uploads.choose_model
    choose("fake", SOMEONE)
    begin(calls)
    view, upload = read(calls, midi)
    assert upload is before
    assert html.escape(BUSY) in view.card
    for change in (
        calls.uploads.new_piece(SOMEONE),
        calls.uploads.choose_region(event(first=1, last=2), SOMEONE),
        calls.uploads.choose_passage(event(variation=0), SOMEONE),
        calls.uploads.edit(event(variation=-1, semitones=1), SOMEONE),
        choose(second, SOMEONE),
    ):
        view = seen(change)
        assert (view.frame["alert"], view.model.value) == (BUSY, "fake")
    assert work_of(calls).upload is before
    list(calls.jobs.compose(SOMEONE))
    calls.jobs.end(SOMEONE)
    assert seen(choose(second, SOMEONE)).model.value == second
    view = seen(calls.history.undo(SOMEONE))
    assert (view.frame["phase"], view.model.value) == ("done", "fake")
    view = seen(calls.uploads.new_piece(SOMEONE))
    assert (view.card, view.frame["phase"], view.go.value) == ("", "prompt", NEW)
    for model in (second, "nobody"):
        assert seen(choose(model, SOMEONE)).model.value == second
    view = seen(calls.history.undo(SOMEONE))
    assert (view.frame["phase"], view.go.interactive) == ("done", True)


def test_no_job_begins_while_a_file_is_read(calls, midi, band, monkeypatch):
    read(calls, midi)
    make(calls)

    def slowly(*arguments, read):
        with pytest.raises(gr.Error):
            begin(calls)
        assert seen(calls.jobs.refuse(SOMEONE)).frame["alert"] == READING
        assert not shown(calls).go.interactive
        return read(*arguments)

    for name in ("read_upload", "upload_of"):
        monkeypatch.setattr(uploads, name, partial(slowly, read=getattr(uploads, name)))
    view = seen(calls.uploads.reading(str(band), SOMEONE))
    assert "Reading band.mid" in view.card
    assert (view.go.interactive, view.estimate) == (False, READING_NOW)
    view, upload = read(calls, band)
    assert (view.frame["title"], upload.title, view.go.interactive) == ("band", "band", True)
    frame = seen(calls.history.undo(SOMEONE)).frame
    assert (frame["phase"], frame["title"]) == ("done", "My prompt")
    view = seen(calls.uploads.choose_passage(event(variation=0), SOMEONE))
    assert (view.frame["phase"], view.go.interactive) == ("prompt", True)


def test_region_and_tracks_stay_with_another_model_if_it_can_read_them(
    calls, band, second, monkeypatch
):
    read(calls, band)
    region(calls, 2, 3)
    tracks(calls, [0], [0])
    before = work_of(calls).upload
    view = seen(calls.uploads.choose_model(second, SOMEONE))
    after = work_of(calls).upload
    assert (after.model.name, after.first_bar, after.bars) == (second, 2, 3)
    assert after.prompt.parts == before.prompt.parts
    assert "class='said'" not in view.card
    choose = Upload.choose

    def choose_all(upload, first, last, heard, played):
        if heard is not None:
            raise MidiError("nothing to hear")
        return choose(upload, first, last, heard, played)

    monkeypatch.setattr(Upload, "choose", choose_all)
    view = seen(calls.uploads.choose_model("fake", SOMEONE))
    assert html.escape(TRACKS_ANEW) in view.card
    step = work_of(calls)
    assert (step.heard, step.played, step.upload.model.name) == (None, None, "fake")


def test_tracks_stay_with_other_beats_and_a_note_says_that_the_region_is_lost(calls, band):
    read(calls, band)
    tracks(calls, [0], [0])
    parts = work_of(calls).upload.prompt.parts
    view = seen(calls.uploads.count_anew("grid", SOMEONE))
    upload = work_of(calls).upload
    assert (upload.prompt.facts.beats, upload.prompt.parts) == ("grid", parts)
    assert "class='said'" not in view.card
    for first, last, beats in ((1, 2, "file"), (2, upload.whole.bars, "grid")):
        region(calls, first, last)
        view = seen(calls.uploads.count_anew(beats, SOMEONE))
        assert html.escape(REGION_ANEW) in view.card
        assert work_of(calls).upload.prompt.parts == parts
    assert REGION_ANEW not in region(calls, 1, 2).card


def test_a_result_becomes_the_prompt_of_what_comes_next(calls, midi, caplog):
    make(calls)
    view = seen(calls.uploads.choose_passage(event(variation=0), SOMEONE))
    assert (view.frame["title"], view.go.value.split()[0]) == ("A new piece", "Continue")
    read(calls, midi)
    make(calls, bars=6, variations=2)
    view = seen(calls.uploads.choose_passage(event(variation=1), SOMEONE))
    upload = work_of(calls).upload
    assert (view.frame["phase"], view.frame["title"]) == ("prompt", "My prompt")
    assert (upload.bars, upload.first_bar, view.frame["can_undo"]) == (10, 1, True)  # all its bars
    frame = seen(calls.history.undo(SOMEONE)).frame
    assert (frame["phase"], len(frame["variations"])) == ("done", 2)
    for folder in calls.studio.folders.root.glob("*/*"):
        shutil.rmtree(folder)
    for change in (calls.uploads.choose_passage, calls.uploads.edit):
        frame = seen(change(event(variation=0, semitones=1), SOMEONE)).frame
        assert (frame["alert"], frame["phase"]) == (GONE, "done")
    assert not caplog.records


def edit(calls, **values):
    return seen(calls.uploads.edit(event(**values), SOMEONE))


def notes_of(calls, variation=-1):
    """The notes of the shown piece, as it is downloaded."""
    path = calls.studio.file(work_of(calls).frame["job"], variation, "midi")
    return [track.notes.tolist() for track in read_midi(path.read_bytes()).tracks]


def first_note(frame):
    """Track, onset and pitch of the first note that the player shows."""
    track = frame["prompt"]["tracks"][0]
    onset, _, pitch, _ = map(int, track["notes"].split(";")[0].split(","))
    return [track["id"], onset, pitch]


def test_edits_of_the_prompt_are_steps_that_are_undone_one_by_one(calls, band):
    """Chosen bars and tracks are kept."""
    view, _ = read(calls, band)
    region(calls, 2, 3)
    view = tracks(calls, [0, 1], [1])
    steps = [(view.frame["job"], notes_of(calls))]
    for values in (
        {"moved": [[*first_note(view.frame), 96, 2, 24]]},
        {"removed": [[*first_note(view.frame)[:1], 384, 61]]},
        {"semitones": -3},
    ):
        view = edit(calls, variation=-1, **values)
        assert (view.frame["phase"], view.frame.get("alert", "")) == ("prompt", "")
        upload = work_of(calls).upload
        assert (upload.prompt.first_bar, upload.bars) == (2, 3)
        heard = [track["heard"] for track in view.frame["prompt"]["tracks"]]
        assert heard == [True, True, False]
        step = view.frame["job"], notes_of(calls)
        assert all(before[0] != step[0] and before[1] != step[1] for before in steps)
        steps.append(step)
    for job, notes in steps[-2::-1]:
        assert seen(calls.history.undo(SOMEONE)).frame["job"] == job
        assert notes_of(calls) == notes


def test_an_edit_that_is_impossible_says_why_and_a_malformed_one_changes_nothing(calls, midi):
    view, upload = read(calls, midi)
    for values, alert in (
        ({}, None),
        ({"semitones": "x", "variation": -1}, None),
        ({"moved": [[9, 0, 60, 0, 0, 0]]}, "An edited note does not exist; select it again."),
    ):
        after = edit(calls, **values).frame
        assert (after["job"], after.get("alert")) == (view.frame["job"], alert)
        assert after["prompt"] == view.frame["prompt"]
        assert work_of(calls).upload is upload
    view = edit(calls, variation=-1, semitones=1)
    assert view.frame["prompt"]["files"][:2] == ["midi", "score"]  # also of a file
    for kind in ("midi", "ogg", "score"):
        answer = calls.files.file({"job": view.frame["job"], "variation": -1, "kind": kind})
        assert answer["path"].endswith(f"My-prompt.{SUFFIXES.get(kind, kind)}"), answer
