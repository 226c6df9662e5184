"""The events of a MIDI file as columns: scanned from its bytes, and what they mean.

The scanner is linear in the bytes: regular expressions find the stretches of channel messages, and
NumPy takes them apart for all tracks at once. Source: The Complete MIDI 1.0 Detailed Specification
(MMA, 1996), Standard MIDI Files 1.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tokenization.errors import MidiError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenization.midi_chunks import Chunk, MidiFile

MAX_TICK: Final = 2**31 - 1
"""Times past it are refused: they overflow in other programs."""

META: Final = 0xFF
# Types of meta events
NAME: Final = 0x03
END_OF_TRACK: Final = 0x2F
TEMPO: Final = 0x51
TIME_SIGNATURE: Final = 0x58

# Delta time, then messages of one size, each with its own status byte or with the running one.
# Possessive quantifiers: there is one way to read a stream, so nothing is ever tried again.
_DELTA = re.compile(rb"[\x80-\xff]{0,3}+[\x00-\x7f]")
_TWO_DATA_BYTES = re.compile(
    rb"(?:[\x80-\xff]{0,3}+[\x00-\x7f][\x80-\xbf\xe0-\xef]?+[\x00-\x7f]{2})++"
)
_ONE_DATA_BYTE = re.compile(rb"(?:[\x80-\xff]{0,3}+[\x00-\x7f][\xc0-\xdf]?+[\x00-\x7f])++")
# System common and real time messages do not belong in files, but some recorders leave them there.
_SYSTEM_DATA_BYTES: Final = {0xF1: 1, 0xF2: 2, 0xF3: 1}


class Meta(NamedTuple):
    """A meta event: the row it has in `Events`, its type and its content."""

    row: int
    kind: int
    payload: bytes


@dataclass(frozen=True)
class Events:
    """The events of all tracks in file order, one row each; ends of tracks are not events.

    Columns are (n,): `start` and `body` are the places in the file of an event's delta time and of
    what follows it, `tick` its time from the start of its track, `chunk` the index of its track
    chunk, `status` its status byte (the running one where none is written), `first` and `second`
    its data bytes; `first` is the type of a meta event.
    """

    start: NDArray[np.int64]
    body: NDArray[np.int64]
    tick: NDArray[np.int64]
    chunk: NDArray[np.int64]
    status: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    metas: tuple[Meta, ...]
    track_rows: NDArray[np.int64]
    """(tracks + 1,): the first row of each track."""
    track_ends: NDArray[np.int64]
    """(tracks,): where in the file the events of a track end, before its end-of-track."""
    end_ticks: NDArray[np.int64]
    """(tracks,): the time of each end-of-track."""


class _Scan:
    """Where the events of a file are: stretches of channel messages, and single other events."""

    def __init__(self, file: MidiFile) -> None:
        self.file = file
        self.two: list[int] = []  # starts and ends in turn
        self.one: list[int] = []
        self.others: list[int] = []  # start, body, status, type, in turn
        self.payloads: list[bytes] = []  # of meta events only: long sysex dumps stay in the file
        self.track_ends: list[int] = []
        self.end_deltas: list[int] = []
        for index, chunk in enumerate(file.tracks):
            self._track(index, chunk)

    def _damaged(self, index: int, at: int, what: str) -> MidiError:
        return MidiError(
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
            delta = _DELTA.match(data, at, end)
            if delta is None or delta.end() == end:
                raise self._damaged(index, at, "expected a time of at most four bytes and an event")
            body = delta.end()
            status = data[body]
            if status < 0x80 and run is None:
                raise self._damaged(index, body, f"found {status:#04x}, expected a status byte")
            if status < 0xF0:
                expected = (
                    run
                    if status < 0x80
                    else _ONE_DATA_BYTE
                    if 0xC0 <= status < 0xE0
                    else _TWO_DATA_BYTES
                )
                if expected is run or expected is None or expected.match(data, at, end) is None:
                    raise self._damaged(
                        index, body, "a channel message is cut off or has a data byte over 127"
                    )
                run = expected
                continue
            next_at = self._other(index, body, status, end)
            if status == META and data[body + 1] == END_OF_TRACK:
                self.track_ends.append(at)
                self.end_deltas.append(variable_length_value(delta.group()))
                return  # what follows is no part of the track
            self.others.extend((at, body, status, data[body + 1] if status == META else 0))
            at = next_at
        self.track_ends.append(end)
        self.end_deltas.append(0)

    def _other(self, index: int, body: int, status: int, end: int) -> int:
        """End of an event that is no channel message; the content of a meta event is kept."""
        data = self.file.data
        if status not in (META, 0xF0, 0xF7):
            next_at = body + 1 + _SYSTEM_DATA_BYTES.get(status, 0)
            if next_at > end:
                raise self._damaged(index, body, "an event is cut off")
            return next_at
        length_at = body + 2 if status == META else body + 1
        length = _DELTA.match(data, length_at, end) if length_at < end else None
        if length is None:
            raise self._damaged(index, body, "an event is cut off")
        next_at = length.end() + variable_length_value(length.group())
        if next_at > end:
            raise self._damaged(index, body, "an event is longer than its track")
        if status == META and data[body + 1] != END_OF_TRACK:
            self.payloads.append(data[length.end() : next_at])
        return next_at


def variable_length_value(quantity: bytes) -> int:
    """Number that a variable-length quantity stands for."""
    value = 0
    for byte in quantity:
        value = value << 7 | byte & 0x7F
    return value


def scan_events(file: MidiFile) -> Events:
    """The events of all tracks of a file.

    Raises:
        MidiError: the bytes of a track are not events, or a time is past `MAX_TICK`.
    """
    scan = _Scan(file)
    data = np.frombuffer(file.data, dtype=np.uint8)
    others = np.array(scan.others, dtype=np.int64).reshape(-1, 4)
    two = _channel_messages(data, scan.two, 2)
    one = _channel_messages(data, scan.one, 1)
    delta = _times(data, others[:, 0], others[:, 1])
    other = np.stack(
        [others[:, 0], others[:, 1], delta, others[:, 2], others[:, 3], np.zeros_like(delta)]
    )
    table = np.concatenate([two, one, other], axis=1)
    if one.size or other.size:
        table = table[:, np.argsort(table[0], kind="stable")]
    start, body, delta, status, first, second = table

    tracks = file.tracks
    chunk_starts = np.array([chunk.start for chunk in tracks], dtype=np.int64)
    track_ends = np.array(scan.track_ends, dtype=np.int64)
    track_rows = np.append(np.searchsorted(start, chunk_starts), len(start))
    chunk = np.repeat(np.arange(len(tracks)), np.diff(track_rows))
    elapsed = np.concatenate([[0], np.cumsum(delta)])
    before = elapsed[track_rows[:-1]]
    tick = elapsed[1:] - before[chunk]
    end_ticks = elapsed[track_rows[1:]] - before + np.array(scan.end_deltas, dtype=np.int64)
    if int(end_ticks.max(initial=0)) > MAX_TICK:
        raise MidiError(
            f"{file.name}: a time of {int(end_ticks.max())} ticks, expected at most {MAX_TICK}; "
            "remove the gap in the music and export the file again"
        )

    # The first message of a track has a status byte, so filling forward never leaves the track.
    # Only channel messages set the running status: it survives the others, as in every player.
    written = np.where((status > 0) & (status < 0xF0), np.arange(len(status)), 0)
    status = np.where(status == 0, status[np.maximum.accumulate(written)], status)
    rows = np.flatnonzero(status == META)
    kinds: list[int] = first[rows].tolist()
    metas = tuple(map(Meta, rows.tolist(), kinds, scan.payloads))
    return Events(
        start, body, tick, chunk, status, first, second, metas, track_rows, track_ends, end_ticks
    )


def _times(
    data: NDArray[np.uint8], start: NDArray[np.int64], body: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Delta times that stand in the file from `start` to before `body`."""
    delta = data[body - 1].astype(np.int64)
    for more in (1, 2, 3):
        rows = np.flatnonzero(body - start > more)
        if not rows.size:
            break
        delta[rows] |= (data[body[rows] - 1 - more] & 0x7F).astype(np.int64) << (7 * more)
    return delta


