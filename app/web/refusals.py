"""Errors of clients of the page, in one sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr


def refusal(message: str) -> gr.Error:
    """Return an error of a client, which is not logged; also a job without a result."""
    return gr.Error(message, print_exception=False)


def short(value: object) -> str:
    """Return a value as a message shows it."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"


def invalid(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the first of pydantic's errors, of which there may be none."""
    if not errors:
        return "call: it is malformed"
    first = errors[0]
    name = short(".".join(str(part) for part in first["loc"] if part != "body"))[1:-1]
    value = first.get("input")
    shown = f"{name} is {short(value)}" if isinstance(value, str | int | float) else name
    return f"{shown}: {first['msg']}"
