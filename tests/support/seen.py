"""What the callbacks of the page return, by names; and who calls them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from app.compose.options import MusicOptions
from app.web.session import EXAMPLE_OF_TAB, UPLOADING

SOMEONE = SimpleNamespace(session_hash="someone")
SETTINGS = {
    "length": 3,
    "unit": "bars",
    "variations": 1,
    "temperature": 1.0,
    "top_p": 0.95,
    "seed": 5,
    "fresh": False,
    "top_k": 0,
    "min_p": 0.0,
    "key": "",
    "density": 0.0,
    "repetition": 0.0,
    "presence": 0.0,
    "recall": 0.0,
    "ending": MusicOptions.ending,
}


class Seen(NamedTuple):
    """The view."""

    frame: dict
    results: str
    cards: dict
    beats: dict
    models: dict
    go: dict
    stop: dict
    estimates: dict


def seen(view):
    """The view of a callback, taken apart."""
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
    """What the player sends."""
    return SimpleNamespace(_data=data)


def read(calls, path, tab="continue", who=SOMEONE):
    """Uploads a file: the view, and the upload that came of it."""
    assert calls.read(tab, str(path), who)[0] is None  # the box is empty again
    view = seen(calls.view(calls.session(who)))
    return view, calls.session(who).tabs[tab].upload


def begin(calls, tab="continue", who=SOMEONE, **changed):
    """Asks for a job: its seed, and the view."""
    seed, *view = calls.begin(tab, *(SETTINGS | changed).values(), who)
    return seed, seen(view)


def make(calls, tab="continue", who=SOMEONE, **changed):
    """Makes music: the frames on the way, and the view at the end."""
    begin(calls, tab, who, **changed)
    frames = list(calls.compose(who))
    return frames, seen(calls.end(who))
