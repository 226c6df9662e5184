"""Writing of scores as MIDI files, and encoding of events and chunks as bytes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import chunk_bytes
from tokenization.midi.events import DRUM_CHANNEL, NAME, TEMPO, TIME_SIGNATURE
from tokenization.midi.scan_numpy import END_OF_TRACK, META
from tokenization.score import Score, Ticks, Track, nearest_ratio

_DENOMINATORS: Final = tuple(1 << power for power in range(8))

# Order of events at one tick. The note-off of a note of length 0 comes after its note-on.
CLOSING, NOTE_OFF, SETTING, NOTE_ON, NOTE_OFF_AT_ONCE = range(5)


class NewEvents(NamedTuple):
    """Events to be written, ordered by tick, then rank, then position."""

    ticks: NDArray[np.int64]
    ranks: NDArray[np.int64]
    contents: list[bytes]
    """Status byte and data of each event."""

    @classmethod
    def one(cls, tick: int, rank: int, content: bytes) -> NewEvents:
        """A single event."""
        return cls(np.array([tick]), np.array([rank]), [content])


class Scale(NamedTuple):
    """Converts ticks between two resolutions; halves are rounded up."""

    numerator: int = 1
    denominator: int = 1

    def ticks(self, ticks: Ticks) -> Ticks:
        """Converts one time or an array of times."""
        return nearest_ratio(ticks * self.numerator, self.denominator)


def write_midi(score: Score) -> bytes:
    """MIDI file of format 1: a chunk of tempos and time signatures, then one chunk for each track.

    The same score gives the same bytes. A track keeps its channel unless another instrument uses
    it. From the sixteenth instrument on, channels are shared, with a program change before each
    note that needs one. Silence after the last note is written, but `read_midi` does not read it.
    If notes of one pitch overlap in a track, MIDI cannot represent which note-off belongs to which
    note; when read again, they end in the order in which they began.

    Raises:
        MidiError: MIDI cannot represent the resolution, a gap, a tempo or a time signature.
    """
    if score.ticks_per_beat > 0x7FFF:
        raise MidiError(
            f"the resolution is {score.ticks_per_beat} ticks per quarter note, expected at most "
            f"{0x7FFF}; use a coarser one"
        )
    scale = Scale()
    contents = [track_bytes(tempo_events(score, scale), score.end_ticks)]
    taken: dict[int, tuple[int, bool]] = {}
    written: dict[int, list[Track]] = {}
    channels: list[int] = []
    for track in score.tracks:
        channels.append(free_channel(track, taken))
        taken.setdefault(channels[-1], (track.program, track.is_drum))
    choices = program_choices(score.tracks, channels, scale)
    for track, channel, chosen in zip(score.tracks, channels, choices, strict=True):
        events = instrument_events(track, channel, 0)
        # Tracks on one channel share its controllers, so these are written only once.
        others = written.setdefault(channel, [])
        if not any(np.array_equal(other.controls, track.controls) for other in others):
            events.append(control_events(track, channel, scale))
        if not any(np.array_equal(other.bends, track.bends) for other in others):
            events.append(bend_events(track, channel, scale))
        others.append(track)
        events += [*chosen, note_events(track, channel, scale)]
        contents.append(track_bytes(events, 0))
    header = header_bytes(1, len(contents), score.ticks_per_beat)
    return b"".join([header, *(chunk_bytes(b"MTrk", content) for content in contents)])


def header_bytes(midi_format: int, num_tracks: int, division: int, rest: bytes = b"") -> bytes:
    """Header of a file; `rest` are further bytes of a header with more than the three numbers."""
    numbers = (midi_format, num_tracks, division)
    return chunk_bytes(b"MThd", b"".join(number.to_bytes(2, "big") for number in numbers) + rest)


@lru_cache(maxsize=4096)
def variable_length(value: int) -> bytes:
    """Encodes a number as a variable-length quantity.

    Raises:
        MidiError: the number has more than 28 bits.
    """
    if value < 0x80:
        return bytes((value,))
    if value > 0x0FFFFFFF:
        raise MidiError(
            f"the score has a gap of {value} ticks, expected at most {0x0FFFFFFF}; shorten the gap"
        )
    quantity = [value & 0x7F]
    while value := value >> 7:
        quantity.append(value & 0x7F | 0x80)
    return bytes(reversed(quantity))


def meta(kind: int, content: bytes) -> bytes:
    """Bytes of a meta event."""
    return bytes((META, kind)) + variable_length(len(content)) + content


def in_order(parts: list[NewEvents]) -> tuple[list[int], list[bytes]]:
    """Ticks and contents of all events, in the order in which they are written."""
    if not parts:
        return [], []
    ticks = np.concatenate([part.ticks for part in parts])
    order = np.lexsort((np.concatenate([part.ranks for part in parts]), ticks))
    contents = [content for part in parts for content in part.contents]
    return ticks[order].tolist(), [contents[at] for at in order.tolist()]


def timed(ticks: list[int], contents: list[bytes], now: int) -> bytes:
    """Bytes of events after the tick `now`, each with its delta time."""
    deltas = map(operator.sub, ticks, [now, *ticks[:-1]])
    return b"".join(chain.from_iterable(zip(map(variable_length, deltas), contents, strict=True)))


def track_bytes(parts: list[NewEvents], end_tick: int) -> bytes:
    """Content of a track chunk that ends with its last event, not before `end_tick`."""
    ticks, contents = in_order(parts)
    last = ticks[-1] if ticks else 0
    end = timed([max(end_tick, last)], [meta(END_OF_TRACK, b"")], last)
    return timed(ticks, contents, 0) + end


def tempo_events(score: Score, scale: Scale, after: int = -1) -> list[NewEvents]:
    """Events for the tempos and time signatures of a score after the tick `after`.

    Raises:
        MidiError: MIDI cannot represent a tempo or a time signature.
    """
    events: list[NewEvents] = []
    for tempo in score.tempos:
        if tempo.tick > after:
            microseconds = round(60e6 / tempo.bpm) if tempo.bpm > 0 else 0
            if not 0 < microseconds <= 0xFFFFFF:
                raise MidiError(
                    f"a tempo is {tempo.bpm:g} quarter notes per minute, expected 3.6 to 60,000,000"
                )
            content = meta(TEMPO, microseconds.to_bytes(3, "big"))
            events.append(NewEvents.one(scale.ticks(tempo.tick), CLOSING, content))
    for signature in score.time_signatures:
        if signature.tick > after:
            power = signature.denominator.bit_length() - 1
            if not (0 < signature.numerator < 256 and signature.denominator in _DENOMINATORS):
                raise MidiError(
                    f"a time signature is {signature.numerator}/{signature.denominator}, expected "
                    "a numerator of 1 to 255, and a power of two up to 128 as denominator"
                )
            content = meta(TIME_SIGNATURE, bytes((signature.numerator, power, 24, 8)))
            events.append(NewEvents.one(scale.ticks(signature.tick), CLOSING, content))
    return events


def instrument_events(track: Track, channel: int, tick: int) -> list[NewEvents]:
    """Events for the name of a track at its start, if it has one, and for its program at a tick."""
    name = [NewEvents.one(0, CLOSING, meta(NAME, track.name.encode()))] if track.name else []
    return [*name, program_event(track, channel, tick)]


def program_event(track: Track, channel: int, tick: int) -> NewEvents:
    """Event that selects a track's program."""
    return NewEvents.one(tick, SETTING, bytes((0xC0 | channel, track.program)))


