"""`tokenization.midi.bytes_numpy`, compiled by Numba: the same results for all bytes.

All that is compiled is in this file, because Numba recompiles a function when its own file changes,
but not when a function that it calls changes in another file. Each function has one signature:
with several, Numba's index is not safe when two processes compile at once.
"""

# Numba infers the types of arrays, so annotations would not be checked.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import config, njit

from tokenization.midi import bytes_numpy
from tokenization.midi.bytes_numpy import Scan

if TYPE_CHECKING:
    from numpy.typing import NDArray

if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ImportError("the environment variable NUMBA_DISABLE_JIT turns compilation off")

compiled = njit(nogil=True)
kept = njit(nogil=True, cache=True)  # on disk, with all callees

META, END_OF_TRACK, LARGEST = bytes_numpy.META, bytes_numpy.END_OF_TRACK, bytes_numpy.LARGEST
ENDED, OPEN, NO_STATUS, LONG_NUMBER, CUT_TIME, CUT_MESSAGE, CUT_EVENT, CUT_NUMBER = range(8)


def scan(content: bytes, spans: NDArray[np.int64], most_singles: int) -> Scan:
    """See `bytes_numpy.scan`."""
    data = np.frombuffer(content, dtype=np.uint8)
    *columns, tracks, clipped, singles = _scan(data, spans, most_singles)
    return Scan(*columns, tracks, clipped, singles)


