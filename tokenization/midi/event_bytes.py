"""Bytes of track chunks to events and back, in loops that Numba compiles where it is installed.

Loading Numba takes half a second, so a process begins with the same functions uncompiled, and
compiles them when it has enough to do (`prepare`). The results are the same. Call the functions
as attributes of this module, since compilation replaces them.

All compiled functions are in this file, because Numba recompiles a function when its own file
changes, but not when a function that it calls changes in another file. Each has one signature:
with several, Numba's index is not safe when two processes compile at once.

Source: The Complete MIDI 1.0 Detailed Specification (MMA, 1996), Standard MIDI Files 1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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

PLAIN_BYTES: Final = 1 << 18
"""Bytes read and written before compilation; more of them take longer than loading Numba."""


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


_num_bytes = 0


def prepare(num_bytes: int) -> None:
    """Announce bytes to be read or written; compile if this process has enough to do."""
    global _num_bytes
    _num_bytes += num_bytes
    if _num_bytes > PLAIN_BYTES:
        compile_all()


@cache
def compile_all() -> bool:
    """Compile all functions by Numba, at their first calls; return whether it can."""
    try:
        from numba import njit

        # on disk, with the functions that they call
        compiled = {
            name: njit(nogil=True, cache=name[0] != "_")(function)
            for name, function in _FUNCTIONS.items()
        }
    except (ImportError, RuntimeError):  # RuntimeError: Numba found no folder for its cache
        return False
    globals().update(compiled)
    return True


def warm_up() -> None:
    """Compile all functions now, so that no file need wait for it."""
    compile_all()
    numbers = np.zeros(0, np.int64)
    events = scan(b"", np.zeros((1, 2), np.int64), 1)
    begins, ends, _ = pair_notes(events.chunk, events.status, events.first, events.second)
    columns = events.tick, events.chunk, events.status, events.first, events.second
    note_table(*columns, begins, ends)
    chunk_programs(events.status, events.first, np.zeros(2, np.int64), numbers, numbers, numbers)
    write_events(numbers, numbers, numbers, numbers, np.zeros(0, np.uint8))


def scan(content: bytes, spans: NDArray[np.int64], most_singles: int) -> Scan:
    """Scan tracks; `spans` (tracks, 2) are start and end of their contents.

    A track whose bytes are not events is read up to the first byte that cannot be understood.
    """
    most_events = np.sum(spans[:, 1] - spans[:, 0]) // 2  # each has a time and a byte at least
    starts = np.empty(most_events, np.int32)
    bodies = np.empty(most_events, np.int32)
    ticks = np.empty(most_events, np.int64)
    chunks = np.empty(most_events, np.int64)
    statuses = np.empty(most_events, np.int32)
    firsts = np.empty(most_events, np.int32)
    seconds = np.empty(most_events, np.int32)
    tracks = np.zeros((len(spans), 5), np.int64)
    row = clipped = singles = 0
    for index in range(len(spans)):
        offset, end = int(spans[index, 0]), int(spans[index, 1])
        tracks[index, 0] = row
        tick = running = 0
        ending, place = OPEN, offset
        while offset < end and singles <= most_singles:
            body, delta = _read_number(content, offset, end)
            if body < 0 or body == end:
                ending = CUT_TIME if body == end else -body
                break
            following, status, data1, data2 = _read_event(content, body, end, running)
            if following < 0:
                ending, place = -following, data2
                break
            tick += delta
            if status == META and data1 == END_OF_TRACK:
                ending = ENDED
                break
            if status < 0xF0:
                running = status
                too_large = (data1 > LARGEST) + (data2 > LARGEST)
                clipped += too_large
                singles += too_large > 0
                data1, data2 = min(data1, LARGEST), min(data2, LARGEST)
            else:
                singles += 1
            starts[row], bodies[row], ticks[row], chunks[row] = offset, body, tick, index
            statuses[row], firsts[row], seconds[row] = status, data1, data2
            row += 1
            offset = place = following
        tracks[index, 1], tracks[index, 2] = offset, tick
        tracks[index, 3], tracks[index, 4] = ending, place
    return Scan(
        starts[:row],
        bodies[:row],
        ticks[:row],
        chunks[:row],
        statuses[:row],
        firsts[:row],
        seconds[:row],
        tracks,
        clipped,
        singles,
    )


def _read_number(content: bytes, offset: int, end: int) -> tuple[int, int]:
    """Read a variable-length quantity; return the offset after it, or -problem, and its value."""
    value = 0
    for position in range(offset, offset + 4):
        if position >= end:
            return -CUT_NUMBER, 0
        value = value << 7 | content[position] & 0x7F
        if content[position] < 0x80:
            return position + 1, value
    return -LONG_NUMBER, 0


def _read_event(content: bytes, body: int, end: int, running: int) -> tuple[int, int, int, int]:
    """Read the event after a delta time; `running` is the running status, 0 if there is none.

    Return the offset after it, its status, and its two numbers as in `Events`. If it cannot be
    read, the first number is -problem, and the last the offset of the byte that is wrong.
    """
    status = content[body]
    if status >= 0xF0:
        return _read_other_event(content, body, end)
    data = body + 1
    if status < 0x80:
        # Only channel messages set the running status; as in all players, others do not reset it.
        status, data = running, body
        if not running:
            return -NO_STATUS, 0, 0, body
    size = 1 if 0xC0 <= status < 0xE0 else 2
    if end - data < size:
        return -CUT_MESSAGE, 0, 0, body
    return data + size, status, content[data], content[data + 1] if size == 2 else 0


def _read_other_event(content: bytes, body: int, end: int) -> tuple[int, int, int, int]:
    """Read a meta event, system exclusive or other system message; see `_read_event`."""
    status = content[body]
    data, size, kind = body + 1, 0, 0
    if status == META or status == 0xF0 or status == 0xF7:
        length = body + 2 if status == META else body + 1
        data, size = _read_number(content, length, end)
        if data < 0:
            return data, 0, 0, length
        kind = content[body + 1] if status == META else 0
    # The rest is not allowed in files, but some recorders write it.
    elif status == 0xF2:
        size = 2
    elif status == 0xF1 or status == 0xF3:
        size = 1
    if data + size > end:
        return -CUT_EVENT, 0, 0, body
    return data + size, status, kind, data


def pair_notes(
    chunk: NDArray[np.int64],
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """See `tokenization.midi.events.pair_notes`; the arguments are columns (n,) of events."""
    # For each channel and pitch, a queue of the sounding notes of a chunk, as a linked list.
    heads = np.empty(2048, np.int32)
    tails = np.empty(2048, np.int32)
    following = np.empty(len(status), np.int32)
    # the row of the end of each note; -1: it never ends, -2: no note begins here
    ends = np.full(len(status), -2, np.int32)
    current = -1
    for row in range(len(status)):
        kind = status[row] & 0xF0
        if kind != 0x80 and kind != 0x90:
            continue
        if chunk[row] != current:
            current = chunk[row]
            heads[:] = -1
        key = (status[row] & 0x0F) << 7 | first[row]
        if kind == 0x90 and second[row] > 0:
            ends[row] = following[row] = -1
            if heads[key] < 0:
                heads[key] = row
            else:
                following[tails[key]] = row
            tails[key] = row
        elif heads[key] >= 0:
            ends[heads[key]] = row
            heads[key] = following[heads[key]]
    begins = np.flatnonzero(ends >= 0).astype(np.int32)
    endless = np.flatnonzero(ends == -1).astype(np.int32)
    return begins, ends[begins], endless


def note_table(
    tick: NDArray[np.int64],
    chunk: NDArray[np.int64],
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    begins: NDArray[np.int32],
    ends: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the notes (n, 4), and their chunks, channels and rows (n,).

    The columns of the notes are onset, duration, pitch and velocity.

    The arguments are columns of events, and the rows of notes from `pair_notes`.
    """
    notes = np.empty((len(begins), 4), np.int64)
    chunks = np.empty(len(begins), np.int64)
    channels = np.empty(len(begins), np.int64)
    rows = np.empty(len(begins), np.int64)
    for note in range(len(begins)):
        row = begins[note]
        notes[note, 0] = tick[row]
        notes[note, 1] = tick[ends[note]] - tick[row]
        notes[note, 2] = first[row]
        notes[note, 3] = second[row]
        chunks[note], channels[note], rows[note] = chunk[row], status[row] & 0x0F, row
    return notes, chunks, channels, rows


