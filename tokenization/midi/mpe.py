"""MIDI Polyphonic Expression: the channels of a zone play the notes of one instrument.

Source: MIDI Polyphonic Expression, version 1.1 (MIDI Association, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenization.midi.tuning import parameters

MEMBER_BEND_CENTS: Final = 4800.0
"""Default range of the pitch bend of a member channel."""
_LOWER, _UPPER = 0, 15
"""The manager channels of the two zones."""
_CONFIGURATION: Final = 6
"""Registered parameter whose value is the number of member channels of a zone."""
_DATA, _TIMBRE = 6, 74
_PARAMETER_CONTROLS: Final = (_DATA, 38, 98, 99, 100, 101)
"""Controllers that choose a parameter and set its value."""
_TICK_BITS: Final = 32
_LEAST_CHANNELS: Final = 3
"""Channels of one instrument without a configuration message; fewer may be a coincidence."""
_EXPRESSED: Final = 0.9
"""Share of notes before which a device without a configuration message sets bend and timbre."""
_MOST_NOTE_BENDS: Final = 1_000_000
_MOST_MESSAGES: Final = 10_000
"""Messages about parameters of a manager channel that are read, which bounds the time."""


class _Columns(Protocol):
    """Columns of events, as `Events` has them."""

    @property
    def tick(self) -> NDArray[np.int64]: ...

    @property
    def chunk(self) -> NDArray[np.int64]: ...

    @property
    def status(self) -> NDArray[np.int32]: ...

    @property
    def first(self) -> NDArray[np.int32]: ...

    @property
    def second(self) -> NDArray[np.int32]: ...

    @property
    def track_rows(self) -> NDArray[np.int64]: ...


class _Configuration(NamedTuple):
    """A configuration message: a manager channel, and the size of its zone from a tick on."""

    tick: int
    row: int
    chunk: int
    manager: int
    members: int


def find_homes(events: _Columns) -> NDArray[np.int64]:
    """Return the place of the instrument of each channel of each chunk: chunk times 16 + channel.

    It is the channel itself (tracks, 16), except for the member channels of a zone, whose notes
    belong to its manager channel. A zone is configured by registered parameter 6 and holds for its
    chunk, or for all if the notes are in others. Without a message, channels of a chunk are one
    instrument if bend and timbre are set before their notes, as only such devices do. Channels with
    several programs are not.
    """
    homes = np.arange((len(events.track_rows) - 1) * 16, dtype=np.int64).reshape(-1, 16)
    is_on = ((events.status & 0xF0) == 0x90) & (events.second > 0)
    ons = np.flatnonzero(is_on)
    if not len(ons):
        return homes
    places = events.chunk[ons] << 4 | events.status[ons] & 15
    playing = np.zeros(homes.shape, bool)
    playing.reshape(-1)[places] = True
    least, most = _programs(events, homes.shape)

    def has_one_program(chunks: Sequence[int], channels: Sequence[int]) -> bool:
        at = np.ix_(chunks, channels)
        return bool(most[at].max() <= least[at].min())

    configurations = sorted(_configurations(events, int(events.tick[ons].max())))
    for chunk, zones in _zones(configurations, playing).items():
        for manager, members in zones.items():
            scope = range(len(homes)) if chunk is None else [chunk]
            with_notes = [at for at in scope if playing[at, members].any()]
            if with_notes and has_one_program(with_notes, members):
                homes[np.ix_(with_notes, members)] = with_notes[0] << 4 | manager
    if not configurations:
        for chunk, channels in enumerate(playing):
            members = np.flatnonzero(channels).tolist()
            is_one = len(members) >= _LEAST_CHANNELS and _are_expressed(events, chunk, ons)
            if is_one and has_one_program([chunk], members):
                homes[chunk, members] = chunk << 4 | members[0]
    return homes


def note_bends(
    events: _Columns,
    homes: NDArray[np.int64],
    notes: tuple[NDArray[np.int32], NDArray[np.int32]],
    division: int,
) -> dict[int, NDArray[np.int64]]:
    """Return the bends of the notes of each zone, by its place: see `Track.note_bends`.

    A note begins with the bend of its channel, and is in tune again a quarter note after its end.
    The result is empty if there are too many bends.

    Args:
        events: the events.
        homes: the result of `find_homes`.
        notes: rows where notes begin and end.
        division: ticks per quarter note.
    """
    flat = homes.reshape(-1)
    is_member = flat != np.arange(flat.size)
    zones = np.unique(flat[is_member])
    if not len(zones):
        return {}
    channels = events.chunk << 4 | events.status & 15
    begins, ends = (rows[np.isin(flat[channels[notes[0]]], zones)] for rows in notes)
    # the bends of managers are for all notes
    rows = np.flatnonzero(((events.status & 0xF0) == 0xE0) & is_member[channels])
    rows = rows[np.argsort(channels[rows] << _TICK_BITS | events.tick[rows], kind="stable")]
    bent, note_channels = channels[rows], channels[begins]
    values = (events.second[rows] << 7 | events.first[rows]) - 8192
    cents = np.rint(values / 8192 * _bend_ranges(events, channels, is_member)[bent])
    keys = bent << _TICK_BITS | events.tick[rows]
    onsets, stops, pitches = events.tick[begins], events.tick[ends], events.first[begins]
    first = np.searchsorted(keys, note_channels << _TICK_BITS | onsets, side="right")
    counts = np.maximum(np.searchsorted(keys, note_channels << _TICK_BITS | stops) - first, 0)
    if counts.sum() > _MOST_NOTE_BENDS:
        return {}
    is_set = np.append(-1, bent)[first] == note_channels
    starts: NDArray[np.int64] = np.repeat(first - counts.cumsum() + counts, counts)
    during = np.arange(len(starts)) + starts
    tables = [
        (flat[note_channels], stops + division, pitches, np.zeros(len(note_channels))),
        (flat[note_channels], onsets, pitches, np.where(is_set, np.append(0, cents)[first], 0)),
        (flat[bent[during]], events.tick[rows[during]], np.repeat(pitches, counts), cents[during]),
    ]
    table = np.concatenate([np.column_stack(columns) for columns in tables]).astype(np.int64)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    parts = np.split(table[:, 1:], np.searchsorted(table[:, 0], zones[1:]))
    return dict(zip(zones.tolist(), parts, strict=True))


def _bend_ranges(
    events: _Columns, channels: NDArray[np.int64], is_member: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the range of the bend in cents of each channel of each chunk, if it is a member."""
    ranges = np.full(len(is_member), MEMBER_BEND_CENTS)
    is_data = np.isin(events.first, _PARAMETER_CONTROLS) & ((events.status & 0xF0) == 0xB0)
    rows = np.flatnonzero(is_data & is_member[channels])
    rows = rows[np.argsort(channels[rows], kind="stable")]
    columns = [events.tick[rows], events.first[rows], events.second[rows]]
    controls = np.column_stack(columns).astype(np.int64)
    numbers, starts = np.unique(channels[rows], return_index=True)
    for number, part in zip(numbers.tolist(), np.split(controls, starts[1:]), strict=False):
        ranges[number] = parameters(part, MEMBER_BEND_CENTS)[0]
    return ranges


