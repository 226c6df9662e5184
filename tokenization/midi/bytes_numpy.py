"""Bytes of track chunks to events and back, by NumPy: the reference, used without Numba.

The scanner takes time linear in the number of bytes: regular expressions find runs of channel
messages, and NumPy parses these for all tracks at once. Source: The Complete MIDI 1.0 Detailed
Specification (MMA, 1996), Standard MIDI Files 1.0.
"""

from __future__ import annotations

import re
from array import array
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

META: Final = 0xFF
END_OF_TRACK: Final = 0x2F
LARGEST: Final = 127
"""Largest data byte. Larger ones, which some programs write, are read as this."""

# How the events of a track end: with an end-of-track, with its bytes, or with bytes that are not an
# event. From CUT_TIME on, the bytes of the track end within an event.
ENDED, OPEN, NO_STATUS, LONG_NUMBER, CUT_TIME, CUT_MESSAGE, CUT_EVENT, CUT_NUMBER = range(8)

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


class Scan(NamedTuple):
    """The events of all tracks in file order, and what is wrong with the tracks."""

    start: NDArray[np.int32]
    """Columns (n,) of the events; see `tokenization.midi.events.Events`."""
    body: NDArray[np.int32]
    tick: NDArray[np.int64]
    chunk: NDArray[np.int64]
    status: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    tracks: NDArray[np.int64]
    """(tracks, 5): first row, offset in the file where the events end, time of the end, how the
    events end, and the offset of the byte that cannot be read."""
    clipped: int
    """Number of data bytes over 127."""
    singles: int
    """Number of events that are not channel messages, and of messages with data bytes over 127. If
    it is larger than allowed, the other results are undefined."""


def scan(content: bytes, spans: NDArray[np.int64], most_singles: int) -> Scan:
    """Scans tracks; `spans` (tracks, 2) are start and end of their contents.

    A track whose bytes are not events is read up to the first byte that cannot be understood.
    """
    walk = _Walk(content, most_singles)
    tracks = np.zeros((len(spans), 5), np.int64)
    for index, (at, end) in enumerate(spans.tolist()):
        tracks[index, 1:] = walk.track(at, end)
        if walk.singles > most_singles:
            break
    data = np.frombuffer(content, dtype=np.uint8)
    others = np.array(walk.others, dtype=np.int32).reshape(-1, 5).T
    tables = [
        _channel_messages(data, np.array(walk.two, dtype=np.int32), 2),
        _channel_messages(data, np.array(walk.one, dtype=np.int32), 1),
        np.stack([others[0], others[1], _times(data, others[0], others[1]), *others[2:]]),
    ]
    tables = [table for table in tables if table.size] or tables
    table = tables[0]
    if len(tables) > 1:
        table = np.concatenate(tables, axis=1)
        table = table[:, np.argsort(table[0], kind="stable")]
    del tables
    start, body, delta, status, first, second = table

    rows = np.append(np.searchsorted(start, spans[:, 0]), len(start))
    tracks[:, 0] = rows[:-1]
    chunk = np.repeat(np.arange(len(spans)), np.diff(rows))
    elapsed = np.concatenate([[0], np.cumsum(delta, dtype=np.int64)])
    before = elapsed[rows[:-1]]
    tick = elapsed[1:] - before[chunk]
    tracks[:, 2] += elapsed[rows[1:]] - before

    # The first message of a track has a status byte, so forward filling never crosses tracks. Only
    # channel messages set the running status; as in all players, other events do not reset it.
    written = np.where((status > 0) & (status < 0xF0), np.arange(len(status)), 0)
    status = np.where(status == 0, status[np.maximum.accumulate(written)], status)
    columns = (start, body, tick, chunk, status, first, second)
    return Scan(*columns, tracks, walk.clipped, walk.singles)


