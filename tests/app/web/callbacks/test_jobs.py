"""Jobs of the page, without a browser."""

from __future__ import annotations

import errno
import itertools
import json
from pathlib import Path

import gradio as gr
import pytest

from app.audio.stems import render
from app.compose.options import LARGEST_SEED, OPTIONS
from app.web.callbacks.alerts import BROKEN, BUSY
from app.web.callbacks.jobs import NOT_TAKEN
from tests.support.seen import SOMEONE, VALUES, begin, event, filled_form, make, read, seen


def said(calls):
    """The alert in the player after `begin` has failed."""
    return seen(calls.jobs.refuse(SOMEONE)).frame["alert"]


def test_a_job_swaps_the_buttons_and_leaves_a_result(calls, midi):
    read(calls, midi)
    seed, view = begin(calls, bars=4)
    assert seed == 5
    assert view.frame["phase"] == "waiting"
    assert view.frame["busy"]
    assert not view.go.visible
    assert view.stop.visible
    frames = list(calls.jobs.compose(SOMEONE))
    assert frames[-1]["phase"] == "done"
    view = seen(calls.jobs.end(SOMEONE))
    assert not view.frame["busy"]
    assert view.frame["can_undo"]
    assert view.frame["can_discard"]
    assert view.go.visible
    assert "4 bars after bar 4 · fake model" in view.results


@pytest.mark.parametrize("seed", [-5, LARGEST_SEED + 1, 99_999_999_999, 1.5])
def test_a_seed_out_of_range_is_an_alert_and_begins_nothing(calls, seed):
    with pytest.raises(gr.Error):
        begin(calls, seed=seed)
    assert not calls.studio.stop(SOMEONE.session_hash)
    assert said(calls).startswith(
        f"Seed is {seed:,}, expected a whole number from 0 to 2,147,483,647"
    )
    assert begin(calls, seed=seed, fresh=True)[0] != seed  # `fresh` draws a new one


def test_a_job_that_cannot_begin_is_reported_in_one_short_sentence(
    calls, midi, monkeypatch, caplog
):
    with pytest.raises(gr.Error):
        begin(calls, key="H")
    assert (
        said(calls) == "“H” is not a known key or scale; enter one such as C, F#m, Bb or D dorian."
    )
    begin(calls)
    with pytest.raises(gr.Error):
        begin(calls)
    assert said(calls) == BUSY
    calls.jobs.end(SOMEONE)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.web.callbacks.jobs.waiting", broken)
    with pytest.raises(gr.Error) as caught:
        begin(calls)
    assert (caught.value.message, caught.value.visible) == (BROKEN, False)
    assert said(calls) == BROKEN
    assert any(record.exc_info for record in caplog.records)


def test_stop_keeps_and_discard_drops(calls, midi, model):
    object.__setattr__(model, "speed", 200.0)
    read(calls, midi)
    for ending, kept in ((calls.jobs.stop_job, 1), (calls.jobs.discard, 1)):
        before = calls.view.session(SOMEONE).work.frame["job"]
        begin(calls, bars=60)
        for frame in calls.jobs.compose(SOMEONE):
            if any(
                track["notes"] for row in frame.get("variations", []) for track in row["tracks"]
            ):
                ending(SOMEONE)
        view = seen(calls.jobs.end(SOMEONE))
        assert view.results.count("<li>") == kept
        assert not view.frame.get("alert")
        assert (view.frame["job"] == before) is (ending == calls.jobs.discard)


