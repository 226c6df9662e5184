"""Jobs, results and tabs of the page, without a browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from app.compose.options import LARGEST_SEED
from app.web.callbacks import NOT_TAKEN
from app.web.session import EXAMPLE_OF_TAB, OPENED_ANEW
from app.web.view import BROKEN, BUSY
from tests.support.seen import SOMEONE, begin, event, make, read, seen


def said(calls):
    """What the player says after `begin` has failed."""
    return seen(calls.refuse(SOMEONE)).frame["alert"]


def test_a_job_swaps_the_buttons_and_leaves_a_result(calls, midi):
    read(calls, midi)
    seed, view = begin(calls, length=4)
    assert seed == 5
    assert view.frame["phase"] == "waiting"
    assert view.frame["busy"]
    assert not any(view.go[name].visible for name in view.go)
    assert all(view.stop[name].visible for name in view.stop)
    frames = list(calls.compose(SOMEONE))
    assert frames[-1]["phase"] == "done"
    view = seen(calls.end(SOMEONE))
    assert not view.frame["busy"]
    assert view.frame["can_undo"]
    assert view.frame["can_discard"]
    assert view.go["continue"].visible
    assert "4 bars after bar 4, by fake" in view.results


def test_every_tab_has_a_frame_of_its_own(calls, midi):
    read(calls, midi)
    make(calls)
    assert seen(calls.open_tab("piano", SOMEONE)).frame["phase"] == "empty"
    assert seen(calls.open_tab("groove", SOMEONE)).frame["table"]
    assert seen(calls.open_tab("continue", SOMEONE)).frame["phase"] == "done"
    assert seen(calls.open_tab("nonsense", SOMEONE)).frame["phase"] == "done"


def test_a_job_goes_on_out_of_sight(calls, midi):
    read(calls, midi)
    begin(calls)
    calls.open_tab("piano", SOMEONE)
    assert all(frame == gr.skip() for frame in calls.compose(SOMEONE))
    assert seen(calls.end(SOMEONE)).frame["phase"] == "empty"
    assert seen(calls.open_tab("continue", SOMEONE)).frame["phase"] == "done"


@pytest.mark.parametrize("seed", [-5, LARGEST_SEED + 1, 99_999_999_999, 1.5])
def test_a_seed_out_of_range_is_said_in_the_player_and_begins_nothing(calls, seed):
    with pytest.raises(gr.Error):
        begin(calls, "piano", seed=seed)
    assert not calls.studio.stop(SOMEONE.session_hash)
    assert said(calls).startswith(f"The seed is {seed:,}, expected a whole number from 0 to ")
    assert begin(calls, "piano", seed=seed, fresh=True)[0] != seed  # a new one was asked for


def test_what_cannot_be_begun_is_one_short_sentence(calls, midi, monkeypatch, caplog):
    with pytest.raises(gr.Error):
        begin(calls)
    assert "bring a MIDI file" in said(calls)
    with pytest.raises(gr.Error):
        begin(calls, "piano", key="H")
    assert said(calls) == "“H” is no key or scale that I know; write C, F#m, Bb or D dorian."
    begin(calls, "piano")
    with pytest.raises(gr.Error):
        begin(calls, "piano")
    assert said(calls) == BUSY
    calls.end(SOMEONE)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.web.callbacks.waiting", broken)
    with pytest.raises(gr.Error) as caught:
        begin(calls, "piano")
    assert (caught.value.message, caught.value.visible) == (BROKEN, False)
    assert said(calls) == BROKEN
    assert any(record.exc_info for record in caplog.records)


def test_stop_keeps_and_discard_drops(calls, midi, model):
    object.__setattr__(model, "speed", 200.0)
    read(calls, midi)
    for ending, kept in ((calls.stop_job, 1), (calls.discard, 1)):
        before = calls.session(SOMEONE).current.frame["job"]
        begin(calls, length=60)
        for frame in calls.compose(SOMEONE):
            if any(
                track["notes"] for row in frame.get("variations", []) for track in row["tracks"]
            ):
                ending(SOMEONE)
        view = seen(calls.end(SOMEONE))
        assert view.results.count("<li>") == kept
        assert not view.frame.get("alert")
        assert (view.frame["job"] == before) is (ending == calls.discard)


def test_a_result_that_is_discarded_leaves_the_list_and_the_player(calls, midi):
    read(calls, midi)
    make(calls)
    view = seen(calls.discard(SOMEONE))
    assert view.frame["phase"] == "prompt"
    assert view.results == ""


def test_nothing_that_was_made_is_lost_by_what_comes_after(calls, midi):
    read(calls, midi)
    jobs = [make(calls, seed=seed)[1].frame["job"] for seed in (1, 2, 3)]
    assert seen(calls.undo(SOMEONE)).frame["job"] == jobs[1]
    assert seen(calls.undo(SOMEONE)).frame["job"] == jobs[0]
    view = seen(calls.go_back(event(index=2), SOMEONE))
    assert view.frame["job"] == jobs[2]
    assert view.results.count("aria-current") == 1
    calls.open_tab("piano", SOMEONE)
    view = seen(calls.go_back(event(index=1), SOMEONE))
    assert "data-open='continue'" in view.results
    assert view.frame["job"] == jobs[1]
    for index in (7, -1, "1", None):
        assert seen(calls.go_back(event(index=index), SOMEONE)).frame["job"] == jobs[1]


def test_a_job_that_was_never_taken_gives_all_back_with_a_sentence(calls, midi):
    before, _ = read(calls, midi)
    begin(calls)
    view = seen(calls.end(SOMEONE))
    assert view.frame["alert"] == NOT_TAKEN
    assert view.frame["job"] == before.frame["job"]
    assert view.go["continue"].interactive
    assert not view.frame["can_undo"]


def test_an_error_on_the_way_is_said_and_gives_all_back(calls, midi, monkeypatch):
    read(calls, midi)
    begin(calls)

    def broken(*_, **__):
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(calls.studio, "compose", broken)
    (frame,) = calls.compose(SOMEONE)
    assert (frame["alert"], frame["phase"]) == (BROKEN, "prompt")


def test_a_length_in_seconds_is_that_of_the_bars_that_it_takes(calls, midi):
    read(calls, midi)  # 96 bpm, 4/4: 2.5 s a bar
    _, view = make(calls, length=9, unit="seconds")
    assert "4 bars after bar 4" in view.frame["subtitle"]
    assert list(calls.compose(SOMEONE)) == [gr.skip()]  # it is over


def test_files_are_had_by_job_variation_and_kind_and_nothing_else_is(calls, midi):
    read(calls, midi)
    _, view = make(calls)
    job = view.frame["job"]
    for kind in ("midi", "new_midi", "flac", "wav", "replay"):
        assert calls.file({"job": job, "variation": 0, "kind": kind})["path"]
    for request in (
        None,
        [],
        "job",
        {},
        {"job": "/etc/passwd", "variation": 0, "kind": "midi"},
        {"job": job, "variation": 7, "kind": "midi"},
        {"job": job, "variation": "0", "kind": "midi"},
        {"job": job, "variation": 0, "kind": "../midi"},
        {"job": job, "variation": 0, "kind": None},
        {"job": job, "variation": True, "kind": "midi"},
    ):
        answer = calls.file(request)
        assert set(answer) == {"error"}
        assert answer["error"] != BROKEN
    for without in ("0", [None], {"a": 1}):
        answer = calls.mix({"job": job, "variation": 0, "without": without})
        assert set(answer) == {"error"}
        assert answer["error"] != BROKEN


def test_sessions_do_not_see_each_other(calls, midi):
    read(calls, midi)
    other = SimpleNamespace(session_hash="other")
    assert seen(calls.open_tab("continue", other)).frame["phase"] == "empty"
    calls.leave(SOMEONE)
    assert seen(calls.open_tab("continue", SOMEONE)).frame["phase"] == "prompt"  # a lost connection


FIRST, SECOND = "0" * 32, "1" * 32
OTHER = SimpleNamespace(session_hash="other")


def opened(calls, *, is_gone, before=FIRST, who=OTHER):
    """What a page gets that was opened in a tab of the browser."""
    return calls.adopt(event(before=before, is_gone=is_gone, token=SECOND), who)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_page_that_is_opened_again_shows_all_that_was_there(calls, midi, is_gone):
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    if not is_gone:  # the server has noticed
        calls.leave(SOMEONE)
    again = seen(opened(calls, is_gone=is_gone))
    assert again.frame["job"] == view.frame["job"]
    assert not again.frame.get("alert")
    assert again.results.count("<li>") == 1
    assert "My prompt" in again.cards["continue"]
    assert again.go["continue"].interactive
    assert calls.file({"job": again.frame["job"], "variation": 0, "kind": "midi"})["path"]
    calls.leave(SOMEONE)  # the server hears late that the connection was lost
    assert seen(calls.undo(OTHER)).frame["phase"] == "prompt"
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"
    assert seen(calls.open_tab("continue", SOMEONE)).frame["phase"] == "empty"


def test_files_of_a_page_that_is_opened_again_stay(calls, midi, monkeypatch):
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    _, view = make(calls)
    monkeypatch.setattr("app.server.store.LEFT_SECONDS", -1.0)
    calls.leave(SOMEONE)
    calls.open_tab("continue", SOMEONE)  # the connection is there again
    third = SimpleNamespace(session_hash="third")
    make(calls, "piano", who=third)  # new files are when old ones go
    wanted = {"job": view.frame["job"], "variation": 0, "kind": "midi"}
    assert "path" in calls.file(wanted)
    opened(calls, is_gone=True)
    calls.leave(SOMEONE)  # the server hears late that this page is gone
    make(calls, "piano", who=third)
    assert "path" in calls.file(wanted)


@pytest.mark.parametrize("told", [None, [], {}, {"before": 5, "token": None, "is_gone": "yes"}])
def test_a_page_that_says_nonsense_when_it_is_opened_is_a_new_one(calls, midi, told):
    calls.adopt(SimpleNamespace(_data=told), SOMEONE)
    read(calls, midi)
    calls.leave(SOMEONE)
    assert calls.adopt(SimpleNamespace(_data=told), OTHER)[0] == gr.skip()


def test_a_page_that_is_opened_again_opens_the_tab_that_was_in_sight(calls):
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    calls.open_tab("piano", SOMEONE)
    make(calls, "piano")
    assert "data-open='piano'" in seen(opened(calls, is_gone=True)).results
    for name, shown in (("continue", "done"), ("piano", "done"), ("continue", "empty")):
        view = seen(calls.open_tab(name, OTHER))  # the first by Gradio itself
        assert view.frame["phase"] == shown


def test_a_page_that_is_still_open_keeps_what_it_shows(calls, midi):
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    for before in (FIRST, "", SECOND):
        assert opened(calls, is_gone=before != FIRST, before=before)[0] == gr.skip()
    assert seen(calls.open_tab("continue", SOMEONE)).frame["phase"] == "prompt"


def test_music_that_was_being_written_ends_with_its_page_and_that_is_said(calls, midi, model):
    model.speed = 100.0
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    begin(calls, length=60)
    frames = calls.compose(SOMEONE)
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
    assert not seen(calls.open_tab("piano", OTHER)).frame.get("alert")
    view = seen(calls.open_tab("continue", OTHER))  # which Gradio does by itself at once
    assert (view.frame["phase"], view.frame["alert"]) == ("prompt", OPENED_ANEW)
    assert make(calls, who=OTHER)[1].frame["phase"] == "done"


def test_music_without_its_sound_yet_is_kept_when_the_page_is_opened_again(calls, midi):
    calls.adopt(event(before="", is_gone=False, token=FIRST), SOMEONE)
    read(calls, midi)
    begin(calls)
    frames = calls.compose(SOMEONE)
    assert any(frame["phase"] == "rendering" for frame in frames)
    again = seen(opened(calls, is_gone=True))
    assert (again.frame["phase"], again.frame.get("alert")) == ("done", None)
    assert again.results.count("<li>") == 1
    assert again.frame["variations"][0]["sound"] == "ready"  # made when it is asked for
    assert "path" in calls.mix({"job": again.frame["job"], "variation": 0, "without": []})


def test_the_same_refusal_twice_is_two_frames(calls, midi):
    read(calls, midi)
    refusals = [calls.choose_tracks(event(heard=[], played=[0]), SOMEONE)[0] for _ in range(2)]
    assert refusals[0]["alert"] == refusals[1]["alert"]
    assert refusals[0] != refusals[1]  # else the second would not come to the browser


def test_a_refusal_is_not_said_of_what_fails_next(calls):
    with pytest.raises(gr.Error):
        begin(calls)
    assert "bring a MIDI file" in said(calls)
    assert said(calls) == BROKEN  # of a value that Gradio has refused, before `begin`


def test_who_does_not_say_who_asks_is_refused(calls):
    nobody = SimpleNamespace(session_hash=None)
    for call in (calls.stop_job, calls.leave, calls.undo, calls.end):
        with pytest.raises(gr.Error, match="session_hash"):
            call(nobody)


def test_the_time_is_told_before_the_click_once_it_was_measured(calls, midi, monkeypatch):
    view, _ = read(calls, midi)  # 2.5 s a bar
    assert "after the first piece" in view.estimates["continue"]
    monkeypatch.setattr(calls.studio.scheduler, "bars_per_second", lambda *_: 2.0)
    assert "about <b>5 s</b>" in calls.estimate("continue", 10, "bars", 1, SOMEONE)
    assert "about <b>2 s</b>" in calls.estimate("continue", 10, "seconds", 1, SOMEONE)
    assert "about <b>2 min</b>" in calls.estimate("piano", 240, "bars", 4, SOMEONE)


def test_the_example_of_an_empty_page_is_played_when_it_is_asked_for(calls):
    request, first = {}, {}
    for name in EXAMPLE_OF_TAB.values():
        request = {"job": f"example {name}", "variation": -1}
        first = calls.mix(request)
        assert Path(first["path"]).is_file()
    assert calls.mix(request) == first
    shutil.rmtree(Path(first["path"]).parent)  # it has had its time
    assert Path(calls.mix(request)["path"]).is_file()
    for job in ("example nothing", "example ../waltz", "example "):
        assert "cannot be had" in calls.mix({"job": job, "variation": -1})["error"]
