"""Transposition and tempo of a MIDI file; only the bytes that say them change."""

from __future__ import annotations

from typing import Final

import numpy as np

from tokenization.errors import MidiError
from tokenization.midi.chunks import MidiFile, open_midi
from tokenization.midi.events import (
    DRUM_CHANNEL,
    TEMPO,
    Events,
    meta_events,
    scan_events,
    tempo_rows,
)

KEY_SIGNATURE: Final = 0x59
_DEFAULT_TEMPO: Final = 500_000
"""Microseconds per quarter note of a file without a tempo."""
_MOST_TEMPO: Final = 0xFFFFFF


def transpose_midi(data: bytes, semitones: int) -> bytes:
    """MIDI file whose notes are higher by some semitones, except those of drums on channel 10.

    Pitches, polyphonic pressure and key signatures change; no byte is added or removed.

    Raises:
        MidiError: this is not a MIDI file, or a note would be below 0 or above 127.
    """
    file = open_midi(data, "the piece")
    events = scan_events(file)
    changed = np.frombuffer(file.data, dtype=np.uint8).copy()
    kind, channel = events.status & 0xF0, events.status & 0x0F
    rows = np.flatnonzero((kind >= 0x80) & (kind <= 0xA0) & (channel != DRUM_CHANNEL))
    pitches = events.first[rows] + semitones
    if len(rows) and (pitches.min() < 0 or pitches.max() > 127):
        raise MidiError(
            f"{semitones:+d} semitones: the notes would have pitches from {pitches.min()} to "
            f"{pitches.max()}, expected 0 to 127; transpose by less"
        )
    at = events.body[rows]
    changed[at + (changed[at] >= 0x80)] = pitches  # without a status byte if it is running
    for start, end in _contents(events, KEY_SIGNATURE):
        if end - start == 2:
            fifths = int(changed[start].astype(np.int8)) + 7 * semitones
            changed[start] = np.int8((fifths + 6) % 12 - 6).astype(np.uint8)
    return changed.tobytes()


def scale_tempo(data: bytes, factor: float) -> bytes:
    """MIDI file that plays `factor` times as fast; a tempo is added if it begins without one.

    Raises:
        MidiError: this is not a MIDI file, or a tempo would be too slow or too fast for one.
    """
    file = open_midi(data, "the piece")
    events = scan_events(file)
    changed = bytearray(file.data)
    rows = tempo_rows(file, events)[0]
    starts = [start for start, end in _contents(events, TEMPO) if end - start == 3]
    for start in starts:
        tempo = int.from_bytes(changed[start : start + 3], "big")
        changed[start : start + 3] = _tempo_bytes(tempo / factor) if tempo else bytes(3)
    if len(rows) and int(events.tick[rows].min()) == 0:
        return bytes(changed)
    first = b"\x00\xff\x51\x03" + _tempo_bytes(_DEFAULT_TEMPO / factor)
    return _with_first_event(file, bytes(changed), first)


def _contents(events: Events, kind: int) -> list[tuple[int, int]]:
    """Start and end of the contents of all meta events of one type."""
    _, starts, ends = meta_events(events, kind)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _tempo_bytes(microseconds: float) -> bytes:
    tempo = round(microseconds)
    if not 0 < tempo <= _MOST_TEMPO:
        raise MidiError(
            f"found a tempo of {60e6 / microseconds:.1f} quarter notes per minute, expected at "
            f"least {60e6 / _MOST_TEMPO:.1f}"
        )
    return tempo.to_bytes(3, "big")


def _with_first_event(file: MidiFile, data: bytes, event: bytes) -> bytes:
    """The file with an event at the start of its first track."""
    track = file.tracks[0]
    size = (track.end - track.start + len(event)).to_bytes(4, "big")
    return data[: track.start - 4] + size + event + data[track.start :]
