"""The values of the widgets for a session."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from app.compose.options import MusicOptions
from tests.support.seen import SOMEONE, event, planned, read


def test_the_same_alert_twice_is_sent_twice(calls, midi):
    read(calls, midi)
    first, second = (
        calls.uploads.choose_tracks(event(heard=[], played=[0]), SOMEONE)[0] for _ in range(2)
    )
    assert first["alert"] == second["alert"]
    assert first != second  # otherwise, the second one would not reach the browser


def test_a_request_without_a_session_is_refused(calls):
    stranger = SimpleNamespace(session_hash=None)
    for call in (calls.jobs.stop_job, calls.history.leave, calls.history.undo, calls.jobs.end):
        with pytest.raises(gr.Error, match="session_hash"):
            call(stranger)


def test_the_duration_is_estimated_once_a_speed_was_measured(calls, midi, monkeypatch):
    view, upload = read(calls, midi)  # 2.5 s a bar
    assert "after the model's first piece" in view.estimate
    studio = calls.studio
    list(studio.compose("me", upload, MusicOptions(bars=2, seed=1)))
    rows = 2 * MusicOptions(variations=2).num_takes  # all takes are generated
    expected = studio.scheduler.seconds_needed("fake", upload.prompt, 8, rows)
    assert studio.seconds_needed("fake", upload.prompt, 8, 2) == expected > 0

    def seconds_needed(name, prompt, bars, variations):
        assert (name, prompt) == ("fake", upload.prompt)
        return bars / 2 * variations  # half a second a bar

    monkeypatch.setattr(studio, "seconds_needed", seconds_needed)
    for length, unit, variations, study, text in (
        (10, "bars", 1, 0, "about <b>5 s</b>"),
        (10, "bars", 1, 30, "about <b>35 s</b>"),
        (10, "seconds", 1, 0, "about <b>2 s</b>"),
        (240, "bars", 2, 0, "about <b>4 min</b>"),
    ):
        view = planned(calls, bars=length, unit=unit, variations=variations, study=study)
        assert text in view.estimate
