"""Calls the page's callbacks, and returns their values by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from app.compose.options import MusicOptions
from app.web.session import EXAMPLE_OF_TAB, UPLOADING
from app.web.tabs.music import FORM

SOMEONE = SimpleNamespace(session_hash="someone", username=None, client=None)
VALUES = {"unit": "bars", "fresh": False} | {
    name: getattr(MusicOptions(bars=3, seed=5, presence=0, recall=0), name) for name in FORM
}
"""Values of the form of a tab, in the order of its widgets."""


class Seen(NamedTuple):
    """Contents of the page."""

    frame: dict
    results: str
    cards: dict
    beats: dict
    models: dict
    go: dict
    stop: dict
    estimates: dict


def seen(view):
    """The values of `View.show` by name."""
    frame, results, *rest = view
    uploads = dict(zip(UPLOADING, _rows(rest[: 2 * len(UPLOADING)], 2), strict=True))
    buttons = dict(zip(EXAMPLE_OF_TAB, _rows(rest[2 * len(UPLOADING) :], 5), strict=True))
    return Seen(
        frame,
        results,
        {name: row[0] for name, row in uploads.items()},
        {name: row[1] for name, row in uploads.items()},
        *({name: row[place] for name, row in buttons.items()} for place in (0, 1, 2, 4)),
    )


def _rows(values, size):
    return [values[start : start + size] for start in range(0, len(values), size)]


def event(**data):
    """An event of the player."""
    return SimpleNamespace(_data=data)


def read(calls, path, tab="continue", who=SOMEONE):
    """Uploads a file; returns the view and the upload."""
    assert calls.uploads.read(tab, str(path), who)[0] is None  # the box is empty again
    view = seen(calls.view.show(calls.view.session(who)))
    return view, calls.view.session(who).tabs[tab].upload


def begin(calls, tab="continue", who=SOMEONE, **changed):
    """Begins a job; returns its seed and the view."""
    seed, *view = calls.jobs.begin(tab, who, *(VALUES | changed).values())
    return seed, seen(view)


def filled_form(calls, who=SOMEONE, tab="continue"):
    """Values that fill the form of a tab, by name."""
    filled = calls.settings.fill_form(who)
    names = ["creativity", *VALUES]
    row = list(EXAMPLE_OF_TAB).index(tab) * len(names)
    return dict(zip(names, filled[row : row + len(names)], strict=True))


def make(calls, tab="continue", who=SOMEONE, **changed):
    """Runs a job; returns its frames and the view at its end."""
    begin(calls, tab, who, **changed)
    frames = list(calls.jobs.compose(who))
    return frames, seen(calls.jobs.end(who))
