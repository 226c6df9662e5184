"""What scripts send to the page's calls: read, and refused in one sentence where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio_client.utils import is_file_obj_with_meta

from app.compose.options import ENDINGS, LARGEST_SEED, MusicOptions, Range, limits, new_seed
from tokenization.analysis.keys import pitch_classes

_NUMBERS = (
    *("bars", "variations", "temperature", "top_p"),
    *("top_k", "min_p", "density", "repetition", "presence", "recall"),
)
LIMITS: dict[str, Range] = {
    **{name: limits(name).scripts for name in _NUMBERS},
    "prompt_bars": (0, 1_000_000),
    "seconds": (0.0, 600.0),
    "last_bar": (0, 1_000_000),
    "seed": (-1, LARGEST_SEED),
}
"""Least and greatest value of each argument."""


def options_of(
    bars: object,
    variations: object,
    temperature: object,
    top_p: object,
    seed: object,
    top_k: object = MusicOptions.top_k,
    min_p: object = MusicOptions.min_p,
    key: object = None,
    density: object = MusicOptions.density,
    repetition: object = MusicOptions.repetition,
    ending: object = MusicOptions.ending,
    seconds: object = 0,
    prompt_bars: object = MusicOptions.prompt_bars,
    presence: object = MusicOptions.presence,
    recall: object = MusicOptions.recall,
) -> MusicOptions:
    """The settings of a job; raises gr.Error, as all of these, for a value that cannot be."""
    chosen = -1 if seed is None else int(number_of("seed", seed))
    return MusicOptions(
        bars=int(number_of("bars", bars)),
        seconds=max(number_of("seconds", seconds), 1.0) if seconds else None,
        prompt_bars=int(number_of("prompt_bars", prompt_bars)),
        seed=chosen if chosen >= 0 else new_seed(),
        temperature=number_of("temperature", temperature),
        top_p=number_of("top_p", top_p),
        top_k=int(number_of("top_k", top_k)),
        min_p=number_of("min_p", min_p),
        key=key_of(key),
        density=number_of("density", density),
        repetition=number_of("repetition", repetition),
        presence=number_of("presence", presence),
        recall=number_of("recall", recall),
        ending=choice_of("ending", ending, ENDINGS),
        variations=int(number_of("variations", variations)),
    )


def number_of(name: str, value: object) -> float:
    """A number within its limits."""
    least, most = LIMITS[name]
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    whole = isinstance(least, int)
    inside = number is not None and least <= number and (most is None or number <= most)
    if number is None or not inside or (whole and number % 1):
        kind = "a whole number" if whole else "a number"
        raise refusal(f"{name} is {_short(value)}, expected {kind} from {least} to {most}")
    return number


def key_of(value: object) -> str | None:
    """The name of a key; None for none."""
    if value is None or value == "":
        return None
    try:
        pitch_classes(str(value))
    except ValueError as error:
        raise refusal(str(error)) from error
    return str(value)


def choice_of(name: str, value: object, choices: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """One of some words."""
    if value not in choices:
        raise refusal(f"{name} is {_short(value)}, expected one of {', '.join(choices)}")
    return value


def file_of(name: str, value: object) -> Path:
    """Path of an uploaded file: Gradio refuses what has its mark and does not lie among uploads."""
    if not isinstance(value, dict) or not is_file_obj_with_meta(value):
        raise refusal(
            f"{name} is {_short(value)}, expected an uploaded MIDI file; upload it first, as "
            "gradio_client's handle_file does"
        )
    return Path(value["path"])


def refusal(message: str) -> gr.Error:
    """What a script did wrong, or a job that came to nothing: no matter for the program's log."""
    return gr.Error(message, print_exception=False)


def _short(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
