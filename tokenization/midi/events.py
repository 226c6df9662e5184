"""Scanning of the events of a MIDI file into columns, and their interpretation.

The scanner takes time linear in the number of bytes: regular expressions find runs of channel
messages, and NumPy parses these for all tracks at once. Source: The Complete MIDI 1.0 Detailed
Specification (MMA, 1996), Standard MIDI Files 1.0.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import Chunk, MidiFile

MAX_OTHERS: Final = 250_000
"""Maximum number of events that are not channel messages, each of which is parsed separately. Music
has at most some thousands of tempos, time signatures, texts and system exclusive messages.
"""
MAX_TICK: Final = 2**31 - 1
"""Maximum time; larger ones overflow in other programs."""

DRUM_CHANNEL: Final = 9

META: Final = 0xFF
# Types of meta events
NAME: Final = 0x03
END_OF_TRACK: Final = 0x2F
TEMPO: Final = 0x51
TIME_SIGNATURE: Final = 0x58

# Delta times, each with a message of one size, with its own status byte or the running status.
# Matches are unambiguous. Runs are bounded because each repetition of a group takes memory. A
# possessive group would not, but it reads a byte too many in Python 3.11.2 (Debian 12).
_QUANTITY = re.compile(rb"[\x80-\xff]{0,3}[\x00-\x7f]")
_TWO_DATA_BYTES = re.compile(
    rb"(?:[\x80-\xff]{0,3}[\x00-\x7f][\x80-\xbf\xe0-\xef]?[\x00-\x7f]{2}){1,4096}"
)
_ONE_DATA_BYTE = re.compile(rb"(?:[\x80-\xff]{0,3}[\x00-\x7f][\xc0-\xdf]?[\x00-\x7f]){1,4096}")
# System common and real-time messages are not allowed in files, but some recorders write them.
_SYSTEM_DATA_BYTES: Final = {0xF1: 1, 0xF2: 2, 0xF3: 1} | dict.fromkeys(
    (0xF4, 0xF5, 0xF6, *range(0xF8, META)), 0
)


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
    is_cut: bool
    """Whether the file is cut off within its last track."""


class _CutOffError(MidiError):
    """A track is cut off in the middle of an event."""


class _Scan:
    """Offsets of the events of a file: runs of channel messages, and single other events."""

    def __init__(self, file: MidiFile) -> None:
        self.file = file
        # Arrays rather than lists, since malicious files have millions of entries.
        self.two = array("q")  # starts and ends, alternating
        self.one = array("q")
        self.others = array("q")  # start, body, status, type and offset of the content, in turn
        self.track_ends: list[int] = []
        self.end_deltas: list[int] = []
        self.is_cut = False
        for index, chunk in enumerate(file.tracks):
            self.track_ends.append(chunk.start)
            try:
                self._track(index, chunk)
            except _CutOffError:
                if not chunk.missing:
                    raise
                # The file is cut off here; earlier events are kept.
                self.end_deltas.append(0)
                self.is_cut = True

    def _damaged(self, index: int, at: int, what: str, *, cut: bool = False) -> MidiError:
        error = _CutOffError if cut else MidiError
        return error(
            f"{self.file.name}: track {index + 1} is damaged at byte {at}: {what}; "
            "export or download the file again"
        )

    def _track(self, index: int, chunk: Chunk) -> None:
        data, at, end = self.file.data, chunk.start, chunk.end
        run: re.Pattern[bytes] | None = None
        while at < end:
            if run is not None and (stretch := run.match(data, at, end)):
                (self.two if run is _TWO_DATA_BYTES else self.one).extend(stretch.span())
                at = stretch.end()
                continue
            self.track_ends[index] = at
            body = self._after_quantity(index, at, end)
            if body == end:
                raise self._damaged(index, at, "found a time without an event", cut=True)
            status = data[body]
            if status < 0x80 and run is None:
                raise self._damaged(index, body, f"found {status:#04x}, expected a status byte")
            if status < 0xF0:
                expected = run
                if status >= 0x80:
                    expected = _ONE_DATA_BYTE if 0xC0 <= status < 0xE0 else _TWO_DATA_BYTES
                if expected is run or expected is None or expected.match(data, at, end) is None:
                    first = body if status < 0x80 else body + 1
                    missing = end - first < (1 if expected is _ONE_DATA_BYTE else 2)
                    raise self._damaged(
                        index,
                        body,
                        "a channel message is cut off or has a data byte over 127",
                        cut=missing and max(data[first:end], default=0) < 0x80,
                    )
                run = expected
                continue
            content, next_at = self._other(index, body, status, end)
            kind = data[body + 1] if status == META else 0
            if status == META and kind == END_OF_TRACK:
                self.end_deltas.append(variable_length_value(data[at:body]))
                return  # later bytes are not part of the track
            self.others.extend((at, body, status, kind, content))
            if len(self.others) > 5 * MAX_OTHERS:
                raise MidiError(
                    f"{self.file.name}: the file has more than {MAX_OTHERS:,} tempos, texts and "
                    "other events besides notes and controllers; remove some of them and export "
                    "the file again"
                )
            at = next_at
        self.track_ends[index] = end
        self.end_deltas.append(0)
        self.is_cut = chunk.missing > 0

    def _other(self, index: int, body: int, status: int, end: int) -> tuple[int, int]:
        """Start and end of the content of an event that is not a channel message."""
        if status in _SYSTEM_DATA_BYTES:
            content = body + 1
            next_at = content + _SYSTEM_DATA_BYTES[status]
        else:
            length_at = body + 2 if status == META else body + 1
            content = self._after_quantity(index, length_at, end)
            next_at = content + variable_length_value(self.file.data[length_at:content])
        if next_at > end:
            raise self._damaged(index, body, "an event is longer than its track", cut=True)
        return content, next_at

    def _after_quantity(self, index: int, at: int, end: int) -> int:
        """Offset after a variable-length quantity."""
        if at < end and self.file.data[at] < 0x80:
            return at + 1
        quantity = _QUANTITY.match(self.file.data, at, end)
        if quantity is None:
            raise self._damaged(
                index, at, "expected a number of at most four bytes", cut=end - at < 4
            )
        return quantity.end()


def variable_length_value(quantity: bytes) -> int:
    """Value of a variable-length quantity."""
    value = 0
    for byte in quantity:
        value = value << 7 | byte & 0x7F
    return value


def scan_events(file: MidiFile) -> Events:
    """Scans the events of all tracks of a file.

    Raises:
        MidiError: the bytes of a track are not events, or a time is later than `MAX_TICK`.
    """
    scan = _Scan(file)
    data = np.frombuffer(file.data, dtype=np.uint8)
    others = np.array(scan.others, dtype=np.int32).reshape(-1, 5).T
    tables = [
        _channel_messages(data, np.array(scan.two, dtype=np.int32), 2),
        _channel_messages(data, np.array(scan.one, dtype=np.int32), 1),
        np.stack([others[0], others[1], _times(data, others[0], others[1]), *others[2:]]),
    ]
    tables = [table for table in tables if table.size] or tables
    table = tables[0]
    if len(tables) > 1:
        table = np.concatenate(tables, axis=1)
        table = table[:, np.argsort(table[0], kind="stable")]
    del tables
    start, body, delta, status, first, second = table

    tracks = file.tracks
    chunk_starts = np.array([chunk.start for chunk in tracks], dtype=np.int64)
    track_ends = np.array(scan.track_ends, dtype=np.int64)
    track_rows = np.append(np.searchsorted(start, chunk_starts), len(start))
    chunk = np.repeat(np.arange(len(tracks)), np.diff(track_rows))
    elapsed = np.concatenate([[0], np.cumsum(delta, dtype=np.int64)])
    before = elapsed[track_rows[:-1]]
    tick = elapsed[1:] - before[chunk]
    end_ticks = elapsed[track_rows[1:]] - before + np.array(scan.end_deltas, dtype=np.int64)
    if int(end_ticks.max(initial=0)) > MAX_TICK:
        raise MidiError(
            f"{file.name}: the file ends at tick {int(end_ticks.max())}, expected at most "
            f"{MAX_TICK}; remove the gap in the music and export the file again"
        )

    # The first message of a track has a status byte, so forward filling never crosses tracks. Only
    # channel messages set the running status; as in all players, other events do not reset it.
    written = np.where((status > 0) & (status < 0xF0), np.arange(len(status)), 0)
    status = np.where(status == 0, status[np.maximum.accumulate(written)], status)
    columns = (start, body, tick, chunk, status, first, second)
    return Events(*columns, track_rows, track_ends, end_ticks, scan.is_cut)


def _times(
    data: NDArray[np.uint8], start: NDArray[np.int32], body: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Delta times stored in the file from `start` to `body`."""
    delta = data[body - 1].astype(np.int32)
    for more in (1, 2, 3):
        rows = np.flatnonzero(body - start > more)
        if not rows.size:
            break
        delta[rows] |= (data[body[rows] - 1 - more] & 0x7F).astype(np.int32) << (7 * more)
    return delta


