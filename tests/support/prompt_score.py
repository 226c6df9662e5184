"""The part of a prompt that the model reads, as a score."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from app.compose.prompt.timing import notes_on_file
from tokenization.grid import notated_lines
from tokenization.remi.bars import BarMap
from tokenization.remi.remi import PianoRemi

if TYPE_CHECKING:
    from app.compose.prompt.prompt import Prompt
    from tokenization.score import Score


def prompt_score(prompt: Prompt) -> Score:
    """The notes that are encoded in the tokens of a prompt, in ticks of its file."""
    timing = prompt.timing
    bars = BarMap.of(notated_lines(timing.counted, prompt.splice), timing.counted.ticks_per_beat)
    decoded = PianoRemi().decode(prompt.ids)
    return prompt.score.with_tracks(
        replace(track, notes=notes_on_file(track.notes, bars, timing)) for track in decoded.tracks
    )
