"""Examples that the project has composed: what the page offers, and shows while it is empty."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from app.player import Frame, PromptFrame, TimelineFrame, VariationFrame, pack_tracks, timeline
from tokenization.midi import read_midi

_PLACES = (Path(__file__).parent / "_examples", Path(__file__).parents[1] / "examples")
"""In an installed wheel; beside the package in a clone."""


class Example(NamedTuple):
    """A MIDI file `<name>.mid` and what to call it."""

    name: str
    label: str
    told: str
    """What it is, in a few words."""


EXAMPLES = (
    Example("ballad", "Ballad", "eight slow bars for piano in C"),
    Example("waltz", "Waltz", "eight bars for piano in D minor, in three"),
    Example("pop", "Pop", "eight bars for piano in A, with a pickup"),
    Example("groove", "Funk", "drums, bass, electric piano and guitar"),
    Example("barcarole", "Barcarole", "guitar, strings and bass, in six"),
)
OF_BANDS = EXAMPLES[3:]
"""Those with several instruments."""
_JOB = "example "


def example_file(name: str) -> Path:
    """The MIDI file of this name, such as `ballad` or `ballad.continued`.

    Raises FileNotFoundError where it was not installed.
    """
    for place in _PLACES:
        if (path := place / f"{name}.mid").is_file():
            return path
    raise FileNotFoundError(f"found no example {name}.mid, expected it in {_PLACES[0]}")


@cache
def finished_example(name: str) -> Frame:
    """What a model has made of an example, as the player shows it on an empty page.

    The frame is shared: who changes it takes a copy.
    """
    empty = Frame(job="", phase="empty", variations=[])
    try:
        prompt = read_midi(example_file(name).read_bytes(), name=name)
        whole = read_midi(example_file(f"{name}.continued").read_bytes(), name=name)
    except FileNotFoundError:
        return empty  # the page is as useful without it
    factor = whole.ticks_per_beat // prompt.ticks_per_beat
    bars = timeline(prompt)
    joint = bars["end"]
    start = int(joint * prompt.ticks_per_beat * factor)
    new = [replace(track, notes=track.notes[track.notes[:, 0] >= start]) for track in whole.tracks]
    return empty | Frame(
        job=_JOB + name,
        example=True,
        title=f"An example: {name}",
        subtitle=f"{_bars(timeline(whole)) - _bars(bars)} new bars after bar {_bars(bars)}",
        timeline=timeline(whole),
        prompt=PromptFrame(tracks=pack_tracks(prompt), joint=joint, sound="ready"),
        variations=[VariationFrame(tracks=pack_tracks(whole.with_tracks(new), prompt))],
    )


def finished_file(job: str) -> Path | None:
    """What an empty page plays by the job of its frame; None where that is no example's."""
    name = job.removeprefix(_JOB)
    known = job.startswith(_JOB) and any(example.name == name for example in EXAMPLES)
    return example_file(f"{name}.continued") if known else None


def _bars(frame: TimelineFrame) -> int:
    """Bars that a timeline has lines for."""
    return frame["bars"].count(";") - 1
