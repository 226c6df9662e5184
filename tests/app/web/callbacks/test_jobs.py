"""Jobs of the page, without a browser."""

from __future__ import annotations

import gradio as gr
import pytest

from app.compose.options import LARGEST_SEED, OPTIONS
from app.web.callbacks.alerts import BROKEN, BUSY
from app.web.callbacks.jobs import NOT_TAKEN
from tests.support.seen import SOMEONE, begin, make, read, seen


def said(calls):
    """The alert in the player after `begin` has failed."""
    return seen(calls.jobs.refuse(SOMEONE)).frame["alert"]


def test_a_job_swaps_the_buttons_and_leaves_a_result(calls, midi):
    read(calls, midi)
    seed, view = begin(calls, bars=4)
    assert seed == 5
    assert view.frame["phase"] == "waiting"
    assert view.frame["busy"]
    assert not any(view.go[name].visible for name in view.go)
    assert all(view.stop[name].visible for name in view.stop)
    frames = list(calls.jobs.compose(SOMEONE))
    assert frames[-1]["phase"] == "done"
    view = seen(calls.jobs.end(SOMEONE))
    assert not view.frame["busy"]
    assert view.frame["can_undo"]
    assert view.frame["can_discard"]
    assert view.go["continue"].visible
    assert "4 bars after bar 4 · fake model" in view.results


def test_a_job_continues_while_another_tab_is_open(calls, midi):
    read(calls, midi)
    begin(calls)
    calls.tabs.open_tab("piano", SOMEONE)
    assert all(frame == gr.skip() for frame in calls.jobs.compose(SOMEONE))
    assert seen(calls.jobs.end(SOMEONE)).frame["phase"] == "empty"
    assert seen(calls.tabs.open_tab("continue", SOMEONE)).frame["phase"] == "done"


@pytest.mark.parametrize("seed", [-5, LARGEST_SEED + 1, 99_999_999_999, 1.5])
def test_a_seed_out_of_range_is_an_alert_and_begins_nothing(calls, seed):
    with pytest.raises(gr.Error):
        begin(calls, "piano", seed=seed)
    assert not calls.studio.stop(SOMEONE.session_hash)
    assert said(calls).startswith(f"The seed is {seed:,}, expected a whole number from 0 to ")
    assert begin(calls, "piano", seed=seed, fresh=True)[0] != seed  # `fresh` draws a new one


def test_a_job_that_cannot_begin_is_reported_in_one_short_sentence(
    calls, midi, monkeypatch, caplog
):
    with pytest.raises(gr.Error):
        begin(calls)
    assert "upload a MIDI file" in said(calls)
    with pytest.raises(gr.Error):
        begin(calls, "piano", key="H")
    assert (
        said(calls) == "“H” is not a known key or scale; enter one such as C, F#m, Bb or D dorian."
    )
    begin(calls, "piano")
    with pytest.raises(gr.Error):
        begin(calls, "piano")
    assert said(calls) == BUSY
    calls.jobs.end(SOMEONE)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.web.callbacks.jobs.waiting", broken)
    with pytest.raises(gr.Error) as caught:
        begin(calls, "piano")
    assert (caught.value.message, caught.value.visible) == (BROKEN, False)
    assert said(calls) == BROKEN
    assert any(record.exc_info for record in caplog.records)


def test_stop_keeps_and_discard_drops(calls, midi, model):
    object.__setattr__(model, "speed", 200.0)
    read(calls, midi)
    for ending, kept in ((calls.jobs.stop_job, 1), (calls.jobs.discard, 1)):
        before = calls.view.session(SOMEONE).current.frame["job"]
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
    view = seen(calls.tabs.undo(SOMEONE))  # brings it back
    assert (view.frame["phase"], view.frame["job"]) == ("done", job)
    assert view.results.count("<li>") == 1
    view = seen(calls.tabs.undo(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.results.count("<li>") == 1


def test_undo_brings_back_a_discarded_piece_from_nothing(calls):
    calls.tabs.open_tab("piano", SOMEONE)
    job = make(calls, tab="piano")[1].frame["job"]
    view = seen(calls.jobs.discard(SOMEONE))
    assert (view.frame["phase"], view.frame["can_undo"], view.results) == ("empty", True, "")
    view = seen(calls.tabs.undo(SOMEONE))
    assert (view.frame["job"], view.results.count("<li>")) == (job, 1)


def test_values_beyond_the_ranges_of_the_page_are_refused(calls, midi):
    read(calls, midi)
    with pytest.raises(gr.Error):
        begin(calls, bars=4000)
    assert "bars is 4000, expected 1 to 256" in said(calls)


@pytest.mark.parametrize("name", ["bars", "temperature", "density"])
def test_an_empty_field_is_reported_by_its_label(calls, midi, name):
    read(calls, midi)
    with pytest.raises(gr.Error):
        begin(calls, **{name: None})
    label = OPTIONS[name].widget.label
    view = seen(calls.jobs.refuse(SOMEONE))
    assert view.frame["alert"] == f"{label} is empty; enter a number."
    assert calls.settings.estimate("continue", None, "bars", 1, SOMEONE) == ""


def test_a_job_that_was_never_taken_restores_the_tab_with_an_alert(calls, midi):
    before, _ = read(calls, midi)
    begin(calls)
    view = seen(calls.jobs.end(SOMEONE))
    assert view.frame["alert"] == NOT_TAKEN
    assert view.frame["job"] == before.frame["job"]
    assert view.go["continue"].interactive
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
    with pytest.raises(gr.Error):
        begin(calls)
    assert "upload a MIDI file" in said(calls)
    assert said(calls) == BROKEN  # as if Gradio had refused a value before `begin`