class _Walk:
    """Offsets of the events of tracks: runs of channel messages, and single other events."""

    def __init__(self, data: bytes, most_singles: int) -> None:
        self.data, self.most_singles = data, most_singles
        # Arrays rather than lists, since malicious files have millions of entries.
        self.two = array("q")  # starts and ends, alternating
        self.one = array("q")
        # Of single events in turn: start, body, status (0: running), and the data bytes of a
        # channel message; of others, type and offset of the content.
        self.others = array("q")
        self.clipped = 0

    @property
    def singles(self) -> int:
        return len(self.others) // 5

    def track(self, at: int, end: int) -> tuple[int, int, int, int]:
        """Walks one track; its columns of `Scan.tracks`, with the time since the last event."""
        data = self.data
        run: re.Pattern[bytes] | None = None
        while at < end and self.singles <= self.most_singles:
            if run is not None and (stretch := run.match(data, at, end)):
                (self.two if run is _TWO_DATA_BYTES else self.one).extend(stretch.span())
                at = stretch.end()
                continue
            body = _after_quantity(data, at, end)
            if body < 0:
                return at, 0, -body, at
            if body == end:
                return at, 0, CUT_TIME, at
            status = data[body]
            if status < 0x80 and run is None:
                return at, 0, NO_STATUS, body
            if status < 0xF0:
                if status >= 0x80:
                    run = _ONE_DATA_BYTE if 0xC0 <= status < 0xE0 else _TWO_DATA_BYTES
                    if stretch := run.match(data, at, end):
                        (self.two if run is _TWO_DATA_BYTES else self.one).extend(stretch.span())
                        at = stretch.end()
                        continue
                first, size = body + (status >= 0x80), 1 if run is _ONE_DATA_BYTE else 2
                if end - first < size:
                    return at, 0, CUT_MESSAGE, body
                values = data[first : first + size]
                self.clipped += sum(value > LARGEST for value in values)
                written = status if status >= 0x80 else 0
                bytes_ = [min(value, LARGEST) for value in values] + [0] * (2 - size)
                self.others.extend((at, body, written, *bytes_))
                at = first + size
                continue
            if status in _SYSTEM_DATA_BYTES:
                content = body + 1
                next_at = content + _SYSTEM_DATA_BYTES[status]
            else:
                length_at = body + 2 if status == META else body + 1
                content = _after_quantity(data, length_at, end)
                if content < 0:
                    return at, 0, -content, length_at
                next_at = content + variable_length_value(data[length_at:content])
            if next_at > end:
                return at, 0, CUT_EVENT, body
            kind = data[body + 1] if status == META else 0
            if status == META and kind == END_OF_TRACK:
                # later bytes are not part of the track
                return at, variable_length_value(data[at:body]), ENDED, at
            self.others.extend((at, body, status, kind, content))
            at = next_at
        return at, 0, OPEN, at


def _after_quantity(data: bytes, at: int, end: int) -> int:
    """Offset after a variable-length quantity; if there is none, the problem times -1."""
    if at < end and data[at] < 0x80:
        return at + 1
    quantity = _QUANTITY.match(data, at, end)
    if quantity is None:
        return -CUT_NUMBER if end - at < 4 else -LONG_NUMBER
    return quantity.end()


def variable_length_value(quantity: bytes) -> int:
    """Value of a variable-length quantity."""
    value = 0
    for byte in quantity:
        value = value << 7 | byte & 0x7F
    return value


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


