"""Checks values that the page's scripts send with their events."""

from __future__ import annotations

import json
from collections.abc import Callable

import gradio as gr

from app.compose.fill.passage import DRUMS, Passage

_MOST_BARS = 1_000_000
Choice = Callable[[gr.EventData, gr.Request], tuple[object, ...]]


def from_text(choice: Choice) -> Callable[[object, gr.Request], tuple[object, ...]]:
    """Return a callback that takes the values of its event as JSON; other text has none."""

    def answer(text: object, request: gr.Request) -> tuple[object, ...]:
        try:
            values = json.loads(str(text))
        except (ValueError, RecursionError):
            values = None
        return choice(gr.EventData(None, values), request)

    return answer


def values_of(event: gr.EventData) -> dict[str, object]:
    """Return the values of an event by name."""
    return event._data if isinstance(event._data, dict) else {}


def whole_number(event: gr.EventData, name: str, most: int) -> int | None:
    """Return an integer from 0 to `most`; None for any other value."""
    value = values_of(event).get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def track_numbers(event: gr.EventData, name: str) -> frozenset[int] | None:
    """Return the numbers of tracks; None for all of them."""
    value = values_of(event).get(name)
    if not isinstance(value, list) or len(value) > 10_000:
        return None
    return frozenset(number for number in value if isinstance(number, int))


def chosen_passage(event: gr.EventData) -> Passage | None:
    """Return the bars and tracks that are to be written; None if no bars are chosen."""
    first, last = (whole_number(event, name, _MOST_BARS) for name in ("first", "last"))
    if first is None or last is None or not 1 <= first <= last:
        return None
    tracks = track_numbers(event, "tracks")
    return Passage(
        first_bar=first,
        last_bar=last,
        tracks=tracks,
        rests=(track_numbers(event, "rests") or frozenset()) - (tracks or frozenset()),
        instrument=whole_number(event, "instrument", DRUMS),
    )