def _channel_messages(
    data: NDArray[np.uint8], spans: NDArray[np.int32], data_bytes: int
) -> NDArray[np.int32]:
    """Table (6, n) of messages: start, body, delta time, status (0: running), two data bytes.

    In a run of messages of one size, each has the same number of bytes below 128: the last byte of
    its delta time, and its data. Counting these finds all messages at once.
    """
    starts, lengths = spans[0::2], spans[1::2] - spans[0::2]
    shift = np.repeat(starts - np.cumsum(lengths, dtype=np.int32) + lengths, lengths)
    places = np.arange(len(shift), dtype=np.int32) + shift
    low = places[data[places] < 0x80]
    size = data_bytes + 1
    time_end, first, last = low[0::size], low[1::size], low[data_bytes::size]
    table = np.empty((6, len(first)), dtype=np.int32)
    start, body = table[0], table[1]
    start[1:] = last[:-1] + 1
    start[np.searchsorted(time_end, starts)] = starts
    body[:] = time_end + 1
    table[2] = _times(data, start, body)
    table[3] = np.where(first > body, data[first - 1], 0)
    table[4] = data[first]
    table[5] = data[last] if data_bytes == 2 else 0
    return table


def meta_events(
    events: Events, kind: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Rows of the meta events of one type, and start and end of their contents in the file."""
    rows = np.flatnonzero((events.status == META) & (events.first == kind))
    chunk = events.chunk[rows]
    is_last = rows + 1 == events.track_rows[chunk + 1]
    following = events.start[np.minimum(rows + 1, len(events.start) - 1)]
    return rows, events.second[rows], np.where(is_last, events.track_ends[chunk], following)


def tempo_rows(file: MidiFile, events: Events) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the tempos, and their microseconds per quarter note; tempos of 0 are ignored."""
    rows, content, end = meta_events(events, TEMPO)
    rows, content = rows[end - content == 3], content[end - content == 3]
    data = np.frombuffer(file.data, dtype=np.uint8)
    high, middle, low = (data[content + at].astype(np.int64) for at in range(3))
    microseconds = high << 16 | middle << 8 | low
    return rows[microseconds > 0], microseconds[microseconds > 0]


def metre_rows(
    file: MidiFile, events: Events
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the valid time signatures, with numerators and denominators (n,)."""
    rows, content, end = meta_events(events, TIME_SIGNATURE)
    rows, content = rows[end - content >= 2], content[end - content >= 2]
    data = np.frombuffer(file.data, dtype=np.uint8)
    numerator, power = data[content].astype(np.int64), data[content + 1].astype(np.int64)
    is_metre = (numerator > 0) & (power < 8)
    return rows[is_metre], numerator[is_metre], 1 << power[is_metre]


def pair_notes(
    events: Events,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Rows where notes begin, rows where the same notes end, and rows of notes that never end.

    A note-off ends the earliest sounding note of its chunk, channel and pitch; without one it is
    ignored.
    """
    # Chunk, channel and pitch fit into 27 bits; int32 limits the memory for malicious files.
    kind = events.status & 0xF0
    rows = np.flatnonzero((kind == 0x80) | (kind == 0x90)).astype(np.int32)
    key = events.chunk[rows].astype(np.int32) << 11
    key |= (events.status[rows] & 0x0F) << 7 | events.first[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    del kind, order
    is_on = (events.status[rows] >= 0x90) & (events.second[rows] > 0)
    has_end, is_end = match_ends(key, is_on)
    begins = rows[is_on]
    return begins[has_end], rows[is_end], np.sort(begins[~has_end])


def match_ends(
    key: NDArray[np.integer], is_on: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each note-on has a note-off, (note-ons,), and whether each row is one of these, (n,).

    Rows are note-ons (`is_on`) and note-offs, sorted by `key`, then by time. A note-off ends the
    earliest sounding note of its key.
    """
    is_new = np.diff(key, prepend=np.int32(-1)) != 0
    group = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
    # Within a key, the number of sounding notes goes up by one at a note-on and down by one at a
    # note-off. A note-off has no note if it reaches a new minimum below 0.
    walk = np.cumsum(np.where(is_on, np.int8(1), np.int8(-1)), dtype=np.int32)
    first = np.flatnonzero(is_new)
    walk -= np.concatenate([[0], walk])[first].astype(np.int32)[group]
    # Offsets put each key far below the previous one, so that one running minimum works for all.
    depth = (2 * len(key) + 2) * group.astype(np.int64)
    low = walk - depth
    np.minimum.accumulate(low, out=low)
    low += depth
    np.minimum(low, 0, out=low)
    low_before = np.concatenate([[0], low[:-1]])
    low_before[first] = 0
    is_end = ~is_on & (low == low_before)
    del walk, depth, low, low_before
    # Each key now has at most as many note-offs as notes, both in order of time.
    num_ends = np.bincount(group[is_end], minlength=len(first))
    on_group = group[is_on]
    rank = np.arange(len(on_group)) - np.searchsorted(on_group, on_group)
    return rank < num_ends[on_group], is_end


def programs_at(
    events: Events,
    chunk: NDArray[np.int64],
    channel: NDArray[np.int32] | NDArray[np.int64],
    row: NDArray[np.int32] | NDArray[np.int64],
    tick: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Program of a channel in a chunk before `row` of the chunk's events; all arrays (n,).

    It is the last program set in the chunk. If the chunk sets none on the channel, it is the last
    one set in any other chunk up to `tick`, or 0 if there is none.
    """
    changes = np.flatnonzero((events.status & 0xF0) == 0xC0)
    programs = np.zeros(len(row), dtype=np.int64)
    if not changes.size:
        return programs
    change_channel = events.status[changes].astype(np.int64) & 15
    change_tick = events.tick[changes]
    place, change_place = chunk * 16 + channel, events.chunk[changes] * 16 + change_channel
    size = len(events.tick) + 1
    order = np.argsort(change_place, kind="stable")
    found = np.searchsorted((change_place * size + changes)[order], place * size + row) - 1
    own_places = change_place[order]
    is_own = (found >= 0) & (own_places[found] == place)
    programs = np.where(is_own, events.first[changes][order][found], 0)

    at = np.minimum(np.searchsorted(own_places, place), len(own_places) - 1)
    is_elsewhere = own_places[at] != place
    if is_elsewhere.any():
        order = np.lexsort((change_tick, change_channel))
        keys = (change_channel << 32 | change_tick)[order]
        wanted = channel.astype(np.int64) << 32 | tick
        found = np.searchsorted(keys, wanted, side="right") - 1
        is_elsewhere &= (found >= 0) & (change_channel[order][found] == channel)
        programs = np.where(is_elsewhere, events.first[changes][order][found], programs)
    return programs


def rows_in_time(events: Events, status: int, until: int = MAX_TICK) -> NDArray[np.int64]:
    """Rows with a status byte up to the tick `until`, over all chunks, sorted by time."""
    rows = np.flatnonzero((events.status == status) & (events.tick <= until))
    return rows[np.argsort(events.tick[rows], kind="stable")]