def pair_notes(
    chunk: NDArray[np.int64],
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """See `bytes_numpy.pair_notes`."""
    return _pair_notes(chunk, status, first, second)


@kept
def _scan(data, spans, most_singles):
    tracks = np.zeros((len(spans), 5), np.int64)
    small, large = np.empty((5, 0), np.int32), np.empty((2, 0), np.int64)
    # once to count the events, once to store them
    count, _, _ = _walk(data, spans, most_singles, tracks, small, large, False)
    small, large = np.empty((5, count), np.int32), np.empty((2, count), np.int64)
    _, clipped, singles = _walk(data, spans, most_singles, tracks, small, large, True)
    start, body, status, first, second = small[0], small[1], small[2], small[3], small[4]
    return start, body, large[0], large[1], status, first, second, tracks, clipped, singles


@compiled
def _walk(data, spans, most_singles, tracks, small, large, store):
    """Walks the tracks: number of events, of data bytes over 127, and of single events."""
    row = clipped = singles = 0
    for index in range(len(spans)):
        at, end = spans[index, 0], spans[index, 1]
        tick = running = 0
        how, place = OPEN, at
        tracks[index, 0] = row
        while at < end and singles <= most_singles:
            place = at
            body, delta = _quantity(data, at, end)
            if body < 0 or body == end:
                how = CUT_TIME if body == end else -body
                break
            status = np.int64(data[body])
            if status < 0x80 and running == 0:
                how, place = NO_STATUS, body
                break
            one = two = 0
            if status < 0xF0:
                after = body
                if status >= 0x80:
                    running = status
                    after += 1
                status = running
                size = 1 if 0xC0 <= running < 0xE0 else 2
                if end - after < size:
                    how, place = CUT_MESSAGE, body
                    break
                one = np.int64(data[after])
                if size == 2:
                    two = np.int64(data[after + 1])
                if one > LARGEST or two > LARGEST:
                    clipped += (one > LARGEST) + (two > LARGEST)
                    singles += 1
                    one, two = min(one, LARGEST), min(two, LARGEST)
                following = after + size
            else:
                if status == META or status == 0xF0 or status == 0xF7:
                    place = body + 2 if status == META else body + 1
                    content, length = _quantity(data, place, end)
                    if content < 0:
                        how = -content
                        break
                    following = content + length
                else:
                    content = body + 1
                    following = content + _system_data_bytes(status)
                if following > end:
                    how, place = CUT_EVENT, body
                    break
                two = content
                if status == META:
                    one = np.int64(data[body + 1])
                    if one == END_OF_TRACK:
                        tick += delta
                        how, place = ENDED, at
                        break
                singles += 1
            tick += delta
            if store:
                small[0, row], small[1, row], small[2, row] = at, body, status
                small[3, row], small[4, row] = one, two
                large[0, row], large[1, row] = tick, index
            row += 1
            at = following
            place = at
        tracks[index, 1], tracks[index, 2] = at, tick
        tracks[index, 3], tracks[index, 4] = how, place
        if singles > most_singles:
            break
    return row, clipped, singles


@compiled
def _quantity(data, at, end):
    """Offset after a variable-length quantity or -1 times the problem, and its value."""
    value = 0
    for more in range(4):
        if at + more >= end:
            return -CUT_NUMBER, 0
        value = value << 7 | np.int64(data[at + more] & 0x7F)
        if data[at + more] < 0x80:
            return at + more + 1, value
    return -LONG_NUMBER, 0


@compiled
def _system_data_bytes(status):
    """Number of data bytes of a system common or real-time message."""
    if status == 0xF2:
        return 2
    return 1 if status == 0xF1 or status == 0xF3 else 0


@kept
def _pair_notes(chunk, status, first, second):
    # A queue of sounding notes for each channel and pitch, as a linked list.
    heads = np.empty(2048, np.int32)
    tails = np.empty(2048, np.int32)
    used = np.full(2048, -1, np.int64)  # the last chunk with a queue of this key
    following = np.empty(len(status), np.int32)
    end_of = np.empty(len(status), np.int32)
    num_notes = num_paired = 0
    for row in range(len(status)):
        kind = status[row] & 0xF0
        if kind != 0x80 and kind != 0x90:
            continue
        key = (status[row] & 0x0F) << 7 | first[row]
        if used[key] != chunk[row]:
            used[key], heads[key] = chunk[row], -1
        if kind == 0x90 and second[row] > 0:
            end_of[row] = following[row] = -1
            num_notes += 1
            if heads[key] < 0:
                heads[key] = row
            else:
                following[tails[key]] = row
            tails[key] = row
        elif heads[key] >= 0:
            end_of[heads[key]] = row
            heads[key] = following[heads[key]]
            num_paired += 1
    begins = np.empty(num_paired, np.int32)
    ends = np.empty(num_paired, np.int32)
    endless = np.empty(num_notes - num_paired, np.int32)
    paired = alone = 0
    for row in range(len(status)):
        if status[row] & 0xF0 == 0x90 and second[row] > 0:
            if end_of[row] < 0:
                endless[alone] = row
                alone += 1
            else:
                begins[paired], ends[paired] = row, end_of[row]
                paired += 1
    return begins, ends, endless


def own_programs(
    status: NDArray[np.int32],
    first: NDArray[np.int32],
    track_rows: NDArray[np.int64],
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
) -> NDArray[np.int64]:
    """See `bytes_numpy.own_programs`."""
    return _own_programs(status, first, track_rows, chunk, channel, row)


@kept
def _own_programs(status, first, track_rows, chunk, channel, row):
    return _programs(status, first, track_rows, chunk, channel, row)


@compiled
def _programs(status, first, track_rows, chunk, channel, row):
    programs = np.full(len(row), -1, np.int64)
    current = np.empty(16, np.int64)
    at = 0
    while at < len(row):
        index = chunk[at]
        # whether the chunk sets programs, before its first note or later
        current[:] = -1
        for event in range(track_rows[index], track_rows[index + 1]):
            if status[event] & 0xF0 == 0xC0:
                current[status[event] & 15] = 0
        event = track_rows[index]
        while at < len(row) and chunk[at] == index:
            while event < row[at]:
                if status[event] & 0xF0 == 0xC0:
                    current[status[event] & 15] = first[event]
                event += 1
            programs[at] = current[channel[at]]
            at += 1
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
    """See `bytes_numpy.note_table`."""
    return _note_table(tick, chunk, status, first, second, track_rows, begins, ends)


@kept
def _note_table(tick, chunk, status, first, second, track_rows, begins, ends):
    notes = np.empty((len(begins), 4), np.int64)
    chunks = np.empty(len(begins), np.int64)
    channels = np.empty(len(begins), np.int64)
    rows = np.empty(len(begins), np.int64)
    places = np.empty(len(begins), np.int64)
    for at in range(len(begins)):
        row = begins[at]
        notes[at, 0] = tick[row]
        notes[at, 1] = tick[ends[at]] - tick[row]
        notes[at, 2] = first[row]
        notes[at, 3] = second[row]
        rows[at], chunks[at], channels[at] = row, chunk[row], status[row] & 15
        places[at] = chunks[at] << 4 | channels[at]
    programs = _programs(status, first, track_rows, chunks, channels, rows)
    return notes, places, programs


def rows_of_kind(
    status: NDArray[np.int32], tick: NDArray[np.int64], kind: int, until: int
) -> NDArray[np.int64]:
    """See `bytes_numpy.rows_of_kind`."""
    return _rows_of_kind(status, tick, kind, until)


@kept
def _rows_of_kind(status, tick, kind, until):
    count = 0
    for row in range(len(status)):
        count += status[row] & 0xF0 == kind and tick[row] <= until
    rows = np.empty(count, np.int64)
    count = 0
    for row in range(len(status)):
        if status[row] & 0xF0 == kind and tick[row] <= until:
            rows[count] = row
            count += 1
    return rows


def sort_notes(
    notes: NDArray[np.int64], instruments: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """See `bytes_numpy.sort_notes`."""
    rows, of_rows = notes.copy(), instruments.copy()
    if _sort_notes(rows, of_rows):
        return rows, of_rows
    return bytes_numpy.sort_notes(notes, instruments)


@kept
def _sort_notes(notes, instruments):
    """Sorts in place by insertion, which is fast if notes are almost in order; else gives up."""
    moves = 16 * len(notes)
    for at in range(1, len(notes)):
        instrument = instruments[at]
        onset, duration, pitch, velocity = notes[at, 0], notes[at, 1], notes[at, 2], notes[at, 3]
        to = at
        while to > 0:
            before = to - 1
            if instruments[before] != instrument:
                is_later = instruments[before] > instrument
            elif notes[before, 0] != onset:
                is_later = notes[before, 0] > onset
            elif notes[before, 2] != pitch:
                is_later = notes[before, 2] > pitch
            elif notes[before, 1] != duration:
                is_later = notes[before, 1] > duration
            else:
                is_later = notes[before, 3] > velocity
            if not is_later:
                break
            notes[to], instruments[to] = notes[before], instruments[before]
            to = before
        if to < at:
            notes[to, 0], notes[to, 1], notes[to, 2], notes[to, 3] = (
                onset,
                duration,
                pitch,
                velocity,
            )
            instruments[to] = instrument
            moves -= at - to
            if moves < 0:
                return False
    return True


def write_events(
    ticks: NDArray[np.int64],
    before: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    content: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """See `bytes_numpy.write_events`."""
    return _write_events(ticks, before, starts, sizes, content)


@kept
def _write_events(ticks, before, starts, sizes, content):
    offsets = np.zeros(len(ticks) + 1, np.int64)
    for row in range(len(ticks)):
        delta = ticks[row] - before[row]
        length = 1 + (delta >= 1 << 7) + (delta >= 1 << 14) + (delta >= 1 << 21)
        offsets[row + 1] = offsets[row] + length + sizes[row]
    written = np.empty(offsets[-1], np.uint8)
    for row in range(len(ticks)):
        delta = ticks[row] - before[row]
        place = offsets[row]
        for more in range(offsets[row + 1] - place - sizes[row] - 1, 0, -1):
            written[place] = delta >> 7 * more & 0x7F | 0x80
            place += 1
        written[place] = delta & 0x7F
        for at in range(sizes[row]):
            written[place + 1 + at] = content[starts[row] + at]
    return written, offsets


def compile_all() -> None:
    """Compiles all functions, so that no file need wait for it."""
    found = scan(b"", np.zeros((1, 2), np.int64), 1)
    start, _, tick, chunk, status, first, second, tracks, *_ = found
    begins, ends, _ = pair_notes(chunk, status, first, second)
    rows = np.append(tracks[:, 0], len(start))
    notes, places, _ = note_table(tick, chunk, status, first, second, rows, begins, ends)
    own_programs(status, first, rows, places, places, places)
    sort_notes(notes, places)
    rows_of_kind(status, tick, 0xB0, 0)
    write_events(tick, tick, tick, tick, np.zeros(0, np.uint8))


if __name__ == "__main__":
    compile_all()
