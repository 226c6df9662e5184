"""Transposition, tempo, programs and volumes of a file; only the bytes that say them change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import MidiFile, open_midi
from tokenization.midi.drums import Place, drum_places
from tokenization.midi.events import (
    DRUM_CHANNEL,
    TEMPO,
    Events,
    meta_events,
    scan_events,
    tempo_rows,
)
from tokenization.midi.reader import read_midi
from tokenization.score import Track

DEFAULT_VOLUME: Final = 100
"""Volume of a channel that has none."""
_VOLUME: Final = 7
KEY_SIGNATURE: Final = 0x59
_DEFAULT_TEMPO: Final = 500_000
"""Microseconds per quarter note of a file without a tempo."""
_MOST_TEMPO: Final = 0xFFFFFF


def transpose_midi(data: bytes, semitones: int, drums: Mapping[Place, bool] | None = None) -> bytes:
    """Return the MIDI file whose notes are higher by some semitones, except those of drums.

    Pitches, polyphonic pressure and key signatures change; no byte is added or removed. `drums`
    are those that are known, as in `read_midi`.

    Raises:
        MidiError: this is not a MIDI file, or a note would be below 0 or above 127.
    """
    file = open_midi(data, "the piece")
    events = scan_events(file)
    changed = np.frombuffer(file.data, dtype=np.uint8).copy()
    kind = events.status & 0xF0
    rows = np.flatnonzero((kind >= 0x80) & (kind <= 0xA0) & ~_are_drums(data, events, drums))
    pitches = events.first[rows] + semitones
    if len(rows) and (pitches.min() < 0 or pitches.max() > 127):
        raise MidiError(
            f"{semitones:+d} semitones: the notes would have pitches from {pitches.min()} to "
            f"{pitches.max()}, expected 0 to 127; transpose by less"
        )
    _write_data_byte(changed, events.body[rows], 0, pitches.astype(np.uint8))
    for start, end in _contents(events, KEY_SIGNATURE):
        if end - start == 2:
            fifths = int(changed[start].astype(np.int8)) + 7 * semitones
            changed[start] = np.int8((fifths + 6) % 12 - 6).astype(np.uint8)
    return changed.tobytes()


def _are_drums(
    data: bytes, events: Events, drums: Mapping[Place, bool] | None
) -> NDArray[np.bool_]:
    """Return which events (n,) are on channels of drums."""
    homes = events.homes[events.chunk, events.status & 0x0F]
    chunks, channels = homes >> 4, homes & 15
    are_drums = channels == DRUM_CHANNEL
    with suppress(MidiError):  # a file without notes has no other drums
        for (chunk, channel), is_drum in drum_places(read_midi(data, drums=drums)).items():
            are_drums[(chunks == chunk) & (channels == channel)] = is_drum
    return are_drums


def scale_tempo(data: bytes, factor: float) -> bytes:
    """Return the MIDI file `factor` times as fast; a tempo is added if it begins without one.

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
    first = b"\xff\x51\x03" + _tempo_bytes(_DEFAULT_TEMPO / factor)
    return _with_first_event(file, bytes(changed), 0, first)


def with_own_channel(data: bytes, track: Track) -> tuple[bytes, int]:
    """Return the MIDI file where no other track chunk uses a track's channel, and that channel.

    If another one does, the messages of the track's chunk move to a free channel, with the program
    and the volume that they had. All drums share a channel.

    Raises:
        MidiError: this is not a MIDI file, or no channel is free.
    """
    file = open_midi(data, "the piece")
    events = scan_events(file)
    kind, channel = events.status & 0xF0, events.status & 0x0F
    is_message = (kind >= 0x80) & (kind < 0xF0)
    is_own = is_message & (channel == track.channel) & (events.chunk == track.chunk)
    is_shared = (kind == 0x90) & (channel == track.channel) & (events.chunk != track.chunk)
    if track.channel == DRUM_CHANNEL or not is_shared.any():
        return data, track.channel
    free = set(range(16)) - {DRUM_CHANNEL} - set(channel[is_message].tolist())
    if not free:
        raise MidiError(
            "the track shares its channel with another one, and all 16 channels are in use; change "
            "its sound in a program for MIDI files"
        )
    new = min(free)
    changed = np.frombuffer(file.data, dtype=np.uint8).copy()
    at = events.body[np.flatnonzero(is_own)]
    at = at[changed[at] >= 0x80]  # the others have running status
    changed[at] = changed[at] & 0xF0 | new
    new_data = changed.tobytes()
    has_program = (is_own & (kind == 0xC0)).any()
    has_volume = (is_own & (kind == 0xB0) & (events.first == _VOLUME)).any()
    # those of other chunks no longer hold for it
    states = [bytes([0xC0 | new, track.program])] * (track.program > 0 and not has_program)
    if not has_volume and volume_of(track) != DEFAULT_VOLUME:
        states.append(bytes([0xB0 | new, _VOLUME, volume_of(track)]))
    for state in states:
        new_data = _with_first_event(
            open_midi(new_data, "the piece"), new_data, track.chunk or 0, state
        )
    return new_data, new