def _channel_messages(
    data: NDArray[np.uint8], spans: list[int], data_bytes: int
) -> NDArray[np.int64]:
    """Table (6, n) of messages: start, body, delta time, status (0: running), two data bytes.

    In a stretch of messages of one size, each has the same number of bytes below 128: the last byte
    of its time, and its data. Counting them finds all messages at once.
    """
    pairs = np.array(spans, dtype=np.int64).reshape(-1, 2)
    starts, ends = pairs[:, 0], pairs[:, 1]
    if len(starts) == 1:
        low = np.flatnonzero(data[starts[0] : ends[0]] < 0x80) + starts[0]
    else:
        lengths = ends - starts
        places = np.arange(int(lengths.sum())) + np.repeat(
            starts - np.cumsum(lengths) + lengths, lengths
        )
        low = places[data[places] < 0x80]
    time_end, first, last = (
        low[0 :: data_bytes + 1],
        low[1 :: data_bytes + 1],
        low[data_bytes :: data_bytes + 1],
    )
    table = np.empty((6, len(first)), dtype=np.int64)
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
    events: Events,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows where notes begin, the rows where the same notes end, and rows of notes that never end.

    An end belongs to the earliest note of its chunk, channel and pitch that still sounds.
    An end without a note is nothing.
    """
    kind = events.status & 0xF0
    rows = np.flatnonzero((kind == 0x80) | (kind == 0x90))
    key = (events.chunk[rows] << 11) | ((events.status[rows] & 0x0F) << 7) | events.first[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    is_on = (events.status[rows] >= 0x90) & (events.second[rows] > 0)
    is_new = np.diff(key, prepend=-1) != 0
    group = np.cumsum(is_new) - 1
    # The number of notes that sound is a walk, up and down by one in each group of equal keys.
    # An end has no note where the walk reaches a new low below 0.
    walk = np.cumsum(np.where(is_on, 1, -1))
    first = np.flatnonzero(is_new)
    before = np.concatenate([[0], walk])[first]
    # Every group is put far below the one before: one running minimum serves all of them.
    depth = (2 * len(rows) + 2) * group
    low = np.minimum(np.minimum.accumulate(walk - before[group] - depth) + depth, 0)
    low_before = np.concatenate([[0], low[:-1]])
    low_before[first] = 0
    is_end = ~is_on & (low == low_before)
    # What is left are, for each group, as many ends as notes or fewer, both in order.
    num_ends = np.bincount(group[is_end], minlength=len(first))
    on_group = group[is_on]
    rank = np.arange(len(on_group)) - np.searchsorted(on_group, on_group)
    has_end = rank < num_ends[on_group]
    begins = rows[is_on]
    return begins[has_end], rows[is_end], np.sort(begins[~has_end])


def programs_at(
    events: Events,
    chunk: NDArray[np.int64],
    channel: NDArray[np.int64],
    row: NDArray[np.int64],
    tick: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Program of a channel in a chunk before `row` of the chunk's events; all arrays (n,).

    It is the one the chunk chose last. In a chunk that never chooses one on the channel it is the
    one that any other chose last up to `tick`, and 0 before all choices.
    """
    changes = np.flatnonzero((events.status & 0xF0) == 0xC0)
    programs = np.zeros(len(row), dtype=np.int64)
    if not changes.size:
        return programs
    change_channel, change_tick = events.status[changes] & 15, events.tick[changes]
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
        found = np.searchsorted(keys, channel << 32 | tick, side="right") - 1
        is_elsewhere &= (found >= 0) & (change_channel[order][found] == channel)
        programs = np.where(is_elsewhere, events.first[changes][order][found], programs)
    return programs


def rows_in_time(events: Events, status: int) -> NDArray[np.int64]:
    """Rows with a status byte, over all chunks, in the order of time."""
    rows = np.flatnonzero(events.status == status)
    return rows[np.argsort(events.tick[rows], kind="stable")]
