"""Jobs of the page, without a browser."""

from __future__ import annotations

import errno
import itertools
import json
from pathlib import Path

import gradio as gr
import pytest

from app.audio.stems import render
from app.compose.options import LARGEST_SEED
from app.web.callbacks.alerts import BROKEN, BUSY
from app.web.callbacks.jobs import NOT_TAKEN, NOTHING_ASKED
from app.web.callbacks.settings import PLANNED
from app.web.callbacks.uploads import GONE
from tests.support.seen import (
    SOMEONE,
    VALUES,
    begin,
    file_of,
    listed,
    make,
    planned,
    read,
    seen,
    shown,
    work_of,
)


def said(calls):
    """The alert in the player after `begin` has failed."""
    return seen(calls.jobs.refuse(SOMEONE)).frame["alert"]


def test_a_job_swaps_the_buttons_and_leaves_a_result(calls, midi):
    read(calls, midi)  # 96 bpm, 4/4: 2.5 s a bar
    seed, view = begin(calls, bars=9, unit="seconds")
    assert (seed, view.frame["phase"], view.frame["busy"]) == (5, "waiting", True)
    assert (view.go.visible, view.stop.visible) == (False, True)
    frames = list(calls.jobs.compose(SOMEONE))
    assert frames[-1]["phase"] == "done"
    view = seen(calls.jobs.end(SOMEONE))
    assert not view.frame["busy"]
    assert view.frame["can_undo"]
    assert view.go.visible
    (card,) = view.results["cards"]
    assert (card["name"], card["text"]) == ("My prompt", "4 bars after bar 4")


def test_continue_extends_what_is_shown_and_another_try_repeats_the_request(calls, midi):
    read(calls, midi)  # 4 bars
    assert not shown(calls).again.visible
    _, first = make(calls, bars=2, variations=2, density=3.0)
    assert (first.go.value, first.again.visible) == ("Continue\nwrites 16 bars after bar 6", True)
    seed, _ = begin(calls, variation=1, bars=3)
    upload = work_of(calls).upload
    before = file_of(calls, first, variation=1).read_bytes()
    assert (upload.bars, upload.whole.data) == (6, before)
    list(calls.jobs.compose(SOMEONE))
    second = seen(calls.jobs.end(SOMEONE))
    assert second.frame["subtitle"] == "3 bars after bar 6"
    new_seed, *view = calls.jobs.again(SOMEONE)
    assert new_seed != seed
    asked = calls.view.session(SOMEONE).asked
    assert (asked.upload, asked.options.bars, seen(view).again.visible) == (upload, 3, False)
    calls.jobs.discard(SOMEONE)
    assert seen(calls.jobs.end(SOMEONE)).frame["job"] == second.frame["job"]
    assert seen(calls.history.undo(SOMEONE)).frame["job"] == first.frame["job"]
    for variation in (2, -1, None, "1", True):
        with pytest.raises(gr.Error):
            begin(calls, variation=variation)  # pyright: ignore[reportArgumentType]
        assert said(calls) == GONE
    calls.uploads.new_piece(SOMEONE)
    with pytest.raises(gr.Error):
        calls.jobs.again(SOMEONE)
    assert said(calls) == NOTHING_ASKED


def test_a_value_that_cannot_be_used_is_an_alert_in_one_sentence_and_begins_nothing(calls, midi):
    read(calls, midi)
    limit = "expected a whole number from 0 to 2,147,483,647"
    for values, alert in (
        ({"seed": -5}, f"Seed is -5, {limit}; change it."),
        ({"seed": LARGEST_SEED + 1}, f"Seed is 2,147,483,648, {limit}; change it."),
        ({"seed": 1.5}, f"Seed is 1.5, {limit}; change it."),
        ({"bars": 4000}, "Length is 4,000, expected a whole number from 1 to 256; change it."),
        ({"bars": None}, "Length is empty; enter a number."),
        ({"temperature": None}, "Temperature is empty; enter a number."),
        (
            {"key": "H"},
            "“H” is not a known key or scale; enter one such as C, F#m, Bb or D dorian.",
        ),
    ):
        with pytest.raises(gr.Error):
            begin(calls, **values)  # pyright: ignore[reportArgumentType]
        assert said(calls) == alert
        assert not calls.studio.stop(SOMEONE.session_hash)
    assert planned(calls, bars=None).estimate == ""
    assert said(calls) == BROKEN  # each is shown once; then as if Gradio had refused a value
    assert begin(calls, seed=-5, fresh=True)[0] != -5  # `fresh` draws a new one


def test_a_job_whose_first_frame_fails_leaves_the_session_free(calls, midi, monkeypatch):
    def fail(*_):
        raise RuntimeError

    read(calls, midi)
    with monkeypatch.context() as broken:
        broken.setattr("app.web.callbacks.jobs.waiting", fail)
        with pytest.raises(gr.Error):
            begin(calls)
    assert said(calls) == BROKEN
    assert not calls.studio.stop(SOMEONE.session_hash)  # no job is left
    assert begin(calls)[1].frame["phase"] == "waiting"


