"""The values of the widgets for a session."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

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
    for call in (calls.jobs.stop_job, calls.tabs.leave, calls.tabs.undo, calls.jobs.end):
        with pytest.raises(gr.Error, match="session_hash"):
            call(stranger)


def test_the_duration_is_estimated_once_a_speed_was_measured(calls, midi, monkeypatch):
    view, upload = read(calls, midi)  # 2.5 s a bar
    assert "after the first piece" in view.estimates["continue"]
    monkeypatch.setattr(calls.studio.scheduler, "bars_per_second", lambda *_: 2.0)
    assert "about <b>5 s</b>" in calls.settings.estimate("continue", 10, "bars", 1, SOMEONE)
    assert "about <b>2 s</b>" in calls.settings.estimate("continue", 10, "seconds", 1, SOMEONE)
    assert "about <b>2 min</b>" in calls.settings.estimate("piano", 240, "bars", 4, SOMEONE)
    asked = []
    monkeypatch.setattr(
        calls.studio.scheduler, "seconds_to_read", lambda *given: asked.append(given) or 4.0
    )
    assert "about <b>9 s</b>" in calls.settings.estimate("continue", 10, "bars", 1, SOMEONE)
    assert asked == [("fake", upload.prompt.tokens_heard())]
    assert "about <b>2 min</b>" in calls.settings.estimate("piano", 240, "bars", 4, SOMEONE)
