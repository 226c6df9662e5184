"""What the settings' widgets show: names of creativity, lengths, and the settings of a piece."""

from __future__ import annotations

import html
from dataclasses import fields

import gradio as gr

from app.compose.options import MusicOptions, limits, new_seed

CREATIVITY = {"Safe": (0.9, 0.90), "Balanced": (1.0, 0.95), "Wild": (1.1, 0.98)}
"""Temperature and top-p of each choice."""
SECONDS = (5, 240, 30)
"""Least and greatest length in seconds that the page offers, and the first."""


def mood_of(temperature: float, top_p: float) -> str | None:
    """The name of a temperature and top-p; None for those without."""
    return next((name for name, pair in CREATIVITY.items() if pair == (temperature, top_p)), None)


def roll_dice() -> tuple[int, bool]:
    """A seed, and that it is to be kept."""
    return new_seed(), False


def of_unit(unit: str) -> gr.Slider:
    """The slider of the length, in bars or seconds."""
    if unit == "seconds":
        return _slider_of(MusicOptions(seconds=SECONDS[2]))
    return _slider_of(MusicOptions())


def _slider_of(options: MusicOptions) -> gr.Slider:
    if options.seconds is not None:
        least, most, _ = SECONDS
        least, most = min(least, options.seconds), max(most, options.seconds)
        return gr.Slider(minimum=least, maximum=most, value=options.seconds, step=1)
    least, most = limits("bars").page
    most = max(most or 0, options.bars)
    return gr.Slider(minimum=least, maximum=most, value=options.bars, step=1)


def widget_values(options: MusicOptions) -> tuple[object, ...]:
    """A piece's settings as the values of `app.web.tabs.Settings`, and its creativity."""
    return (
        _slider_of(options),
        "seconds" if options.seconds is not None else "bars",
        options.variations,
        options.temperature,
        options.top_p,
        options.seed,
        False,
        options.top_k,
        options.min_p,
        options.key or "",
        options.density,
        options.repetition,
        options.presence,
        options.recall,
        options.ending,
        mood_of(options.temperature, options.top_p),
    )


def not_of_page(options: MusicOptions) -> str:
    """Which settings the page does not take, in one sentence; empty where it takes all.

    The commands go further. Lengths are taken as far as scripts may go.
    """
    wrong: list[str] = []
    for option in fields(options):
        value, within = getattr(options, option.name), option.metadata["limits"]
        if value is None or within is None:
            continue
        least, most = within.scripts if option.name in ("bars", "seconds") else within.page
        if value < least or (most is not None and value > most):
            name = option.name.replace(
                "_", "-" if option.name in ("top_p", "top_k", "min_p") else " "
            )
            wrong.append(f"{name} is {value:g}, expected {least:g} to {most:g}")
    if not wrong:
        return ""
    return (
        f"The page does not take these settings: {'; '.join(wrong)}. The command relpe replay does."
    )


def key_problem(key: str | None) -> str:
    """What is wrong with the name of a key, in one short sentence; empty where nothing is."""
    if not (key or "").strip():
        return ""
    try:
        MusicOptions(key=key)
    except ValueError:
        return f"“{key}” is no key or scale that I know; write C, F#m, Bb or D dorian."
    return ""


def key_note(key: str | None) -> str:
    """The same as HTML, for the place below the field."""
    problem = key_problem(key)
    return f"<p role='alert'>{html.escape(problem)}</p>" if problem else ""


def duration(seconds: float) -> str:
    """About how long: `6 s`, `2 min`."""
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"