def chunk_programs(
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    track_rows: NDArray[np.int64],
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the last program that a chunk sets on a channel before a row of its events, (n,).

    0 if it sets none before that row, -1 if it never sets one on this channel. `status`, `first`
    and `track_rows` are columns of events; `chunk`, `channel` and `row` (n,) are sorted by chunk,
    then by row.
    """
    programs = np.empty(len(row), np.int64)
    current = np.empty(16, np.int64)
    index, event = -1, 0
    for at in range(len(row)):
        if chunk[at] != index:
            index = chunk[at]
            event = track_rows[index]
            current[:] = -1
            for later in range(event, track_rows[index + 1]):
                if status[later] & 0xF0 == 0xC0:
                    current[status[later] & 0x0F] = 0
        while event < row[at]:
            if status[event] & 0xF0 == 0xC0:
                current[status[event] & 0x0F] = first[event]
            event += 1
        programs[at] = current[channel[at]]
    return programs


def write_events(
    ticks: NDArray[np.int64],
    before: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    content: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of events with their delta times, and the offset of each, (n + 1,).

    `before` (n,) are the times of the previous events; the differences have at most 28 bits. The
    status and data bytes of an event are `sizes` bytes of `content` from `starts` on.
    """
    offsets = np.empty(len(ticks) + 1, np.int64)
    written = np.empty(4 * len(ticks) + np.sum(sizes), np.uint8)
    offset = 0
    for row in range(len(ticks)):
        offsets[row] = offset
        delta = int(ticks[row] - before[row])
        for shift in (21, 14, 7):
            if delta >> shift:
                written[offset] = delta >> shift & 0x7F | 0x80
                offset += 1
        written[offset] = delta & 0x7F
        offset += 1
        start, size = int(starts[row]), int(sizes[row])
        written[offset : offset + size] = content[start : start + size]
        offset += size
    offsets[-1] = offset
    return written[:offset], offsets


_FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    function.__name__: function
    for function in (
        scan,
        _read_number,
        _read_event,
        _read_other_event,
        pair_notes,
        note_table,
        chunk_programs,
        write_events,
    )
}
