"""Results and reloaded pages, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from app.web.session import OPENED_ANEW, RESTARTED
from tests.support.seen import (
    OTHER,
    SOMEONE,
    begin,
    event,
    file_of,
    listed,
    make,
    read,
    seen,
    shown,
)


def test_earlier_results_can_be_shown_again(calls, midi):
    read(calls, midi)
    jobs = [make(calls, seed=seed)[1].frame["job"] for seed in (1, 2, 3)]
    assert seen(calls.history.undo(SOMEONE)).frame["job"] == jobs[1]
    assert seen(calls.history.undo(SOMEONE)).frame["job"] == jobs[0]
    view = seen(calls.history.go_back(event(job=jobs[2]), SOMEONE))
    assert view.frame["job"] == view.results["job"] == jobs[2]
    view = seen(calls.history.go_back(event(job=jobs[1]), SOMEONE))
    assert view.frame["job"] == jobs[1]
    for job in ("unknown", -1, None, []):
        assert seen(calls.history.go_back(event(job=job), SOMEONE)).frame["job"] == jobs[1]
    view = seen(calls.history.clear(SOMEONE))
    assert (listed(view), view.results["job"], view.frame["can_undo"]) == (0, "", False)


def test_redo_goes_through_all_undone_steps_until_something_else_is_done(calls, midi):
    read(calls, midi)
    steps = [make(calls, seed=1)[1], make(calls, seed=2)[1]]
    steps.append(seen(calls.uploads.choose_passage(event(variation=0), SOMEONE)))
    frames = [view.frame for view in steps]
    back = [seen(calls.history.undo(SOMEONE)).frame for _ in frames]
    assert [frame["job"] for frame in back[:2]] == [frames[1]["job"], frames[0]["job"]]
    assert (back[2]["phase"], back[2]["can_undo"]) == ("prompt", False)
    forward = [seen(calls.history.redo(SOMEONE)).frame for _ in frames]
    for before, after in zip(frames, forward, strict=True):
        for name in ("job", "phase", "can_undo"):
            assert after[name] == before[name]
    assert [frame["can_redo"] for frame in forward] == [True, True, False]
    assert seen(calls.history.redo(SOMEONE)).frame["job"] == frames[2]["job"]  # nothing to redo
    calls.history.undo(SOMEONE)
    make(calls, seed=3)
    assert not shown(calls).frame["can_redo"]
    # a result that was discarded leaves the list again with redo
    changes = (calls.jobs.discard, calls.history.undo, calls.history.redo, calls.history.undo)
    counts = [listed(seen(change(SOMEONE))) for change in changes]
    assert counts == [2, 3, 2, 3]


FIRST, SECOND = "0" * 32, "1" * 32


@pytest.fixture
def tab(calls, midi):
    """The tab of a browser, named FIRST, with a file."""
    calls.history.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)


def opened(calls, *, is_gone, before=FIRST, who=OTHER):
    """The values that a page gets when it is opened in a browser tab."""
    return calls.history.adopt(event(before=before, is_gone=is_gone, token=SECOND), who)


@pytest.mark.usefixtures("tab")
def test_a_page_that_is_opened_again_shows_its_session_and_keeps_its_files(calls):
    _, view = make(calls)
    third = SimpleNamespace(session_hash="third", username=None, client=None)
    calls.history.leave(SOMEONE)  # the server has noticed
    again = seen(opened(calls, is_gone=False))
    assert again.frame["job"] == view.frame["job"]
    assert not again.frame.get("alert")
    assert listed(again) == 1
    assert "My prompt" in again.card
    assert again.go.interactive
    calls.history.leave(SOMEONE)  # the server learns late that the connection was lost
    make(calls, who=third)  # old files are removed when new ones are made
    assert file_of(calls, again).is_file()
    assert seen(calls.history.undo(OTHER)).frame["phase"] == "prompt"
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"
    assert shown(calls).frame["phase"] == "empty"


def test_a_page_that_opens_with_invalid_values_is_a_new_one(calls, midi):
    for values in (None, [], {}, {"before": 5, "token": None, "is_gone": "yes"}):
        calls.history.adopt(SimpleNamespace(_data=values), SOMEONE)
        read(calls, midi)
        calls.history.leave(SOMEONE)
        view = seen(calls.history.adopt(SimpleNamespace(_data=values), OTHER))
        assert view.frame["phase"] == "empty"
    view = seen(opened(calls, is_gone=True, before="2" * 32))
    assert view.frame["alert"] == RESTARTED  # the server knows nothing of the page


@pytest.mark.usefixtures("tab")
def test_a_job_ends_with_its_page_and_an_alert_says_so(calls, model):
    model.speed = 100.0
    begin(calls, bars=60)
    frames = calls.jobs.compose(SOMEONE)
    while not next(frames).get("variations"):
        pass
    again = seen(opened(calls, is_gone=True))
    assert (again.frame["alert"], again.frame["phase"]) == (OPENED_ANEW, "prompt")
    assert not again.frame["can_undo"]
    assert again.go.visible
    assert all(late == gr.skip() for late in frames)
    assert not calls.studio.stop(SOMEONE.session_hash)
    view = shown(calls, OTHER)
    assert (view.frame["phase"], view.frame["alert"]) == ("prompt", OPENED_ANEW)
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"


@pytest.mark.usefixtures("tab")
def test_music_is_kept_when_the_page_is_opened_again_before_its_job_has_ended(calls):
    begin(calls)
    frames = list(calls.jobs.compose(SOMEONE))
    assert frames[-1]["phase"] == "done"
    again = seen(opened(calls, is_gone=True))
    assert (again.frame["phase"], again.frame.get("alert")) == ("done", None)
    assert listed(again) == 1
    assert "path" in calls.files.file({"job": again.frame["job"], "variation": 0, "kind": "flac"})
