"""Appending of new music to a MIDI file, which leaves the existing events unchanged."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import MidiFile, chunk_bytes, open_midi
from tokenization.midi.cut import note_ends
from tokenization.midi.events import (
    DRUM_CHANNEL,
    MAX_TICK,
    Events,
    pair_notes,
    program_at,
    rows_in_time,
    scan_events,
)
from tokenization.midi.writer import (
    CLOSING,
    NewEvents,
    Ordered,
    Scale,
    bend_events,
    control_events,
    end_of_track,
    free_channel,
    header_bytes,
    instrument_events,
    note_events,
    program_choices,
    program_event,
    tempo_events,
    timed,
    tracks_bytes,
    variable_length,
)
from tokenization.score import Score

# Controllers that stay in effect until changed: modulation and the three pedals.
_HELD_CONTROLS: Final = (1, 64, 66, 67)
# Volume and expression, with their defaults.
_LOUDNESS: Final = ((7, 100), (11, 127))
_FADED: Final = 16
"""A channel is faded out if its volume or expression at the splice is below this."""
_AUDIBLE: Final = 64
"""Minimum level to which a faded channel is raised, if it was ever that loud."""
_ROWS_AT_ONCE: Final = 1 << 16
"""Number of events processed at once, which bounds the memory of Python lists."""


def append_to_midi(prompt: bytes, new: Score, splice_ticks: int) -> bytes:
    """MIDI file with new music appended, in which every event of the prompt is unchanged.

    - The bytes of the prompt's tracks up to their end-of-track are kept, and so are chunks of other
      kinds. Only a RIFF wrapper and bytes that are not part of an event are removed. An event
      of the prompt that comes after a new event keeps its time; if it used running status, its
      status byte is written out.
    - New tracks with a `chunk` continue that track chunk on their `channel`. Others get a new
      chunk, on their own channel if no other instrument uses it; format 0 then becomes 1. If all
      channels are in use, new instruments share them, with a program change before each note that
      needs one.
    - At the splice, a held pedal, modulation, a pitch bend and notes that never end each get one
      closing event. Tempos and time signatures of `new` after the splice are added to the first
      track.
    - If the prompt has faded out a channel that new notes use (volume or expression below 16), one
      event at the splice restores the level that it had when notes last sounded, or sets it to 64
      if this is higher and the channel was ever that loud. Other channels keep their level.
    - The resolution is kept. If it is too coarse for the times of `new`, the resolution and all
      times of the prompt are multiplied by an integer.

    Args:
        prompt: a MIDI file.
        new: new music, in its own ticks from the start of the file.
        splice_ticks: where the new music begins, in the ticks of `new`.

    Raises:
        MidiError: the prompt is not a MIDI file, or the result would not be valid.
        ValueError: `new` continues a chunk that the prompt does not have.
    """
    file = open_midi(prompt, "the prompt")
    events = scan_events(file)
    num_tracks = len(events.track_ends)
    factor = _resolution_factor(file.division, new, splice_ticks)
    scale = Scale(file.division * factor, new.ticks_per_beat)
    splice = scale.ticks(splice_ticks)
    last = max([int(events.end_ticks.max()) * factor, splice, scale.ticks(new.end_ticks)])
    if last > MAX_TICK:
        raise MidiError(
            f"{file.name}: with the new music, the file ends at tick {last}, expected at most "
            f"{MAX_TICK}; use a part of it"
        )
    if factor > 1:
        ticks, end_ticks = events.tick * factor, events.end_ticks * factor
        events = replace(events, tick=ticks, end_ticks=end_ticks)
    begins, ends, endless = pair_notes(events)
    additions = _closing_events(events, endless, splice)
    additions[0].append(NewEvents.of(tempo_events(new, scale, after=splice_ticks)))
    taken = _instruments(events)
    chosen: dict[tuple[int, int], int] = {}
    new_parts: list[list[NewEvents]] = []
    targets: list[list[NewEvents]] = []
    channels: list[int] = []
    for track in new.tracks:
        chunk, channel = track.chunk, track.channel
        if chunk is not None and not 0 <= chunk < num_tracks:
            raise ValueError(f"new music continues chunk {chunk}, expected 0 to {num_tracks - 1}")
        if chunk is None or chosen.get((chunk, channel), track.program) != track.program:
            channel = free_channel(track, taken)
            new_parts.append([NewEvents.of(instrument_events(track, channel, splice))])
            targets.append(new_parts[-1])
        else:
            if (chunk, channel) not in chosen:
                program = program_at(events, chunk, channel, splice)
                if program != track.program:
                    event = program_event(track, channel, splice)
                    additions[chunk].append(NewEvents.of([event]))
            chosen[chunk, channel] = track.program
            targets.append(additions[chunk])
        taken[channel] = (track.program, track.is_drum)
        channels.append(channel)
    choices = program_choices(new.tracks, channels, scale)
    for track, channel, programs, target in zip(
        new.tracks, channels, choices, targets, strict=True
    ):
        target += [
            control_events(track, channel, scale),
            bend_events(track, channel, scale),
            NewEvents.of(programs),
            *note_events([track], [channel], scale),
        ]
    sounding = (begins, ends, endless)
    playing = {at for at, track in zip(channels, new.tracks, strict=True) if len(track)}
    for channel in sorted(playing):
        for chunk, event in _volume_events(events, sounding, channel, splice):
            additions[chunk].append(event)
    del begins, ends, endless, sounding

    is_scaled = factor > 1
    contents = [
        _continued(file, events, chunk, parts, is_scaled=is_scaled)
        for chunk, parts in enumerate(additions)
    ]
    num_tracks += len(new_parts)
    if num_tracks > 0xFFFF:
        raise MidiError(
            f"{file.name}: with the new music, the file has {num_tracks} tracks, expected at most "
            "65535; use fewer tracks"
        )
    midi_format = 1 if file.format == 0 and num_tracks > 1 else file.format
    rest = file.data[14 : file.header.end]
    header = header_bytes(midi_format, num_tracks, file.division * factor, rest)
    counts = [sum(len(part.ticks) for part in parts) for parts in new_parts]
    owners = np.arange(len(counts)).repeat(counts)
    contents_of_new = tracks_bytes([*chain(*new_parts)], owners, len(counts))
    added = (chunk_bytes(b"MTrk", content) for content in contents_of_new)
    return b"".join([header, file.with_tracks(contents), *added])


def _resolution_factor(division: int, new: Score, splice_ticks: int) -> int:
    """Factor of the resolution with which different times of `new` stay different."""
    times = [np.array([splice_ticks, *(t.tick for t in (*new.tempos, *new.time_signatures))])]
    times += [track.notes[:, :2].ravel() for track in new.tracks]
    times += [table[:, 0] for track in new.tracks for table in (track.controls, track.bends)]
    unit = math.gcd(new.ticks_per_beat, int(np.gcd.reduce(np.concatenate(times))))
    needed = new.ticks_per_beat // unit
    factor = -(-needed // division)
    return factor if division * factor <= 0x7FFF else 1


def _closing_events(
    events: Events, endless: NDArray[np.int32], splice: int
) -> list[list[NewEvents]]:
    """Events that end notes and held controllers at the splice, by track chunk."""
    closing: list[list[NewEvents]] = [[] for _ in events.track_ends]

    def close(row: int, *content: int) -> None:
        chunk = int(events.chunk[row])
        closing[chunk].append(NewEvents.one(splice, CLOSING, bytes(content)))

    for channel in _channels(events):
        rows = rows_in_time(events, 0xB0 | channel, splice)
        for control in _HELD_CONTROLS:
            of_control = rows[events.first[rows] == control]
            if of_control.size and events.second[of_control[-1]] > 0:
                close(of_control[-1], 0xB0 | channel, control, 0)
        rows = rows_in_time(events, 0xE0 | channel, splice)
        if rows.size and (events.first[rows[-1]], events.second[rows[-1]]) != (0, 64):
            close(rows[-1], 0xE0 | channel, 0, 64)
    for chunk, ends in note_ends(events, endless[events.tick[endless] <= splice], splice):
        closing[chunk].append(ends)
    return closing


def _volume_events(
    events: Events,
    notes: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    channel: int,
    splice: int,
) -> Iterator[tuple[int, NewEvents]]:
    """Events that undo a fade of the channel at the splice, each with its track chunk.

    `notes` are the rows returned by `pair_notes`.
    """
    begins, ends, endless = (
        events.tick[rows[events.status[rows] & 15 == channel]] for rows in notes
    )
    last = int(ends[begins < splice].max(initial=0))
    last = splice if (endless < splice).any() else min(last, splice)
    rows = rows_in_time(events, 0xB0 | channel, splice)
    for control, default in _LOUDNESS:
        changes = rows[events.first[rows] == control]
        if not changes.size or events.second[changes[-1]] >= _FADED:
            continue
        values: list[int] = events.second[changes].tolist()
        while_sounding = int(np.count_nonzero(events.tick[changes] < last))
        value = values[while_sounding - 1] if while_sounding else default
        value = max(value, min(_AUDIBLE, max(values if while_sounding else [default])))
        if value > values[-1]:
            content = bytes((0xB0 | channel, control, value))
            yield int(events.chunk[changes[-1]]), NewEvents.one(splice, CLOSING, content)


def _channels(events: Events) -> list[int]:
    """Channels with at least one message."""
    is_channel = (events.status >= 0x80) & (events.status < 0xF0)
    return np.unique(events.status[is_channel] & 15).tolist()


def _instruments(events: Events) -> dict[int, tuple[int, bool]]:
    """Last program of each channel in use, and whether it is the drum channel."""
    taken: dict[int, tuple[int, bool]] = {}
    for channel in _channels(events):
        rows = rows_in_time(events, 0xC0 | channel)
        program = int(events.first[rows[-1]]) if rows.size else 0
        taken[channel] = (program, channel == DRUM_CHANNEL)
    return taken


def _continued(
    file: MidiFile, events: Events, chunk: int, parts: list[NewEvents], *, is_scaled: bool
) -> bytes:
    """Content of a track chunk with new events merged in, followed by its end-of-track."""
    whole = file.tracks[chunk]
    new = Ordered.of(parts)
    new_ticks: list[int] = new.ticks.tolist()
    if not (is_scaled or new_ticks or whole.missing) and events.is_whole[chunk]:
        return file.data[whole.start : whole.end]
    first, last = events.track_rows[chunk : chunk + 2].tolist()
    # Each new event comes after the existing ones at its tick.
    existing = np.append(0, events.tick[first:last])
    existing = existing[np.searchsorted(existing[1:], new.ticks, side="right")]
    content, offsets = timed(new, np.maximum(existing, np.append(0, new.ticks)[:-1]))
    written = bytearray()
    now = next_new = 0
    has_running_status = True
    copied = whole.start  # the file has been copied up to here
    if is_scaled:
        changed = np.arange(first, last, dtype=np.int64)
    else:
        changed = _changed_rows(events, first, last, new.ticks)
    for at in range(0, len(changed), _ROWS_AT_ONCE):
        rows = changed[at : at + _ROWS_AT_ONCE]
        columns = (events.start, events.body, events.status, events.tick)
        columns = [column[rows].tolist() for column in columns]
        before = events.tick[np.maximum(rows - 1, first)].tolist()
        for start, body, status, tick, tick_before in zip(*columns, before, strict=True):
            if start > copied:
                written += file.data[copied:start]
                now = tick_before
            until = bisect_left(new_ticks, tick, next_new)
            if until > next_new:
                written += content[offsets[next_new] : offsets[until]]
                now, next_new, has_running_status = new_ticks[until - 1], until, False
            written += variable_length(tick - now)
            if file.data[body] < 0x80 and not has_running_status:
                written.append(status)
            has_running_status = has_running_status or status < 0xF0
            now, copied = tick, body
    written += file.data[copied : int(events.track_ends[chunk])]
    written += content[offsets[next_new] :]
    now = max([int(events.tick[last - 1]) if last > first else 0, *new_ticks[-1:]])
    return bytes(written + end_of_track(max(int(events.end_ticks[chunk]) - now, 0)))


def _changed_rows(
    events: Events, first: int, last: int, new_ticks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows in [first, last) of a track whose bytes change when events are inserted before them.

    After a new event, the next delta time changes, and the next channel message needs a status
    byte.
    """
    behind = first + np.searchsorted(events.tick[first:last], new_ticks, side="right")
    behind = behind[behind < last]
    if not behind.size:
        return behind
    messages = first + np.flatnonzero(events.status[first:last] < 0xF0)
    following = np.searchsorted(messages, behind)
    return np.unique(np.append(behind, messages[following[following < len(messages)]]))
