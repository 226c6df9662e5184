"""Conversion of scores to and from the objects of other libraries, through MIDI bytes.

All these libraries read and write MIDI, so this conversion also works with their future versions.
Information that MIDI cannot represent is lost: overlapping notes of one pitch on one channel swap
their ends. pretty_midi counts in seconds, and may move a time by a tick. The libraries are imported
inside the functions, so that none is required.
"""

# pyright: basic
# These libraries lack complete type hints.
from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tokenization.midi.reader import read_midi
from tokenization.midi.writer import write_midi

if TYPE_CHECKING:
    import miditoolkit
    import muspy
    import pretty_midi

    from tokenization.score import Score


def to_symusic(score: Score) -> Any:  # noqa: ANN401 - its package has no public name for the type
    """Convert a score to symusic's score of ticks (`symusic.core.ScoreTick`)."""
    import symusic

    return symusic.Score.from_midi(write_midi(score))


def from_symusic(score: Any) -> Score:  # noqa: ANN401
    """Convert symusic's score of ticks."""
    return read_midi(score.dumps_midi(), name="the symusic score")


def to_miditoolkit(score: Score) -> miditoolkit.MidiFile:
    """Convert a score to miditoolkit's file object."""
    import miditoolkit

    return miditoolkit.MidiFile(file=io.BytesIO(write_midi(score)))


def from_miditoolkit(midi: miditoolkit.MidiFile) -> Score:
    """Convert miditoolkit's file object."""
    buffer = io.BytesIO()
    midi.dump(file=buffer)
    return read_midi(buffer.getvalue(), name="the miditoolkit file")


def to_pretty_midi(score: Score) -> pretty_midi.PrettyMIDI:
    """Convert a score to pretty_midi's object, with times in seconds."""
    import pretty_midi

    return pretty_midi.PrettyMIDI(io.BytesIO(write_midi(score)))


def from_pretty_midi(midi: pretty_midi.PrettyMIDI) -> Score:
    """Convert pretty_midi's object."""
    buffer = io.BytesIO()
    midi.write(buffer)
    return read_midi(buffer.getvalue(), name="the pretty_midi object")


def to_muspy(score: Score) -> muspy.Music:
    """Convert a score to muspy's music object."""
    import mido
    import muspy

    return muspy.from_mido(mido.MidiFile(file=io.BytesIO(write_midi(score))))


def from_muspy(music: muspy.Music) -> Score:
    """Convert muspy's music object."""
    import muspy

    buffer = io.BytesIO()
    muspy.to_mido(music).save(file=buffer)
    return read_midi(buffer.getvalue(), name="the muspy music")