def test_a_job_that_cannot_begin_is_reported_in_one_short_sentence(
    calls, midi, monkeypatch, caplog
):
    before, _ = read(calls, midi)
    begin(calls)
    with pytest.raises(gr.Error):
        begin(calls)
    assert said(calls) == BUSY
    view = seen(calls.jobs.end(SOMEONE))  # it was never taken
    assert (view.frame["alert"], view.frame["job"]) == (NOT_TAKEN, before.frame["job"])
    assert (view.go.interactive, view.frame["can_undo"]) == (True, False)
    assert list(calls.jobs.compose(SOMEONE)) == [gr.skip()]  # it is over

    def broken(*_, **__):
        raise ZeroDivisionError
        yield

    with monkeypatch.context() as patch:
        patch.setattr("app.web.callbacks.jobs.waiting", lambda *_: next(broken()))
        with pytest.raises(gr.Error) as caught:
            begin(calls)
    assert (caught.value.message, caught.value.visible) == (BROKEN, False)
    assert said(calls) == BROKEN
    calls.jobs.end(SOMEONE)
    begin(calls)
    monkeypatch.setattr(calls.studio, "compose", broken)
    (frame,) = calls.jobs.compose(SOMEONE)
    assert (frame["alert"], frame["phase"]) == (BROKEN, "prompt")
    assert len([record for record in caplog.records if record.exc_info]) == 2


def test_stop_keeps_and_discard_drops(calls, midi, model):
    """Settings of a stopped piece have the length that was kept, as in their file."""
    model.speed = 200.0
    read(calls, midi)
    for ending in (calls.jobs.stop_job, calls.jobs.discard):
        before = work_of(calls).frame["job"]
        begin(calls, bars=64, seed=7)
        for frame in calls.jobs.compose(SOMEONE):
            rows = frame.get("variations", [])
            if any(track["notes"] for row in rows for track in row["tracks"]):
                ending(SOMEONE)
        view = seen(calls.jobs.end(SOMEONE))
        assert listed(view) == 1
        assert not view.frame.get("alert")
        assert (view.frame["job"] == before) is (ending == calls.jobs.discard)
    kept = json.loads(file_of(calls, view, "replay").read_text())["options"]["bars"]
    assert kept < 64


def test_a_result_that_is_discarded_leaves_the_list_and_the_player(calls, midi):
    new = make(calls)[1].frame["job"]
    view = seen(calls.jobs.discard(SOMEONE))
    assert (view.frame["phase"], view.frame["can_undo"], listed(view)) == ("empty", True, 0)
    view = seen(calls.history.undo(SOMEONE))
    assert (view.frame["job"], listed(view)) == (new, 1)
    read(calls, midi)
    job = make(calls)[1].frame["job"]
    view = seen(calls.jobs.discard(SOMEONE))
    assert (view.frame["phase"], listed(view)) == ("prompt", 1)
    view = seen(calls.history.undo(SOMEONE))  # brings it back
    assert (view.frame["phase"], view.frame["job"]) == ("done", job)
    assert listed(view) == 2


def test_a_field_with_a_value_of_any_type_is_named_in_one_sentence(calls, midi, caplog):
    """Gradio does not check the values of these calls, which any program can send."""
    read(calls, midi)
    junk = (True, -1, 0.5, 10**400, float("inf"), "x", "\ud800" * 999, [], {"a": 1})
    for name, value in itertools.product(VALUES.keys() - {"fresh"}, junk):
        try:
            begin(calls, **{name: value})  # pyright: ignore[reportArgumentType]
        except gr.Error:
            alert = said(calls)
            assert alert != BROKEN
            assert "\n" not in alert
            assert alert.endswith(".")
            assert len(alert) < 240
        else:  # some of the values can be used
            assert isinstance(value, int | float) or value == []
            calls.jobs.discard(SOMEONE)
            calls.jobs.end(SOMEONE)
    for value in junk:
        for name in PLANNED:
            assert isinstance(planned(calls, **{name: value}), tuple)
    assert not caplog.records


FULL = "The music cannot be saved (No space left on device); the disk of the computer"


def full(path="", **_):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_is_reported_in_one_sentence_and_leaves_no_file(
    calls, midi, monkeypatch, caplog, tmp_path
):
    read(calls, midi)
    _, view = make(calls, bars=2)
    before = set(tmp_path.rglob("*"))
    write, files = Path.write_bytes, itertools.count()

    def half(path, content):
        if next(files) % 2:  # the first file of each job is written
            return write(path, content)
        write(path, content[: len(content) // 2])
        return full(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        answer = calls.files.file({"job": view.frame["job"], "variation": 0, "kind": "replay"})
        assert answer["error"].startswith(FULL)
        frames, _ = make(calls, bars=2, variations=2)
        assert frames[-1]["alert"].startswith(FULL)
        assert next(files) == 3
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        frames, _ = make(calls, bars=2)
        assert frames[-1]["alert"].startswith(FULL)
    assert set(tmp_path.rglob("*")) == before
    assert not caplog.records
    monkeypatch.setattr("app.audio.stems.tempfile.mkdtemp", lambda **_: full(tmp_path))
    monkeypatch.setattr("app.server.job_audio.stems.render", render)
    frames, view = make(calls, bars=2)
    assert "midi" in view.frame["variations"][0]  # without its sound
    answer = calls.files.file({"job": view.frame["job"], "variation": 0, "kind": "flac"})
    assert "the audio cannot be written (No space left on device); " in answer["error"]
    assert str(tmp_path) not in answer["error"]