def note_events(track: Track, channel: int, scale: Scale) -> NewEvents:
    """Note-ons and note-offs of a track."""
    onset, duration, pitch, velocity = track.notes.T
    begins, ends = scale.ticks(onset), scale.ticks(onset + duration)
    rank = np.where(ends > begins, NOTE_OFF, NOTE_OFF_AT_ONCE)
    return NewEvents(
        np.concatenate([begins, ends]),
        np.concatenate([np.full(len(rank), NOTE_ON), rank]),
        _messages(0x90 | channel, pitch, velocity)
        + _messages(0x80 | channel, pitch, np.full(len(rank), 64)),
    )


def control_events(track: Track, channel: int, scale: Scale) -> NewEvents:
    """Controllers of a track."""
    tick, control, value = track.controls.T
    ranks = np.full(len(tick), SETTING)
    return NewEvents(scale.ticks(tick), ranks, _messages(0xB0 | channel, control, value))


def bend_events(track: Track, channel: int, scale: Scale) -> NewEvents:
    """Pitch bends of a track."""
    tick, bend = track.bends[:, 0], track.bends[:, 1] + 8192
    ranks = np.full(len(tick), SETTING)
    return NewEvents(scale.ticks(tick), ranks, _messages(0xE0 | channel, bend & 127, bend >> 7))


def _messages(status: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> list[bytes]:
    table = np.stack([np.full(len(first), status), first, second], axis=1)
    if table.size and (table[:, 1:].min() < 0 or table[:, 1:].max() > 127):
        raise ValueError("a pitch, velocity, controller or bend is outside the range of MIDI")
    joined = table.astype(np.uint8).tobytes()
    return [joined[at : at + 3] for at in range(0, len(joined), 3)]


def free_channel(track: Track, taken: dict[int, tuple[int, bool]]) -> int:
    """The track's own channel, or the first one that no other instrument uses.

    If all are in use, instruments share channels; see `program_choices`. Only drums use the drum
    channel.

    Args:
        track: the track to be written.
        taken: program and drum flag of the channels in use.
    """
    if track.is_drum:
        return DRUM_CHANNEL
    wanted = (track.program, False)
    own = 0 if track.channel == DRUM_CHANNEL else track.channel
    for channel in (own, *range(16)):
        if channel != DRUM_CHANNEL and taken.get(channel, wanted) == wanted:
            return channel
    return own


def program_choices(
    tracks: Sequence[Track], channels: Sequence[int], scale: Scale
) -> list[list[NewEvents]]:
    """Program changes that each track needs because it shares its channel.

    A channel has one program at a time. After a track on the channel has played with another
    program, the next track selects its own again.
    """
    choices: list[list[NewEvents]] = [[] for _ in tracks]
    for channel in set(channels):
        members = [at for at, of_track in enumerate(channels) if of_track == channel]
        if len({tracks[at].program for at in members}) < 2:
            continue
        onsets = np.concatenate([tracks[at].notes[:, 0] for at in members])
        counts = [len(tracks[at]) for at in members]
        owners = np.repeat(np.array(members, np.int64), counts)
        order = np.argsort(onsets, kind="stable")
        programs = np.array([track.program for track in tracks], np.int64)[owners[order]]
        rows = order[np.flatnonzero(np.diff(programs, prepend=-1))]
        places: list[int] = owners[rows].tolist()
        for onset, at in zip(onsets[rows].tolist(), places, strict=True):
            choices[at].append(program_event(tracks[at], channel, scale.ticks(onset)))
    return choices
