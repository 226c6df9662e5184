"""Example pieces, composed for the project: the page offers them, and shows one while empty."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from app.player.frames import (
    Frame,
    PromptFrame,
    TimelineFrame,
    VariationFrame,
    pack_tracks,
    timeline,
)
from tokenization.midi import read_midi

_PLACES = (Path(__file__).parents[1] / "_examples", Path(__file__).parents[2] / "examples")
"""Folder in an installed wheel, and in a clone."""


class Example(NamedTuple):
    """A MIDI file `<name>.mid` and its label."""

    name: str
    label: str
    description: str


EXAMPLES = (
    Example("ballad", "Ballad", "eight slow bars for piano in C"),
    Example("waltz", "Waltz", "eight bars for piano in D minor, in three"),
    Example("pop", "Pop", "eight bars for piano in A, with a pickup"),
    Example("groove", "Funk", "drums, bass, electric piano and guitar"),
    Example("barcarole", "Barcarole", "guitar, strings and bass, in six"),
)
_JOB = "example "


def label_of(name: str) -> str:
    """Return the label of an example."""
    return next(example.label for example in EXAMPLES if example.name == name)


def example_file(name: str) -> Path:
    """Return the MIDI file of this name, such as `ballad` or `ballad.continued`.

    Raises FileNotFoundError if it is not installed.
    """
    for place in _PLACES:
        if (path := place / f"{name}.mid").is_file():
            return path
    raise FileNotFoundError(f"found no example {name}.mid, expected it in {_PLACES[0]}")


@cache
def finished_example(name: str) -> Frame:
    """Return the frame of an empty page: an example continued by a model.

    Callers share the frame and must not change it.
    """
    empty = Frame(job="", phase="empty", variations=[])
    try:
        whole = read_midi(_finished(name).read_bytes(), name=name)
        prompt = read_midi(example_file(name).read_bytes(), name=name)
    except FileNotFoundError:
        return empty  # the page works without it
    bars, before = timeline(whole), timeline(prompt)
    splice = before["end"]
    start = int(splice * whole.ticks_per_beat)
    tracks = [
        track.with_tables(notes=track.notes[track.notes[:, 0] >= start]) for track in whole.tracks
    ]
    new = whole.with_tracks(tracks)
    return empty | Frame(
        job=_JOB + name,
        example=True,
        title=f"An example: {label_of(name)}",
        subtitle=f"{_bars(bars) - _bars(before)} new bars after bar {_bars(before)}",
        timeline=bars,
        prompt=PromptFrame(tracks=pack_tracks(prompt), splice=splice),
        variations=[VariationFrame(tracks=pack_tracks(new, prompt))],
    )


def finished_file(job: str) -> Path | None:
    """Return the file that an empty page plays, by the job of its frame; None for any other job."""
    name = job.removeprefix(_JOB)
    is_example = job.startswith(_JOB) and name in (example.name for example in EXAMPLES)
    return _finished(name) if is_example else None


def _finished(name: str) -> Path:
    return example_file(f"{name}.continued")


def _bars(frame: TimelineFrame) -> int:
    """Return the number of bars of a timeline."""
    return frame["bars"].count(";") - 1