def _configurations(events: _Columns, until: int) -> Iterator[_Configuration]:
    for manager in (_LOWER, _UPPER):
        is_control = (events.status == (0xB0 | manager)) & (events.tick <= until)
        rows = np.flatnonzero(is_control & np.isin(events.first, [_DATA, 98, 99, 100, 101]))
        rows = rows[np.argsort(events.tick[rows], kind="stable")][:_MOST_MESSAGES]
        if not (events.first[rows] == _DATA).any():
            continue
        selected: dict[int, int] = {}
        columns = (events.tick, events.chunk, events.first, events.second)
        for row, tick, chunk, number, value in zip(
            rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
        ):
            if number in (98, 99):
                selected = {}
            elif number != _DATA:
                selected[number] = value
            elif selected == {101: 0, 100: _CONFIGURATION} and value < 16:
                yield _Configuration(tick, row, chunk, manager, value)


def _zones(
    configurations: Sequence[_Configuration], playing: NDArray[np.bool_]
) -> dict[int | None, dict[int, list[int]]]:
    """Return the member channels of manager channels by chunk, or by None for all chunks."""
    sizes: dict[int | None, dict[int, int]] = {}
    for _, _, chunk, manager, members in configurations:
        channels = _members(manager, members or 15)
        scope = chunk if playing[chunk, channels].any() else None
        zones = sizes.setdefault(scope, {_LOWER: 0, _UPPER: 0})
        other = _LOWER + _UPPER - manager
        zones[manager] = members
        # a zone takes the channels that it needs from the other one
        zones[other] = max(min(zones[other], 14 - members), 0)
    return {
        scope: {manager: _members(manager, count) for manager, count in zones.items() if count}
        for scope, zones in sizes.items()
    }


def _members(manager: int, count: int) -> list[int]:
    """Return the channels next to a manager channel."""
    return [*range(1, count + 1)] if manager == _LOWER else [*range(15 - count, 15)]


def _programs(
    events: _Columns, shape: tuple[int, ...]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the least and the greatest program of each channel of each chunk.

    Without any, they are 128 and -1.
    """
    least, most = np.full(shape, 128, np.int32), np.full(shape, -1, np.int32)
    rows = np.flatnonzero((events.status & 0xF0) == 0xC0)
    places = events.chunk[rows], events.status[rows] & 15
    np.minimum.at(least, places, events.first[rows])
    np.maximum.at(most, places, events.first[rows])
    return least, most


def _are_expressed(events: _Columns, chunk: int, ons: NDArray[np.int64]) -> bool:
    """Return whether most notes of a chunk have bend and timbre set just before on their channel.

    Most notes of the lowest channel may lack them, as those do that `append_to_midi` adds there.
    """
    start, stop = events.track_rows[chunk : chunk + 2].tolist()
    status, tick = events.status[start:stop], events.tick[start:stop]
    notes = ons[slice(*np.searchsorted(ons, (start, stop)).tolist())] - start
    expressed = np.ones(len(notes), bool)
    is_timbre = ((status & 0xF0) == 0xB0) & (events.first[start:stop] == _TIMBRE)
    for is_set in ((status & 0xF0) == 0xE0, is_timbre):
        rows = np.flatnonzero(is_set)
        if not len(rows):
            return False
        keys = (status[rows].astype(np.int64) & 15) << 32 | tick[rows]
        note_keys = (status[notes].astype(np.int64) & 15) << 32 | tick[notes]
        expressed &= np.isin(note_keys, keys)
    is_lowest = status[notes] == status[notes].min()
    return bool(expressed[is_lowest].any() and expressed[~is_lowest].mean() >= _EXPRESSED)