def set_program(data: bytes, channel: int, before: int, after: int) -> bytes:
    """Return the MIDI file in which another General MIDI program plays what one plays on a channel.

    Programs of a channel hold for all its tracks, so all of them change. A track that plays program
    0 since the file names none gets a program change.

    Raises:
        MidiError: this is not a MIDI file.
    """
    if before == after:
        return data
    file = open_midi(data, "the piece")
    events = scan_events(file)
    changed = np.frombuffer(file.data, dtype=np.uint8).copy()
    rows = np.flatnonzero((events.status == 0xC0 | channel) & (events.first == before))
    _write_data_byte(changed, events.body[rows], 0, np.full(len(rows), after, np.uint8))
    new_data = changed.tobytes()
    message = bytes([0xC0 | channel, after])
    for chunk in sorted(
        {
            track.chunk
            for track in read_midi(new_data).tracks
            if (track.channel, track.program) == (channel, before) and track.chunk is not None
        }
    ):
        new_data = _with_first_event(open_midi(new_data, "the piece"), new_data, chunk, message)
    return new_data


def volume_of(track: Track) -> int:
    """Return the volume (controller 7) of a track's channel at the first note of the track."""
    first = int(track.notes[0, 0]) if len(track) else 0
    is_volume = (track.controls[:, 1] == _VOLUME) & (track.controls[:, 0] <= first)
    values = track.controls[is_volume, 2]
    return int(values[-1]) if len(values) else DEFAULT_VOLUME


def set_volume(data: bytes, track: Track, volume: int) -> bytes:
    """Return the MIDI file in which a track begins with a volume (controller 7), 0 to 127.

    Later volumes of its channel change by the same factor. A volume holds for all tracks of a
    channel. If none precedes the first note, one is added at the start.

    Raises:
        MidiError: this is not a MIDI file.
    """
    before = volume_of(track)
    if volume == before:
        return data
    file = open_midi(data, "the piece")
    events = scan_events(file)
    changed = np.frombuffer(file.data, dtype=np.uint8).copy()
    rows = np.flatnonzero((events.status == 0xB0 | track.channel) & (events.first == _VOLUME))
    old = events.second[rows]
    scaled = np.rint(old * (volume / before)) if before else np.full(len(old), volume)
    _write_data_byte(changed, events.body[rows], 1, scaled.clip(0, 127).astype(np.uint8))
    first = int(track.notes[0, 0]) if len(track) else 0
    if (events.tick[rows] <= first).any():
        return changed.tobytes()
    message = bytes([0xB0 | track.channel, _VOLUME, volume])
    return _with_first_event(file, changed.tobytes(), track.chunk or 0, message)


def _contents(events: Events, kind: int) -> list[tuple[int, int]]:
    """Return start and end of the contents of all meta events of one type."""
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


def _write_data_byte(
    data: NDArray[np.uint8], bodies: NDArray[np.int32], which: int, values: NDArray[np.uint8]
) -> None:
    """Set the first (0) or second (1) data byte of channel messages."""
    has_status = data[bodies] >= 0x80  # not with running status
    data[bodies + has_status + which] = values


def _with_first_event(file: MidiFile, data: bytes, chunk: int, event: bytes) -> bytes:
    """Return the file with an event, without its delta time, at the start of a track chunk."""
    track, event = file.tracks[chunk], b"\x00" + event
    size = (track.end - track.start + len(event)).to_bytes(4, "big")
    return data[: track.start - 4] + size + event + data[track.start :]
