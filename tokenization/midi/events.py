"""The events of a MIDI file as columns, and their interpretation.

Source: The Complete MIDI 1.0 Detailed Specification (MMA, 1996), Standard MIDI Files 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi import event_bytes
from tokenization.midi.chunks import MidiFile
from tokenization.midi.event_bytes import (
    CUT_EVENT,
    CUT_MESSAGE,
    CUT_NUMBER,
    CUT_TIME,
    LONG_NUMBER,
    META,
    NO_STATUS,
    OPEN,
)
from tokenization.midi.mpe import find_homes

MAX_OTHERS: Final = 250_000
"""Maximum number of events that are not channel messages, and of damaged channel messages. Music
has at most some thousands of tempos, time signatures, texts and system exclusive messages.
"""
MAX_TICK: Final = 2**31 - 1
"""Maximum time; larger ones overflow in other programs."""

DRUM_CHANNEL: Final = 9
_LATE_PROGRAM: Final = 4
"""A channel's first program counts for its first notes if it comes at most this part of a quarter
note after the first one: devices and programs often write it a few ticks late."""

# Types of meta events
NAME: Final = 0x03
TEMPO: Final = 0x51
TIME_SIGNATURE: Final = 0x58


@dataclass(frozen=True)
class Events:
    """The events of all tracks in file order, one row each, without the ends of tracks.

    Columns are (n,). `start` and `body` are the offsets in the file of an event's delta time and of
    the bytes after it. `tick` is its time from the start of its track, `chunk` the index of its
    track chunk, and `status` its status byte (the running status if it has none). `first` and
    `second` are its data bytes; for a meta event, its type and the offset of its content.
    """

    start: NDArray[np.int32]
    body: NDArray[np.int32]
    tick: NDArray[np.int64]
    chunk: NDArray[np.int64]
    status: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    track_rows: NDArray[np.int64]
    """(tracks + 1,): the first row of each track."""
    track_ends: NDArray[np.int64]
    """(tracks,): offset in the file where the events of a track end, before its end-of-track."""
    end_ticks: NDArray[np.int64]
    """(tracks,): the time of each end-of-track."""
    endings: NDArray[np.int64]
    """(tracks, 2): how the events of each track end, and the offset of the first byte that cannot
    be read."""
    clipped: int
    """Number of data bytes over 127, which are read as 127."""
    division: int
    """Ticks per quarter note."""

    @cached_property
    def metas(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Rows of the meta events, and start and end of their contents in the file."""
        rows = np.flatnonzero(self.status == META)
        chunk = self.chunk[rows]
        is_last = rows + 1 == self.track_rows[chunk + 1]
        following = self.start[np.minimum(rows + 1, len(self.start) - 1)]
        ends = np.where(is_last, self.track_ends[chunk], following)
        return rows, self.second[rows], ends

    @cached_property
    def homes(self) -> NDArray[np.int64]:
        """The place of the instrument of each channel (tracks, 16); see `find_homes`."""
        return find_homes(self)

    @cached_property
    def openings(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the first note and the first program of each channel (tracks, 16), if it is late.

        Otherwise, both are -1.
        """
        kind = self.status & 0xF0
        note = self._first_rows((kind == 0x90) & (self.second > 0))
        program = self._first_rows(kind == 0xC0)
        is_late = (note >= 0) & (note < program)
        delay = self.tick[program[is_late]] - self.tick[note[is_late]]
        is_late[is_late] = _LATE_PROGRAM * delay <= self.division
        return np.where(is_late, note, -1), np.where(is_late, program, -1)

    def _first_rows(self, is_kind: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the row of the first event of a kind on each channel (tracks, 16).

        It is -1 if there is none.
        """
        rows = np.full(self.homes.shape, -1, np.int64)
        of_kind = np.flatnonzero(is_kind)[::-1]  # the first one is written last
        rows[self.chunk[of_kind], self.status[of_kind] & 15] = of_kind
        return rows

    @cached_property
    def members(self) -> frozenset[int]:
        """Channels on which all notes belong to the instrument of another channel."""
        ons = ((self.status & 0xF0) == 0x90) & (self.second > 0)
        chunk, channel = self.chunk[ons], self.status[ons] & 15
        is_own = (self.homes[chunk, channel] & 15) == channel
        channels = np.nonzero(self.homes != np.arange(self.homes.size).reshape(-1, 16))[1]
        return frozenset(channels.tolist()).difference(channel[is_own].tolist())

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Whether all events of each track can be read, (tracks,)."""
        return self.endings[:, 0] <= OPEN


def scan_events(file: MidiFile) -> Events:
    """Scan the events of all tracks of a file.

    Of a track with bytes that are not events, the part before them is read.

    Raises:
        MidiError: the file has too many events, or a time is later than `MAX_TICK`.
    """
    spans = np.array([(chunk.start, chunk.end) for chunk in file.tracks], np.int64)
    event_bytes.prepare(len(file.data))
    scan = event_bytes.scan(file.data, spans, MAX_OTHERS)
    if scan.singles > MAX_OTHERS:
        raise MidiError(
            f"{file.name}: the file has more than {MAX_OTHERS:,} tempos, texts and other events "
            "besides notes and controllers; remove some of them and export the file again"
        )
    rows, ends, end_ticks, *endings = scan.tracks.T
    rows = np.append(rows, len(scan.start))
    endings = np.stack(endings, axis=1)
    events = Events(*scan[:7], rows, ends, end_ticks, endings, scan.clipped, division=file.division)
    if (end := int(end_ticks.max())) > MAX_TICK:
        raise too_long(
            file, events, f"the file ends at tick {end:,}, expected at most {MAX_TICK:,}"
        )
    return events


def describe_damage(file: MidiFile, events: Events) -> str:
    """Describe what of a file cannot be read, or is read differently; empty if nothing."""
    clauses = list(file.damage)
    last = file.tracks[-1]
    damaged: list[str] = []
    for index, (how, place) in enumerate(events.endings.tolist()):
        is_cut = index == len(file.tracks) - 1 and last.missing > 0
        if is_cut and (how == OPEN or how >= CUT_TIME):
            size = last.end - last.start + last.missing
            read = int(events.track_ends[-1]) - last.start
            clauses.append(
                f"the file is cut off in track {index + 1}, of which {read:,} of {size:,} bytes "
                "can be read"
            )
        elif how > OPEN:
            what = _PROBLEMS[how].format(file.data[place : place + 1].hex())
            damaged.append(f"track {index + 1} is damaged at byte {place}: {what}")
    if damaged:
        others = len(damaged) - 1
        more = f" (and {others} other track{'s' * (others > 1)})" if others else ""
        clauses.append(damaged[0] + more)
    if events.clipped:
        is_one = events.clipped == 1
        clauses.append(
            f"{events.clipped:,} data byte{'' if is_one else 's'} over 127 "
            f"{'is' if is_one else 'are'} read as 127"
        )
    return ", and ".join(clauses)


_PROBLEMS: Final = {
    NO_STATUS: "found 0x{}, expected a status byte",
    LONG_NUMBER: "expected a number of at most four bytes",
    CUT_TIME: "found a time without an event",
    CUT_MESSAGE: "a channel message is cut off",
    CUT_EVENT: "an event is longer than its track",
    CUT_NUMBER: "a number is cut off",
}


def too_long(file: MidiFile, events: Events, problem: str) -> MidiError:
    """Return the error for a time so late that the file is damaged, or its music has a gap."""
    damage = describe_damage(file, events)
    cause = (
        f"the file is damaged ({damage}); export or download it again"
        if damage
        else "the file is damaged, or its music has a gap; export it again without the gap"
    )
    return MidiError(f"{file.name}: {problem}: {cause}")


def meta_events(
    events: Events, kind: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return rows of the meta events of a type, and start and end of their contents in the file."""
    rows, starts, ends = events.metas
    is_kind = events.first[rows] == kind
    return rows[is_kind], starts[is_kind], ends[is_kind]


def tempo_rows(file: MidiFile, events: Events) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of the tempos, and their microseconds per quarter; tempos of 0 are ignored."""
    data = np.frombuffer(file.data, dtype=np.uint8)
    rows, content = _contents(events, TEMPO, 3, 3)
    high, middle, low = (data[content + at].astype(np.int64) for at in range(3))
    microseconds = high << 16 | middle << 8 | low
    is_tempo = microseconds > 0
    return rows[is_tempo], microseconds[is_tempo]


def metre_rows(
    file: MidiFile, events: Events
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the valid time signatures, with numerators and denominators (n,)."""
    data = np.frombuffer(file.data, dtype=np.uint8)
    rows, content = _contents(events, TIME_SIGNATURE, 2, 1 << 32)
    numerator, power = data[content].astype(np.int64), data[content + 1].astype(np.int64)
    is_metre = (numerator > 0) & (power < 8)
    return rows[is_metre], numerator[is_metre], 1 << power[is_metre]


def _contents(
    events: Events, kind: int, least: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return rows of the meta events with `least` to `most` bytes of content, and their starts."""
    rows, starts, ends = meta_events(events, kind)
    sizes = ends - starts
    fits = (sizes >= least) & (sizes <= most)
    return rows[fits], starts[fits]


def pair_notes(
    events: Events,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return rows where notes begin, rows where they end, and rows of notes that never end.

    The first and the last are ascending. A note-off ends the earliest sounding note of its chunk,
    channel and pitch; without one it is ignored.
    """
    return event_bytes.pair_notes(events.chunk, events.status, events.first, events.second)


def note_table(
    events: Events, begins: NDArray[np.int32], ends: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the notes (n, 4) of the rows from `pair_notes`: onset, duration, pitch and velocity.

    The second array (n,) has their instruments: chunk times 2048, channel times 128, and program.
    Notes are sorted by instrument, then in the order of a track.
    """
    columns = events.tick, events.chunk, events.status, events.first, events.second
    notes, chunk, channel, row = event_bytes.note_table(*columns, begins, ends)
    instruments = instruments_of_rows(events, chunk, channel, row, notes[:, 0])
    order = _note_order(notes, instruments)
    return notes.take(order, axis=0), instruments.take(order)  # much faster than notes[order]


def _note_order(notes: NDArray[np.int64], instruments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order (n,) of notes (n, 4) by instrument, onset, pitch, duration and velocity.

    Notes are almost in order, so sorting twice by one number is faster than `np.lexsort`. Times
    have 31 bits, instruments 27.
    """
    onset, duration, pitch, velocity = notes.T
    by_time = instruments << 31 | onset
    order = by_time.argsort(kind="stable")
    by_time = by_time.take(order)
    chord = np.append(False, by_time[1:] != by_time[:-1]).cumsum()
    within = (pitch << 38 | duration << 7 | velocity).take(order)
    return order.take((chord << 45 | within).view(np.uint64).argsort(kind="stable"))


def instruments_of_rows(
    events: Events,
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
    tick: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the instruments of notes as in `note_table`, by the arguments of `programs_of_rows`.

    The member channels of a zone have the program of its manager channel if it sets one.
    """
    homes = events.homes[chunk, channel]
    status = events.status[(events.status & 0xF0) == 0xC0]
    has_program = np.isin(np.arange(16), status & 15)[homes & 15]
    channel = np.where(has_program, homes & 15, channel)
    return homes << 7 | programs_of_rows(events, chunk, channel, row, tick)


def programs_at(
    events: Events, chunk: int, channel: int, ticks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a channel's programs in a chunk after the events up to each of the ticks (n,)."""
    start, stop = events.track_rows[chunk : chunk + 2].tolist()
    rows = start + np.searchsorted(events.tick[start:stop], ticks, side="right")
    chunks, channels = np.full(len(rows), chunk), np.full(len(rows), channel)
    return programs_of_rows(events, chunks, channels, rows, ticks)


def programs_of_rows(
    events: Events,
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
    tick: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return programs of channels in chunks before rows of events, sorted by chunk, then by row.

    The first program of a channel counts from its first note on if it is late (`openings`). A
    channel without a program change in its chunk has the last program that any chunk sets up to
    `tick`, or 0; all arrays (n,).
    """
    columns = events.status, events.first, events.track_rows
    programs = event_bytes.chunk_programs(*columns, chunk, channel, row)
    note, program = (rows[chunk, channel] for rows in events.openings)
    is_early = (note <= row) & (row < program)
    programs[is_early] = events.first[program[is_early]]
    rows = np.flatnonzero(programs < 0)
    if not rows.size:
        return programs
    programs[rows] = 0
    changes = np.flatnonzero((events.status & 0xF0) == 0xC0)
    if changes.size:
        keys = (events.status[changes].astype(np.int64) & 15) << 32 | events.tick[changes]
        order = np.argsort(keys, kind="stable")
        keys, note_keys = keys[order], channel[rows] << 32 | tick[rows]
        last_change = np.searchsorted(keys, note_keys, side="right") - 1
        is_set = (last_change >= 0) & (keys[last_change] >> 32 == note_keys >> 32)
        programs[rows] = np.where(is_set, events.first[changes][order][last_change], 0)
    return programs


def rows_in_time(events: Events, status: int, until: int = MAX_TICK) -> NDArray[np.int64]:
    """Return rows with a status byte up to the tick `until`, over all chunks, sorted by time."""
    rows = np.flatnonzero((events.status == status) & (events.tick <= until))
    return rows[np.argsort(events.tick[rows], kind="stable")]


def rows_by_channel(
    events: Events, kind: int, until: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of messages of a kind (0x80 to 0xE0) up to a tick, by channel, then by time.

    The second array (17,) has the first of these rows for each channel, and their number.
    """
    rows = np.flatnonzero(((events.status & 0xF0) == kind) & (events.tick <= until))
    if not rows.size:
        return rows, np.zeros(17, np.int64)
    channel = events.status[rows].astype(np.int64) & 15
    order = np.argsort(channel << 32 | events.tick[rows], kind="stable")
    return rows[order], np.searchsorted(channel[order], np.arange(17))


def tables_by_channel(events: Events, kind: int, until: int) -> list[NDArray[np.int64]]:
    """Return the tables of the controllers (0xB0) or bends (0xE0) of all 16 channels up to a tick.

    The rows of a table are those of the tables of a `Track`.
    """
    rows, edges = rows_by_channel(events, kind, until)
    if kind == 0xB0:
        table = np.empty((len(rows), 3), np.int64)
        table[:, 1], table[:, 2] = events.first[rows], events.second[rows]
    else:
        table = np.empty((len(rows), 2), np.int64)
        table[:, 1] = (events.second[rows] << 7 | events.first[rows]) - 8192
    table[:, 0] = events.tick[rows]
    return np.split(table, edges[1:-1])
