"""Writing of scores as MIDI files, and encoding of events and chunks as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi import event_bytes
from tokenization.midi.chunks import chunk_bytes
from tokenization.midi.event_bytes import END_OF_TRACK, META
from tokenization.midi.events import DRUM_CHANNEL, NAME, TEMPO, TIME_SIGNATURE
from tokenization.score import Score, Ticks, Track, all_notes, nearest_ratio

_DENOMINATORS: Final = tuple(1 << power for power in range(8))

_TICK_BITS: Final = 36

# Order of new events at one tick. The note-off of a note of length 0 comes after its note-on. All
# but BEFORE, for a note-off, come after the events that a file has at the tick.
BEFORE, CLOSING, NOTE_OFF, SETTING, NOTE_ON, NOTE_OFF_AT_ONCE = range(6)


class NewEvent(NamedTuple):
    """One event to be written."""

    tick: int
    rank: int
    content: bytes
    """Status byte and data."""


class NewEvents(NamedTuple):
    """Events to be written, ordered by tick, then rank, then position; columns (n,) int64."""

    ticks: NDArray[np.int64]
    ranks: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """Number of bytes of each event."""
    content: NDArray[np.uint8]
    """Status byte and data of all events, concatenated."""

    @classmethod
    def one(cls, tick: int, rank: int, content: bytes) -> NewEvents:
        """Return a single event."""
        return cls.of([NewEvent(tick, rank, content)])

    @classmethod
    def of(cls, events: Sequence[NewEvent]) -> NewEvents:
        """Return some events in their order."""
        rows = [(event.tick, event.rank, len(event.content)) for event in events]
        ticks, ranks, sizes = np.array(rows, np.int64).reshape(-1, 3).T
        content = b"".join([event.content for event in events])
        return cls(ticks, ranks, sizes, np.frombuffer(content, np.uint8))

    @classmethod
    def messages(
        cls,
        ticks: NDArray[np.int64],
        ranks: NDArray[np.int64],
        status: NDArray[np.int64] | int,
        first: NDArray[np.int64],
        second: NDArray[np.int64] | int,
    ) -> NewEvents:
        """Return the channel messages (n,) with two data bytes.

        Raises ValueError if a data byte is over 127.
        """
        if ((first | second) >> 7).any():  # also of negative numbers
            raise ValueError("a pitch, velocity, controller or bend is outside the range of MIDI")
        table = np.empty((len(ticks), 3), np.uint8)
        table[:, 0], table[:, 1], table[:, 2] = status, first, second
        return cls(ticks, ranks, np.full(len(ticks), 3), table.reshape(-1))

    @classmethod
    def joined(cls, parts: Sequence[NewEvents]) -> NewEvents:
        """Return the events of all parts, at least one, concatenated."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class Ordered(NamedTuple):
    """Events in the order in which they are written; columns (n,) int64."""

    ticks: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    content: NDArray[np.uint8]
    """The bytes of an event are `sizes` bytes of `content` from `starts` on."""
    is_before: NDArray[np.bool_]
    """Which events (n,) have the rank `BEFORE`."""

    @classmethod
    def of(cls, parts: Sequence[NewEvents], tracks: NDArray[np.int64] | int = 0) -> Ordered:
        """Return the events ordered by `tracks` (n,), then tick, rank and position."""
        if not parts:
            nothing = np.zeros(0, np.int64)
            return cls(nothing, nothing, nothing, np.zeros(0, np.uint8), np.zeros(0, bool))
        ticks, ranks, sizes, content = NewEvents.joined(parts)
        if int(ticks.min(initial=0)) >= 0 and int(ticks.max(initial=0)) < 1 << _TICK_BITS:
            order = np.argsort((tracks << _TICK_BITS | ticks) << 3 | ranks, kind="stable")
        else:
            order = np.lexsort((ranks, ticks, np.broadcast_to(tracks, ticks.shape)))
        starts = np.cumsum(sizes) - sizes
        is_before = (ranks == BEFORE)[order]
        return cls(ticks[order], starts[order], sizes[order], content, is_before)


class Scale(NamedTuple):
    """Converts ticks between two resolutions; halves are rounded up."""

    numerator: int = 1
    denominator: int = 1

    def ticks(self, ticks: Ticks) -> Ticks:
        """Convert one time or an array of times."""
        return nearest_ratio(ticks * self.numerator, self.denominator)


