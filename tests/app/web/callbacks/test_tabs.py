"""Tabs, results and reloaded pages, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from app.web.session import OPENED_ANEW
from tests.support.seen import SOMEONE, begin, event, make, read, seen


def test_every_tab_has_a_frame_of_its_own(calls, midi):
    read(calls, midi)
    make(calls)
    assert seen(calls.tabs.open_tab("piano", SOMEONE)).frame["phase"] == "empty"
    assert seen(calls.tabs.open_tab("groove", SOMEONE)).frame["table"]
    assert seen(calls.tabs.open_tab("continue", SOMEONE)).frame["phase"] == "done"
    assert seen(calls.tabs.open_tab("nonsense", SOMEONE)).frame["phase"] == "done"


def test_earlier_results_can_be_shown_again(calls, midi):
    read(calls, midi)
    jobs = [make(calls, seed=seed)[1].frame["job"] for seed in (1, 2, 3)]
    assert seen(calls.tabs.undo(SOMEONE)).frame["job"] == jobs[1]
    assert seen(calls.tabs.undo(SOMEONE)).frame["job"] == jobs[0]
    view = seen(calls.tabs.go_back(event(index=2), SOMEONE))
    assert view.frame["job"] == jobs[2]
    assert view.results.count("aria-current") == 1
    calls.tabs.open_tab("piano", SOMEONE)
    view = seen(calls.tabs.go_back(event(index=1), SOMEONE))
    assert "data-open='continue'" in view.results
    assert view.frame["job"] == jobs[1]
    for index in (7, -1, "1", None):
        assert seen(calls.tabs.go_back(event(index=index), SOMEONE)).frame["job"] == jobs[1]


def test_sessions_do_not_see_each_other(calls, midi):
    read(calls, midi)
    other = SimpleNamespace(session_hash="other", username=None, client=None)
    assert seen(calls.tabs.open_tab("continue", other)).frame["phase"] == "empty"
    calls.tabs.leave(SOMEONE)
    assert (
        seen(calls.tabs.open_tab("continue", SOMEONE)).frame["phase"] == "prompt"
    )  # a lost connection


FIRST, SECOND = "0" * 32, "1" * 32
OTHER = SimpleNamespace(session_hash="other", username=None, client=None)


def opened(calls, *, is_gone, before=FIRST, who=OTHER):
    """The values that a page gets when it is opened in a browser tab."""
    return calls.tabs.adopt(event(before=before, is_gone=is_gone, token=SECOND), who)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_page_that_is_opened_again_shows_its_session(calls, midi, is_gone):
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    if not is_gone:  # the server has noticed
        calls.tabs.leave(SOMEONE)
    again = seen(opened(calls, is_gone=is_gone))
    assert again.frame["job"] == view.frame["job"]
    assert not again.frame.get("alert")
    assert again.results.count("<li>") == 1
    assert "My prompt" in again.cards["continue"]
    assert again.go["continue"].interactive
    assert calls.files.file({"job": again.frame["job"], "variation": 0, "kind": "midi"})["path"]
    calls.tabs.leave(SOMEONE)  # the server learns late that the connection was lost
    assert seen(calls.tabs.undo(OTHER)).frame["phase"] == "prompt"
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"
    assert seen(calls.tabs.open_tab("continue", SOMEONE)).frame["phase"] == "empty"


def test_files_of_a_page_that_is_opened_again_are_kept(calls, midi, monkeypatch):
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    monkeypatch.setattr("app.server.store.LEFT_SECONDS", -1.0)
    calls.tabs.leave(SOMEONE)
    calls.tabs.open_tab("continue", SOMEONE)  # the connection is restored
    third = SimpleNamespace(session_hash="third", username=None, client=None)
    make(calls, "piano", who=third)  # old files are removed when new ones are made
    wanted = {"job": view.frame["job"], "variation": 0, "kind": "midi"}
    assert "path" in calls.files.file(wanted)
    opened(calls, is_gone=True)
    calls.tabs.leave(SOMEONE)  # the server learns late that this page is gone
    make(calls, "piano", who=third)
    assert "path" in calls.files.file(wanted)


@pytest.mark.parametrize("told", [None, [], {}, {"before": 5, "token": None, "is_gone": "yes"}])
def test_a_page_that_opens_with_invalid_values_is_a_new_one(calls, midi, told):
    calls.tabs.adopt(SimpleNamespace(_data=told), SOMEONE)
    read(calls, midi)
    calls.tabs.leave(SOMEONE)
    assert calls.tabs.adopt(SimpleNamespace(_data=told), OTHER)[0] == gr.skip()


def test_a_page_that_is_opened_again_opens_its_last_tab(calls):
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    calls.tabs.open_tab("piano", SOMEONE)
    make(calls, "piano")
    assert "data-open='piano'" in seen(opened(calls, is_gone=True)).results
    for name, shown in (("continue", "done"), ("piano", "done"), ("continue", "empty")):
        view = seen(calls.tabs.open_tab(name, OTHER))  # Gradio itself opens the first one
        assert view.frame["phase"] == shown


def test_a_page_that_is_still_open_keeps_its_session(calls, midi):
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    for before in (FIRST, "", SECOND):
        assert opened(calls, is_gone=before != FIRST, before=before)[0] == gr.skip()
    assert seen(calls.tabs.open_tab("continue", SOMEONE)).frame["phase"] == "prompt"


def test_a_job_ends_with_its_page_and_an_alert_says_so(calls, midi, model):
    model.speed = 100.0
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    begin(calls, bars=60)
    frames = calls.jobs.compose(SOMEONE)
    for frame in frames:
        if frame.get("variations"):
            break
    again = seen(opened(calls, is_gone=True))
    assert again.frame["alert"] == OPENED_ANEW
    assert again.frame["phase"] == "prompt"
    assert not again.frame["can_undo"]
    assert again.go["continue"].visible
    assert all(late == gr.skip() for late in frames)
    assert not calls.studio.stop(SOMEONE.session_hash)
    assert not seen(calls.tabs.open_tab("piano", OTHER)).frame.get("alert")
    view = seen(calls.tabs.open_tab("continue", OTHER))  # as Gradio does at once by itself
    assert (view.frame["phase"], view.frame["alert"]) == ("prompt", OPENED_ANEW)
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"


def test_music_without_its_sound_yet_is_kept_when_the_page_is_opened_again(calls, midi):
    calls.tabs.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    begin(calls)
    frames = calls.jobs.compose(SOMEONE)
    assert any(frame["phase"] == "rendering" for frame in frames)
    again = seen(opened(calls, is_gone=True))
    assert (again.frame["phase"], again.frame.get("alert")) == ("done", None)
    assert again.results.count("<li>") == 1
    assert again.frame["variations"][0]["sound"] == "ready"  # rendered on request
    assert "path" in calls.files.mix({"job": again.frame["job"], "variation": 0, "without": []})
