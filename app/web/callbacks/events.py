"""Checks values that the page's scripts send with their events."""

from __future__ import annotations

import gradio as gr


def values_of(event: gr.EventData) -> dict[str, object]:
    """The values of an event by name."""
    return event._data if isinstance(event._data, dict) else {}


def whole_number(event: gr.EventData, name: str, most: int) -> int | None:
    """An integer from 0 to `most`; None for any other value."""
    value = values_of(event).get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def track_numbers(event: gr.EventData, name: str) -> frozenset[int] | None:
    """Numbers of tracks; None for all of them."""
    value = values_of(event).get(name)
    if not isinstance(value, list) or len(value) > 10_000:
        return None
    return frozenset(number for number in value if isinstance(number, int))