def write_midi(score: Score) -> bytes:
    """Return a MIDI file of format 1: a chunk of tempos and time signatures, then one per track.

    The same score gives the same bytes. A track keeps its channel unless another instrument uses
    it. From the sixteenth instrument on, channels are shared, with a program change before each
    note that needs one. Rests at the end are written as the time of an end-of-track.
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
    taken: dict[int, tuple[int, bool]] = {}
    written: dict[int, list[Track]] = {}
    channels: list[int] = []
    for track in score.tracks:
        channels.append(free_channel(track, taken))
        taken.setdefault(channels[-1], (track.program, track.is_drum))
    # of each kind, the events of all tracks at once, since each call of NumPy takes time
    singles = [tempo_events(score, scale)]
    singles += map(instrument_events, score.tracks, channels, repeat(0))
    parts, owners = [NewEvents.of(list(chain(*singles)))], [_owners(map(len, singles))]
    for at, (track, channel) in enumerate(zip(score.tracks, channels, strict=True), 1):
        events: list[NewEvents] = []
        # Tracks on one channel share its controllers, so these are written only once.
        others = written.setdefault(channel, [])
        if len(track.controls) and not any(
            np.array_equal(other.controls, track.controls) for other in others
        ):
            events.append(control_events(track, channel, scale))
        if len(track.bends) and not any(
            np.array_equal(other.bends, track.bends) for other in others
        ):
            events.append(bend_events(track, channel, scale))
        others.append(track)
        parts += events
        owners += [np.full(len(event.ticks), at) for event in events]
    choices = [[], *program_choices(score.tracks, channels, scale)]
    if any(choices):
        parts.append(NewEvents.of(list(chain(*choices))))
        owners.append(_owners(map(len, choices)))
    of_notes = _owners([0, *map(len, score.tracks)])
    parts += note_events(score.tracks, channels, scale)
    owners += [of_notes, of_notes]
    contents = tracks_bytes(parts, np.concatenate(owners), len(channels) + 1, score.end_ticks)
    header = header_bytes(1, len(contents), score.ticks_per_beat)
    return b"".join([header, *(chunk_bytes(b"MTrk", content) for content in contents)])


def _owners(counts: Iterable[int]) -> NDArray[np.int64]:
    """Return the number of the track of each event; track i has `counts[i]` events in a row."""
    number = np.array([*counts], np.int64)
    return np.arange(len(number)).repeat(number)


def header_bytes(midi_format: int, num_tracks: int, division: int, rest: bytes = b"") -> bytes:
    """Return a file's header; `rest` are bytes of a header with more than the three numbers."""
    numbers = (midi_format, num_tracks, division)
    return chunk_bytes(b"MThd", b"".join(number.to_bytes(2, "big") for number in numbers) + rest)


@lru_cache(maxsize=4096)
def variable_length(value: int) -> bytes:
    """Encode a number as a variable-length quantity.

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
    """Return the bytes of a meta event."""
    return bytes((META, kind)) + variable_length(len(content)) + content


def timed(events: Ordered, before: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Return the bytes of events with their delta times, and the offset of each, (n + 1,).

    `before` (n,) are the times of the previous events in the file. Raises MidiError if a gap is too
    long.
    """
    longest = int((events.ticks - before).max(initial=0))
    variable_length(longest)  # raises the error
    event_bytes.prepare(len(events.content))
    written, offsets = event_bytes.write_events(events.ticks, before, *events[1:4])
    return written.tobytes(), offsets


def end_of_track(delta: int) -> bytes:
    """Return the bytes of an end-of-track after a delta time."""
    return variable_length(delta) + meta(END_OF_TRACK, b"")


def tracks_bytes(
    parts: Sequence[NewEvents], owners: NDArray[np.int64], num_tracks: int, end_tick: int = 0
) -> list[bytes]:
    """Return contents of track chunks that end with their events, the first from `end_tick` on.

    All are written at once, since each call of NumPy takes time. `owners` are the numbers of the
    tracks of all events, in the order of `parts`.
    """
    counts: list[int] = np.bincount(owners, minlength=num_tracks).tolist()
    edges = [0, *accumulate(counts)]
    events = Ordered.of(parts, owners)
    before = np.append(0, events.ticks)[:-1]
    before[[edge for edge in edges[:-1] if edge < edges[-1]]] = 0
    content, offsets = timed(events, before)
    places: list[int] = offsets[edges].tolist()
    contents: list[bytes] = []
    for at, count in enumerate(counts):
        last = int(events.ticks[edges[at + 1] - 1]) if count else 0
        end = end_of_track(max(end_tick - last, 0) if at == 0 else 0)
        contents.append(content[places[at] : places[at + 1]] + end)
    return contents


