"""The values of the widgets for a session."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from app.compose.options import MusicOptions
from app.server.estimates import Rate
from tests.support.seen import SOMEONE, event, read


def test_the_same_alert_twice_is_sent_twice(calls, midi):
    read(calls, midi)
    refusals = [
        calls.uploads.choose_tracks(event(heard=[], played=[0]), SOMEONE)[0] for _ in range(2)
    ]
    assert refusals[0]["alert"] == refusals[1]["alert"]
    assert refusals[0] != refusals[1]  # otherwise, the second one would not reach the browser


def test_a_request_without_a_session_is_refused(calls):
    stranger = SimpleNamespace(session_hash=None)
    for call in (calls.jobs.stop_job, calls.history.leave, calls.history.undo, calls.jobs.end):
        with pytest.raises(gr.Error, match="session_hash"):
            call(stranger)


def test_the_duration_is_estimated_once_a_speed_was_measured(calls, midi, monkeypatch):
    view, upload = read(calls, midi)  # 2.5 s a bar
    assert "after the model's first piece" in view.estimate
    asked = []

    def seconds_needed(*given):
        asked.append(given)
        return given[2] / 2 * given[3]  # half a second a bar

    monkeypatch.setattr(calls.studio, "seconds_needed", seconds_needed)
    told = calls.settings.estimate(10, "bars", 1, SOMEONE)
    assert "about <b>5 s</b>, sound included" in told
    assert asked[-1][:2] == ("fake", upload.prompt)
    assert "about <b>2 s</b>" in calls.settings.estimate(10, "seconds", 1, SOMEONE)
    assert "about <b>4 min</b>" in calls.settings.estimate(240, "bars", 2, SOMEONE)


def test_the_time_to_render_sound_is_part_of_the_estimate(calls, midi):
    _, upload = read(calls, midi)
    studio = calls.studio
    list(studio.compose("me", upload, MusicOptions(bars=2, seed=1)))
    bars, rows = 8, 2
    generating = studio.scheduler.seconds_needed("fake", upload.prompt, bars, rows)
    studio._sound_speed["fake"] = Rate()
    studio._sound_speed["fake"].learn(30, 1)
    told = studio.seconds_needed("fake", upload.prompt, bars, rows)
    assert told - generating == pytest.approx(rows * (10 + bars * 2.5) / 30)
