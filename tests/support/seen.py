"""Calls the page's callbacks, and returns their values by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from app.compose.options import MusicOptions
from app.web.callbacks.settings import PLANNED
from app.web.tabs.music import FORM

SOMEONE = SimpleNamespace(session_hash="someone", username=None, client=None)
OTHER = SimpleNamespace(session_hash="other", username=None, client=None)
VALUES = {"unit": "bars", "fresh": False} | {
    name: getattr(MusicOptions(bars=3, seed=5, presence=0), name) for name in FORM
}
"""Values of the form, in the order of its widgets."""


class Seen(NamedTuple):
    """Contents of the page, in the order of `View.show`."""

    frame: dict
    results: dict
    card: str
    beats: Any
    model: Any
    go: Any
    again: Any
    stop: Any
    discard: Any
    estimate: str
    key: Any
    form: Any
    chords: Any
    style: Any
    tempo: Any
    metre: Any
    band: Any
    length: Any
    unit: Any
    distance: Any
    presence: Any
    study: Any


def seen(view):
    """The values of `View.show` by name."""
    return Seen(*view)


def listed(view):
    """The number of results that the page lists."""
    return len(set(view.results["known"]) - set(view.results["discarded"]))


def event(**data):
    """An event of the player."""
    return SimpleNamespace(_data=data)


def read(calls, path, who=SOMEONE):
    """Uploads a file; returns the view and the upload."""
    assert calls.uploads.read(str(path), who)[0] is None  # the box is empty again
    return shown(calls, who), work_of(calls, who).upload


def work_of(calls, who=SOMEONE):
    """What a session works on."""
    return calls.view.session(who).work


def shown(calls, who=SOMEONE):
    """The view of a session."""
    return seen(calls.view.show(calls.view.session(who)))


def file_of(calls, view, kind="midi", variation=0):
    """The path of a file of a variation that is shown."""
    request = {"job": view.frame["job"], "variation": variation, "kind": kind}
    return Path(calls.files.file(request)["path"])


def begin(calls, who=SOMEONE, variation=0, **changed):
    """Begins a job; returns its seed and the view."""
    seed, *view = calls.jobs.begin(who, variation, *(VALUES | changed).values())
    return seed, seen(view)


def planned(calls, **changed):
    """The view after a field of the form has changed."""
    values = VALUES | changed
    return seen(calls.settings.plan(SOMEONE, *(values[name] for name in PLANNED)))


def filled_form(calls, who=SOMEONE):
    """Values that fill the form, by name."""
    filled = calls.settings.fill_form(who)
    return dict(zip(["creativity", *VALUES], filled, strict=True))


def make(calls, who=SOMEONE, **changed):
    """Runs a job; returns its frames and the view at its end."""
    begin(calls, who, **changed)
    frames = list(calls.jobs.compose(who))
    return frames, seen(calls.jobs.end(who))
