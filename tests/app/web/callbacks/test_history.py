"""Results and reloaded pages, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from app.web.session import OPENED_ANEW
from tests.support.seen import SOMEONE, begin, event, make, read, seen


def shown(calls, who=SOMEONE):
    return seen(calls.view.show(calls.view.session(who)))


def test_earlier_results_can_be_shown_again(calls, midi):
    read(calls, midi)
    jobs = [make(calls, seed=seed)[1].frame["job"] for seed in (1, 2, 3)]
    assert seen(calls.history.undo(SOMEONE)).frame["job"] == jobs[1]
    assert seen(calls.history.undo(SOMEONE)).frame["job"] == jobs[0]
    view = seen(calls.history.go_back(event(index=2), SOMEONE))
    assert view.frame["job"] == jobs[2]
    assert view.results.count("aria-current") == 1
    view = seen(calls.history.go_back(event(index=1), SOMEONE))
    assert view.frame["job"] == jobs[1]
    for index in (7, -1, "1", None):
        assert seen(calls.history.go_back(event(index=index), SOMEONE)).frame["job"] == jobs[1]


def test_redo_goes_through_all_undone_steps_until_something_else_is_done(calls, midi):
    read(calls, midi)
    made = [make(calls, seed=1)[1], make(calls, seed=2)[1]]
    made.append(seen(calls.uploads.continue_this(event(variation=0), SOMEONE)))
    frames = [view.frame for view in made]
    back = [seen(calls.history.undo(SOMEONE)).frame for _ in frames]
    assert [one["job"] for one in back[:2]] == [frames[1]["job"], frames[0]["job"]]
    assert back[2]["phase"] == "prompt"
    assert not back[2]["can_undo"]
    forward = [seen(calls.history.redo(SOMEONE)).frame for _ in frames]
    names = [(one["job"], one["phase"], one["can_undo"]) for one in frames]
    assert [(one["job"], one["phase"], one["can_undo"]) for one in forward] == names
    assert [one["can_redo"] for one in forward] == [True, True, False]
    assert seen(calls.history.redo(SOMEONE)).frame["job"] == frames[2]["job"]  # nothing to redo
    calls.history.undo(SOMEONE)
    make(calls, seed=3)
    assert not shown(calls).frame["can_redo"]


def test_a_result_that_was_discarded_leaves_the_list_again_with_redo(calls, midi):
    read(calls, midi)
    make(calls, seed=1)
    history = calls.history
    steps = (calls.jobs.discard, history.undo, history.redo, history.undo)
    assert [seen(step(SOMEONE)).results.count("<li>") for step in steps] == [0, 1, 0, 1]


def test_sessions_do_not_see_each_other(calls, midi):
    read(calls, midi)
    other = SimpleNamespace(session_hash="other", username=None, client=None)
    assert shown(calls, other).frame["phase"] == "empty"
    calls.history.leave(SOMEONE)
    assert shown(calls).frame["phase"] == "prompt"  # a lost connection


FIRST, SECOND = "0" * 32, "1" * 32
OTHER = SimpleNamespace(session_hash="other", username=None, client=None)


def opened(calls, *, is_gone, before=FIRST, who=OTHER):
    """The values that a page gets when it is opened in a browser tab."""
    return calls.history.adopt(event(before=before, is_gone=is_gone, token=SECOND), who)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_page_that_is_opened_again_shows_its_session(calls, midi, is_gone):
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    if not is_gone:  # the server has noticed
        calls.history.leave(SOMEONE)
    again = seen(opened(calls, is_gone=is_gone))
    assert again.frame["job"] == view.frame["job"]
    assert not again.frame.get("alert")
    assert again.results.count("<li>") == 1
    assert "My prompt" in again.card
    assert again.go.interactive
    assert calls.files.file({"job": again.frame["job"], "variation": 0, "kind": "midi"})["path"]
    calls.history.leave(SOMEONE)  # the server learns late that the connection was lost
    assert seen(calls.history.undo(OTHER)).frame["phase"] == "prompt"
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"
    assert shown(calls).frame["phase"] == "empty"


def test_files_of_a_page_that_is_opened_again_are_kept(calls, midi, monkeypatch):
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    monkeypatch.setattr("app.server.store.LEFT_SECONDS", -1.0)
    calls.history.leave(SOMEONE)
    shown(calls)  # the connection is restored
    third = SimpleNamespace(session_hash="third", username=None, client=None)
    make(calls, who=third)  # old files are removed when new ones are made
    wanted = {"job": view.frame["job"], "variation": 0, "kind": "midi"}
    assert "path" in calls.files.file(wanted)
    opened(calls, is_gone=True)
    calls.history.leave(SOMEONE)  # the server learns late that this page is gone
    make(calls, who=third)
    assert "path" in calls.files.file(wanted)


@pytest.mark.parametrize("told", [None, [], {}, {"before": 5, "token": None, "is_gone": "yes"}])
def test_a_page_that_opens_with_invalid_values_is_a_new_one(calls, midi, told):
    calls.history.adopt(SimpleNamespace(_data=told), SOMEONE)
    read(calls, midi)
    calls.history.leave(SOMEONE)
    assert calls.history.adopt(SimpleNamespace(_data=told), OTHER)[0] == gr.skip()


def test_a_page_that_is_still_open_keeps_its_session(calls, midi):
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    for before in (FIRST, "", SECOND):
        assert opened(calls, is_gone=before != FIRST, before=before)[0] == gr.skip()
    assert shown(calls).frame["phase"] == "prompt"


def test_a_job_ends_with_its_page_and_an_alert_says_so(calls, midi, model):
    model.speed = 100.0
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
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
    assert again.go.visible
    assert all(late == gr.skip() for late in frames)
    assert not calls.studio.stop(SOMEONE.session_hash)
    view = shown(calls, OTHER)
    assert (view.frame["phase"], view.frame["alert"]) == ("prompt", OPENED_ANEW)
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"


def test_music_without_its_sound_yet_is_kept_when_the_page_is_opened_again(calls, midi):
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    begin(calls)
    frames = calls.jobs.compose(SOMEONE)
    assert any(frame["phase"] == "rendering" for frame in frames)
    again = seen(opened(calls, is_gone=True))
    assert (again.frame["phase"], again.frame.get("alert")) == ("done", None)
    assert again.results.count("<li>") == 1
    assert again.frame["variations"][0]["sound"] == "ready"  # rendered on request
    assert "path" in calls.files.mix({"job": again.frame["job"], "variation": 0, "without": []})