def pair_notes(
    chunk: NDArray[np.int64],
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """See `tokenization.midi.events.pair_notes`; the arguments are columns (n,) of events."""
    # Chunk, channel and pitch fit into 27 bits; int32 limits the memory for malicious files.
    kind = status & 0xF0
    rows = np.flatnonzero((kind == 0x80) | (kind == 0x90)).astype(np.int32)
    key = chunk[rows].astype(np.int32) << 11
    key |= (status[rows] & 0x0F) << 7 | first[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    del kind, order
    is_on = (status[rows] >= 0x90) & (second[rows] > 0)
    has_end, is_end = match_ends(key, is_on)
    begins = rows[is_on]
    paired, ends = begins[has_end], rows[is_end]
    in_time = np.argsort(paired)
    return paired[in_time], ends[in_time], np.sort(begins[~has_end])


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


def own_programs(
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    track_rows: NDArray[np.int64],
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The last program that a chunk sets on a channel before a row of its events, (n,).

    0 if it sets none before that row, -1 if it never sets one on this channel. `status`, `first`
    and `track_rows` are columns of events; `chunk`, `channel` and `row` (n,) are sorted by chunk,
    then by row.
    """
    programs = np.full(len(row), -1, np.int64)
    changes = np.flatnonzero((status & 0xF0) == 0xC0)
    if not changes.size:
        return programs
    change_chunk = np.searchsorted(track_rows, changes, side="right") - 1
    change_place = change_chunk * 16 + (status[changes] & 15)
    place = chunk * 16 + channel
    size = len(status) + 1
    order = np.argsort(change_place, kind="stable")
    places = change_place[order]
    found = np.searchsorted((change_place * size + changes)[order], place * size + row) - 1
    is_set = (found >= 0) & (places[found] == place)
    at = np.minimum(np.searchsorted(places, place), len(places) - 1)
    programs[places[at] == place] = 0
    programs[is_set] = first[changes][order][found[is_set]]
    return programs


def note_table(
    tick: NDArray[np.int64],
    chunk: NDArray[np.int64],
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    track_rows: NDArray[np.int64],
    begins: NDArray[np.int32],
    ends: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Notes (n, 4), their places (n,), chunk times 16 plus channel, and `own_programs` (n,).

    The arguments are columns of events, and the rows of notes from `pair_notes`.
    """
    onset, place = tick[begins], chunk[begins]
    channel = (status[begins] & 15).astype(np.int64)
    rows = begins.astype(np.int64)
    programs = own_programs(status, first, track_rows, place, channel, rows)
    columns = (onset, tick[ends] - onset, first[begins], second[begins])
    return np.stack(columns, axis=1, dtype=np.int64), place << 4 | channel, programs


def rows_of_kind(
    status: NDArray[np.int32], tick: NDArray[np.int64], kind: int, until: int
) -> NDArray[np.int64]:
    """Rows (n,) of the channel messages of a kind (0x80 to 0xE0) up to a tick."""
    return np.flatnonzero(((status & 0xF0) == kind) & (tick <= until))


def sort_notes(
    notes: NDArray[np.int64], instruments: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Notes (n, 4) sorted by instrument, onset, pitch, duration and velocity; instruments (n,)."""
    order = np.lexsort((notes[:, 3], notes[:, 1], notes[:, 2], notes[:, 0], instruments))
    return notes[order], instruments[order]


def write_events(
    ticks: NDArray[np.int64],
    before: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    content: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bytes of events with their delta times, and the offset of each, (n + 1,).

    `before` (n,) are the times of the previous events; the differences have at most 28 bits. The
    status and data bytes of an event are `sizes` bytes of `content` from `starts` on.
    """
    deltas = ticks - before
    longest = int(deltas.max(initial=0))
    lengths = np.ones(len(deltas), np.int64)
    for bits in (7, 14, 21):
        if longest >> bits:
            lengths += deltas >= 1 << bits
    offsets = np.zeros(len(deltas) + 1, np.int64)
    np.cumsum(lengths + sizes, out=offsets[1:])
    places = offsets[:-1] + lengths
    written = np.empty(offsets[-1], np.uint8)
    written[places - 1] = deltas & 0x7F
    for more in (1, 2, 3):
        rows = np.flatnonzero(lengths > more)
        written[places[rows] - 1 - more] = deltas[rows] >> 7 * more & 0x7F | 0x80
    written[_ranges(places, sizes)] = content[_ranges(starts, sizes)]
    return written, offsets


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers from each start on, `sizes` of them, concatenated."""
    places = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    places += np.arange(len(places))
    return places