def test_a_result_that_is_discarded_leaves_the_list_and_the_player(calls, midi):
    read(calls, midi)
    make(calls)
    job = seen(calls.view.show(calls.view.session(SOMEONE))).frame["job"]
    view = seen(calls.jobs.discard(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.results == ""
    view = seen(calls.history.undo(SOMEONE))  # brings it back
    assert (view.frame["phase"], view.frame["job"]) == ("done", job)
    assert view.results.count("<li>") == 1
    view = seen(calls.history.undo(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.results.count("<li>") == 1


def test_undo_brings_back_a_discarded_piece_from_nothing(calls):
    job = make(calls)[1].frame["job"]
    view = seen(calls.jobs.discard(SOMEONE))
    assert (view.frame["phase"], view.frame["can_undo"], view.results) == ("empty", True, "")
    view = seen(calls.history.undo(SOMEONE))
    assert (view.frame["job"], view.results.count("<li>")) == (job, 1)


def test_values_beyond_the_ranges_of_the_page_are_refused(calls, midi):
    read(calls, midi)
    with pytest.raises(gr.Error):
        begin(calls, bars=4000)
    assert said(calls) == "Length is 4,000, expected a whole number from 1 to 256; change it."


JUNK = [
    *(True, -1, 0.5, 1e308, 10**400, float("inf"), "x", "\ud800" * 999),
    [],
    {},
    [[1]],
    {"a": 1},
]


@pytest.mark.parametrize("value", JUNK, ids=range(len(JUNK)))
def test_a_field_with_a_value_of_any_type_is_named_in_one_sentence(calls, midi, caplog, value):
    """Gradio does not check the values of these calls, which any program can send."""
    read(calls, midi)
    for name in VALUES.keys() - {"fresh"}:
        try:
            begin(calls, **{name: value})  # pyright: ignore[reportArgumentType]
        except gr.Error:
            alert = said(calls)
            assert alert != BROKEN
            assert alert.count("\n") == 0
            assert alert.endswith(".")
            assert len(alert) < 200
        else:  # some of the values can be used
            assert isinstance(value, int | float)
            calls.jobs.discard(SOMEONE)
            calls.jobs.end(SOMEONE)
        for length, unit, variations in ((value, "bars", 1), (2, value, 1), (2, "bars", value)):
            assert isinstance(calls.settings.estimate(length, unit, variations, SOMEONE), str)
    assert not caplog.records


@pytest.mark.parametrize("name", ["bars", "temperature", "density"])
def test_an_empty_field_is_reported_by_its_label(calls, midi, name):
    read(calls, midi)
    with pytest.raises(gr.Error):
        begin(calls, **{name: None})  # pyright: ignore[reportArgumentType]
    widget = OPTIONS[name].widget
    assert widget is not None
    label = widget.label
    view = seen(calls.jobs.refuse(SOMEONE))
    assert view.frame["alert"] == f"{label} is empty; enter a number."
    assert calls.settings.estimate(None, "bars", 1, SOMEONE) == ""


def test_a_job_that_was_never_taken_restores_the_tab_with_an_alert(calls, midi):
    before, _ = read(calls, midi)
    begin(calls)
    view = seen(calls.jobs.end(SOMEONE))
    assert view.frame["alert"] == NOT_TAKEN
    assert view.frame["job"] == before.frame["job"]
    assert view.go.interactive
    assert not view.frame["can_undo"]


def test_an_error_during_a_job_restores_the_tab_with_an_alert(calls, midi, monkeypatch):
    read(calls, midi)
    begin(calls)

    def broken(*_, **__):
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(calls.studio, "compose", broken)
    (frame,) = calls.jobs.compose(SOMEONE)
    assert (frame["alert"], frame["phase"]) == (BROKEN, "prompt")


def test_a_length_in_seconds_is_converted_to_bars(calls, midi):
    read(calls, midi)  # 96 bpm, 4/4: 2.5 s a bar
    _, view = make(calls, bars=9, unit="seconds")
    assert "4 bars after bar 4" in view.frame["subtitle"]
    assert list(calls.jobs.compose(SOMEONE)) == [gr.skip()]  # it is over


def test_a_refusal_is_shown_once(calls):
    assert said(calls) == BROKEN  # as if Gradio had refused a value before `begin`


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
        assert answer == {"error": f"{FULL}."}
        frames, _ = make(calls, bars=2, variations=2)
        assert frames[-1]["alert"] == FULL
        assert next(files) == 3
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        frames, _ = make(calls, bars=2)
        assert frames[-1]["alert"] == FULL
    assert set(tmp_path.rglob("*")) == before
    assert not caplog.records
    _, view = make(calls, bars=2)  # there is room again
    assert view.frame["phase"] == "done"


FULL = (
    "The music cannot be saved (No space left on device); the disk of the computer that runs the "
    "page may be full"
)


def test_a_full_disk_leaves_the_sound_out(calls, midi, monkeypatch, tmp_path):
    monkeypatch.setattr("app.audio.stems.tempfile.mkdtemp", lambda **_: full(tmp_path))
    monkeypatch.setattr("app.server.job_audio.stems.render", render)
    read(calls, midi)
    frames, view = make(calls, bars=2)
    assert frames[-1]["alert"].startswith("the audio cannot be written (No space left on device); ")
    assert str(tmp_path) not in frames[-1]["alert"]
    assert "midi" in view.frame["variations"][0]


def test_settings_of_a_stopped_piece_have_the_length_that_was_kept(calls, midi):
    """As in the file of its settings."""
    read(calls, midi)
    begin(calls, bars=64, seed=7)
    for number, _ in enumerate(calls.jobs.compose(SOMEONE)):
        if number == 2:
            calls.jobs.stop_job(SOMEONE)
    view = seen(calls.jobs.end(SOMEONE))
    job = view.frame["job"]
    told = calls.files.file({"job": job, "variation": 0, "kind": "replay"})["path"]
    kept = json.loads(Path(told).read_text())["options"]["bars"]
    assert kept < 64
    calls.settings.use_settings(event(variation=0), SOMEONE)
    filled = filled_form(calls)
    assert (filled["bars"].value, filled["unit"], filled["seed"]) == (kept, "bars", 7)
