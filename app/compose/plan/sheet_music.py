"""Sheet music of pieces for the piano, as MusicXML."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.compose.prompt.timing import Timing, find_beats
from app.compose.tracks import instrument_name
from app.errors import UserError
from tokenization.notation import as_musicxml
from tokenization.score import Score

MOST_NOTES: Final = 20_000
"""Longer pieces are not written down: this many notes take ten seconds."""
_PIANOS: Final = range(8)
"""Programs of General MIDI."""


class SheetMusicError(UserError):
    """A piece cannot be written down; the message is a sentence without the name of the piece."""


def check_piano(score: Score) -> None:
    """Raise SheetMusicError unless a piece is for the piano alone and short enough."""
    others = {
        instrument_name(track)
        for track in score.tracks
        if len(track) and (track.is_drum or track.program not in _PIANOS)
    }
    if others:
        raise SheetMusicError(
            f"sheet music is for pieces for the piano; found {', '.join(sorted(others))}"
        )
    if not 0 < score.num_notes <= MOST_NOTES:
        raise SheetMusicError(
            f"found {score.num_notes:,} notes, expected 1 to {MOST_NOTES:,} for sheet music"
        )


def is_for_piano(score: Score) -> bool:
    """Return whether `sheet_music` can write a piece."""
    try:
        check_piano(score)
    except SheetMusicError:
        return False
    return True


def sheet_music(score: Score, title: str = "") -> bytes:
    """Write a piece as MusicXML, in two staves.

    If its beats are meaningless, as in a recording, they are estimated. Raises SheetMusicError.
    """
    check_piano(score)
    beats = find_beats(score, "auto").beats
    if beats is not None:
        timing = Timing.of(score, beats)
        score = replace(timing.counted, tempos=timing.heard_tempos)
    try:
        return as_musicxml(score, title)
    except ImportError as error:
        raise SheetMusicError(
            "sheet music needs the package music21; install it with pip install music21"
        ) from error
