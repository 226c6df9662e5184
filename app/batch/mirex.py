"""Prompts and continuations as JSON of the MIREX task *Symbolic Music Generation* of 2025.

A note is `{"start": 16, "pitch": 72, "duration": 6}`, in sixteenths of 4/4. The list `prompt` has
five bars, starts 0 to 79, of which the first is for a pickup; the list `generation` has the twelve
bars after it, starts 80 to 271. Source: the task's page in the MIREX wiki, revision of 9 July 2025.
There are no tempos, velocities and pedals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Tempo, TimeSignature, Track, all_notes

PROMPT_BARS = 5
"""Bars of a prompt, with the one for a pickup."""
BAR_SIXTEENTHS = 16
MOST_SIXTEENTHS = 17 * BAR_SIXTEENTHS
"""End of the twelve bars of a continuation; longer notes and later bars are cut off."""
_TICKS = 120
"""Of a sixteenth in MIDI files made of JSON."""
_BPM, _VELOCITY = 100.0, 80
_MOST_NOTES = 100_000


def is_mirex(path: Path) -> bool:
    """Return whether a prompt is JSON, by its name."""
    return path.suffix.lower() == ".json"


def midi_of_prompt(data: bytes, name: str) -> bytes:
    """Return the MIDI file of a prompt: piano, 4/4, 100 quarter notes per minute, five bars.

    A list `generation`, if there is one, follows as real music. Raises MidiError for other JSON.
    """
    try:
        content: Any = json.loads(data)
        if not isinstance(content, dict) or "prompt" not in content:
            raise ValueError("the list prompt is missing")
        prompt = _notes(content["prompt"], 0, PROMPT_BARS * BAR_SIXTEENTHS)
        real = content.get("generation", [])
        real = _notes(real, PROMPT_BARS * BAR_SIXTEENTHS, MOST_SIXTEENTHS)
    except (ValueError, RecursionError) as error:
        raise MidiError(
            f"{name}: this is not a prompt of the MIREX task ({error}), expected JSON such as "
            '{"prompt": [{"start": 16, "pitch": 72, "duration": 6}]}'
        ) from error
    if not prompt:
        raise MidiError(f"{name}: the prompt has no notes, expected at least one")
    end = MOST_SIXTEENTHS if real else PROMPT_BARS * BAR_SIXTEENTHS
    score = Score(
        4 * _TICKS,
        (Track.of([*prompt, *real]),),
        (Tempo(0, _BPM),),
        (TimeSignature(0, 4, 4),),
        end * _TICKS,
    )
    return write_midi(score)


def _notes(notes: Any, first: int, end: int) -> list[tuple[int, int, int, int]]:  # noqa: ANN401
    """Return the rows of notes in ticks. Raises ValueError for other values."""
    if not isinstance(notes, list) or len(notes) > _MOST_NOTES:
        raise ValueError(f"expected a list of at most {_MOST_NOTES:,} notes")
    ranges = {"start": (first, end - 1), "pitch": (0, 127), "duration": (1, MOST_SIXTEENTHS)}
    rows: list[tuple[int, int, int, int]] = []
    for note in notes:
        if not isinstance(note, dict):
            raise ValueError(f"a note is {note!r}, expected start, pitch and duration")
        for name, (least, most) in ranges.items():
            value = note.get(name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} is {value!r}, expected {least} to {most}")
        start, length = note["start"], min(note["duration"], end - note["start"])
        rows.append((start * _TICKS, length * _TICKS, note["pitch"], _VELOCITY))
    return rows


def generation(clip: bytes, new_bar: int) -> str:
    """Return the new music of a clip in 4/4 as JSON; times are rounded to sixteenths.

    Args:
        clip: the MIDI file of the clip.
        new_bar: the bar of the clip in which the new music begins, from 1.
    """
    score = read_midi(clip)
    notes = all_notes(score.tracks)
    splice = (new_bar - 1) * 4 * score.ticks_per_beat
    notes = notes[notes[:, 0] >= splice]
    first = PROMPT_BARS * BAR_SIXTEENTHS
    edges = np.column_stack([notes[:, 0], notes[:, 0] + notes[:, 1]]) - splice
    edges = np.rint(edges * 4 / score.ticks_per_beat).astype(np.int64) + first
    starts = edges[:, 0]
    durations = np.clip(edges[:, 1] - starts, 1, np.maximum(MOST_SIXTEENTHS - starts, 1))
    rows = np.column_stack([starts, notes[:, 2], durations])[starts < MOST_SIXTEENTHS]
    rows = np.unique(rows, axis=0)  # sorted by start and pitch
    music = [
        {"start": start, "pitch": pitch, "duration": duration}
        for start, pitch, duration in rows.tolist()
    ]
    return json.dumps({"generation": music}, indent=1) + "\n"
