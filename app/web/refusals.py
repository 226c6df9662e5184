"""Errors of clients of the page, in one sentence each."""

from __future__ import annotations

import gradio as gr


def refusal(message: str) -> gr.Error:
    """Return an error of a client, which is not logged; also a job without a result."""
    return gr.Error(message, print_exception=False)


def short(value: object) -> str:
    """Return a value as a message shows it."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