def tempo_events(score: Score, scale: Scale, after: int = -1) -> list[NewEvent]:
    """Return the events for the tempos and time signatures of a score after the tick `after`.

    Raises:
        MidiError: MIDI cannot represent a tempo or a time signature.
    """
    events: list[NewEvent] = []
    for tempo in score.tempos:
        if tempo.tick > after:
            microseconds = round(60e6 / tempo.bpm) if tempo.bpm > 0 else 0
            if not 0 < microseconds <= 0xFFFFFF:
                raise MidiError(
                    f"a tempo is {tempo.bpm:g} quarter notes per minute, expected 3.6 to 60,000,000"
                )
            content = meta(TEMPO, microseconds.to_bytes(3, "big"))
            events.append(NewEvent(scale.ticks(tempo.tick), CLOSING, content))
    for signature in score.time_signatures:
        if signature.tick > after:
            power = signature.denominator.bit_length() - 1
            if not (0 < signature.numerator < 256 and signature.denominator in _DENOMINATORS):
                raise MidiError(
                    f"a time signature is {signature.numerator}/{signature.denominator}, expected "
                    "a numerator of 1 to 255, and a power of two up to 128 as denominator"
                )
            content = meta(TIME_SIGNATURE, bytes((signature.numerator, power, 24, 8)))
            events.append(NewEvent(scale.ticks(signature.tick), CLOSING, content))
    return events


def instrument_events(track: Track, channel: int, tick: int) -> list[NewEvent]:
    """Return events for the name of a track at its start, if any, and its program at a tick."""
    name = [NewEvent(0, CLOSING, meta(NAME, track.name.encode()))] if track.name else []
    return [*name, program_event(track, channel, tick)]


def program_event(track: Track, channel: int, tick: int) -> NewEvent:
    """Return the event that selects a track's program."""
    return NewEvent(tick, SETTING, bytes((0xC0 | channel, track.program)))


def note_events(
    tracks: Sequence[Track], channels: Sequence[int], scale: Scale
) -> tuple[NewEvents, NewEvents]:
    """Return the note-ons and note-offs of all tracks, track by track."""
    onset, duration, pitch, velocity = all_notes(tracks).T
    begins, ends = scale.ticks(onset), scale.ticks(onset + duration)
    channel = np.array(channels, np.int64).repeat([len(track) for track in tracks])
    ranks = np.where(ends > begins, NOTE_OFF, NOTE_OFF_AT_ONCE)
    ons = NewEvents.messages(begins, np.full(len(ranks), NOTE_ON), 0x90 | channel, pitch, velocity)
    offs = NewEvents.messages(ends, ranks, 0x80 | channel, pitch, 64)
    return ons, offs


def control_events(track: Track, channel: int, scale: Scale) -> NewEvents:
    """Return the controllers of a track."""
    tick, control, value = track.controls.T
    ranks = np.full(len(tick), SETTING)
    return NewEvents.messages(scale.ticks(tick), ranks, 0xB0 | channel, control, value)


def bend_events(track: Track, channel: int, scale: Scale) -> NewEvents:
    """Return the pitch bends of a track."""
    tick, bend = track.bends[:, 0], track.bends[:, 1] + 8192
    ranks = np.full(len(tick), SETTING)
    return NewEvents.messages(scale.ticks(tick), ranks, 0xE0 | channel, bend & 127, bend >> 7)


def free_channel(track: Track, taken: Mapping[int, tuple[int, bool]]) -> int:
    """Return the track's own channel, or the first one that no other instrument uses.

    If all are in use, instruments share channels; see `program_choices`. Drums use the drum
    channel, unless a melody does, and no other new track uses it.

    Args:
        track: the track to be written.
        taken: program and drum flag of the channels in use.
    """
    if track.is_drum:
        return drum_channel(taken)
    instrument = (track.program, False)
    usual = 0 if track.channel == DRUM_CHANNEL else track.channel
    for channel in (usual, *range(16)):
        if channel != DRUM_CHANNEL and taken.get(channel, instrument) == instrument:
            return channel
    return usual


def drum_channel(taken: Mapping[int, tuple[int, bool]]) -> int:
    """Return the channel for new drums: the drum channel, or another with drums if it has a melody.

    Raises MidiError if there is none.
    """
    if taken.get(DRUM_CHANNEL, (0, True))[1]:
        return DRUM_CHANNEL
    for channel, (_, is_drum) in sorted(taken.items()):
        if is_drum:
            return channel
    raise MidiError(
        "channel 10 has a melody, expected a free one for new drums; move the melody to another "
        "channel, or write no drums"
    )


def program_choices(
    tracks: Sequence[Track], channels: Sequence[int], scale: Scale
) -> list[list[NewEvent]]:
    """Return the program changes that each track needs because it shares its channel.

    A channel has one program at a time. After a track on the channel has played with another
    program, the next track selects its own again.
    """
    choices: list[list[NewEvent]] = [[] for _ in tracks]
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
