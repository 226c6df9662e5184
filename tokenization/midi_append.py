"""New music appended to a MIDI file that otherwise stays what it was."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenization.errors import MidiError
from tokenization.midi_bytes import (
    CLOSING,
    DRUM_CHANNEL,
    NewEvents,
    Scale,
    bend_events,
    chunk_bytes,
    control_events,
    free_channel,
    header_bytes,
    in_order,
    instrument_events,
    meta,
    note_events,
    program_event,
    tempo_events,
    timed,
    track_bytes,
)
from tokenization.midi_chunks import MidiFile, open_midi
from tokenization.midi_events import (
    END_OF_TRACK,
    Events,
    pair_notes,
    programs_at,
    rows_in_time,
    scan_events,
)

if TYPE_CHECKING:
    from tokenization.score import Score, Track

# What a player holds until it is told otherwise: modulation and the three pedals.
_HELD_CONTROLS: Final = (1, 64, 66, 67)


def append_to_midi(prompt: bytes, new: Score, joint_ticks: int) -> bytes:
    """A MIDI file with new music appended, in which every event of the prompt stays as it was.

    - The bytes of the prompt's tracks up to their end are kept, and so are chunks of other kinds;
      only a RIFF wrapper, and junk behind the end of a track, go. An event of the prompt that is
      later than a new one keeps its time; it gets its status byte written out where it had none.
    - New tracks with a `chunk` continue that track chunk on their `channel`. Those without get a
      chunk of their own, on their channel if no other instrument has it; format 0 then becomes 1.
    - At the joint a held pedal, modulation, a pitch bend and notes that never end get one closing
      event. Tempos and metres of `new` later than the joint go to the first track.
    - The resolution stays. Where it is too coarse for the times of `new`, it and all times of the
      prompt are multiplied by one integer.

    Args:
        prompt: a MIDI file.
        new: new music, in ticks of its own from the start of the file.
        joint_ticks: where the new music begins, in the ticks of `new`.

    Raises:
        MidiError: the prompt is no MIDI file or damaged, or the result would not be one.
        ValueError: `new` continues a chunk that the prompt does not have.
    """
    file = open_midi(prompt, "the prompt")
    events = scan_events(file)
    num_tracks = len(events.track_ends)
    factor = _resolution_factor(file.division, new, joint_ticks)
    scale = Scale(file.division * factor, new.ticks_per_beat)
    joint = scale.tick(joint_ticks)
    additions = _closing_events(events, joint, factor)
    additions[0] += tempo_events(new, scale, after=joint_ticks)
    taken = _instruments(events)
    chosen: dict[tuple[int, int], int] = {}
    new_contents: list[bytes] = []
    for track in new.tracks:
        chunk, channel = track.chunk, track.channel
        if chunk is not None and not 0 <= chunk < num_tracks:
            raise ValueError(f"new music for track chunk {chunk}, expected 0 to {num_tracks - 1}")
        if chunk is None or chosen.get((chunk, channel), track.program) != track.program:
            channel = free_channel(track, taken)
            parts = [*instrument_events(track, channel, joint), *_music(track, channel, scale)]
            new_contents.append(track_bytes(parts, 0))
        else:
            if (chunk, channel) not in chosen:
                program = _program(events, chunk, channel, joint // factor)
                if program != track.program:
                    additions[chunk].append(program_event(track, channel, joint))
            chosen[chunk, channel] = track.program
            additions[chunk] += _music(track, channel, scale)
        taken[channel] = (track.program, track.is_drum)

    contents = [
        _continued(file, events, chunk, additions[chunk], factor) for chunk in range(num_tracks)
    ]
    num_tracks += len(new_contents)
    if num_tracks > 0xFFFF:
        raise MidiError(f"{file.name} and the new music have {num_tracks} tracks, a file has 65535")
    midi_format = 1 if file.format == 0 and num_tracks > 1 else file.format
    rest = file.data[14 : file.header.end]
    parts = [header_bytes(midi_format, num_tracks, file.division * factor, rest)]
    remaining = iter(contents)
    for chunk in file.chunks:
        is_track = chunk.kind == b"MTrk"
        content = next(remaining) if is_track else file.data[chunk.start : chunk.end]
        parts.append(chunk_bytes(chunk.kind, content))
    parts += [chunk_bytes(b"MTrk", content) for content in new_contents]
    return b"".join(parts)


def _music(track: Track, channel: int, scale: Scale) -> list[NewEvents]:
    return [events(track, channel, scale) for events in (control_events, bend_events, note_events)]


def _resolution_factor(division: int, new: Score, joint_ticks: int) -> int:
    """What to multiply the division by, so that different times of `new` stay different."""
    times = [np.array([joint_ticks, *(t.tick for t in (*new.tempos, *new.time_signatures))])]
    times += [track.notes[:, :2].ravel() for track in new.tracks]
    times += [table[:, 0] for track in new.tracks for table in (track.controls, track.bends)]
    unit = math.gcd(new.ticks_per_beat, int(np.gcd.reduce(np.concatenate(times))))
    needed = new.ticks_per_beat // unit
    factor = -(-needed // division)
    return factor if division * factor <= 0x7FFF else 1


def _closing_events(events: Events, joint: int, factor: int) -> list[list[NewEvents]]:
    """For each track chunk, what ends there what still sounds or is held at the joint."""
    closing: list[list[NewEvents]] = [[] for _ in events.track_ends]
    is_before = events.tick * factor <= joint

    def close(row: int, *content: int) -> None:
        chunk = int(events.chunk[row])
        closing[chunk].append(NewEvents.one(joint, CLOSING, bytes(content)))

    for channel in _channels(events):
        rows = rows_in_time(events, 0xB0 | channel)
        rows = rows[is_before[rows]]
        for control in _HELD_CONTROLS:
            of_control = rows[events.first[rows] == control]
            if of_control.size and events.second[of_control[-1]] > 0:
                close(of_control[-1], 0xB0 | channel, control, 0)
        rows = rows_in_time(events, 0xE0 | channel)
        rows = rows[is_before[rows]]
        if rows.size and (events.first[rows[-1]], events.second[rows[-1]]) != (0, 64):
            close(rows[-1], 0xE0 | channel, 0, 64)
    _, _, endless = pair_notes(events)
    for row in endless[is_before[endless]].tolist():
        close(row, 0x80 | int(events.status[row]) & 15, int(events.first[row]), 64)
    return closing


def _channels(events: Events) -> list[int]:
    """Channels in use."""
    is_channel = (events.status >= 0x80) & (events.status < 0xF0)
    return np.unique(events.status[is_channel] & 15).tolist()


def _program(events: Events, chunk: int, channel: int, tick: int) -> int:
    first, last = events.track_rows[chunk : chunk + 2].tolist()
    row = first + int(np.searchsorted(events.tick[first:last], tick, side="right"))
    at = [np.array([value]) for value in (chunk, channel, row, tick)]
    return int(programs_at(events, *at)[0])


def _instruments(events: Events) -> dict[int, tuple[int, bool]]:
    """Program at the end, and whether it is drums, of each channel in use."""
    taken: dict[int, tuple[int, bool]] = {}
    for channel in _channels(events):
        rows = rows_in_time(events, 0xC0 | channel)
        program = int(events.first[rows[-1]]) if rows.size else 0
        taken[channel] = (program, channel == DRUM_CHANNEL)
    return taken


def _continued(
    file: MidiFile, events: Events, chunk: int, parts: list[NewEvents], factor: int
) -> bytes:
    """The content of a track chunk with events added in the order of time, and then its end."""
    whole = file.tracks[chunk]
    new_ticks, new_contents = in_order(parts)
    if factor == 1 and not new_ticks:
        return file.data[whole.start : whole.end]
    first, last = events.track_rows[chunk : chunk + 2].tolist()
    old_ticks: list[int] = (events.tick[first:last] * factor).tolist()
    statuses: list[int] = events.status[first:last].tolist()
    bodies: list[int] = events.body[first:last].tolist()
    places: list[int] = [*events.start[first:last].tolist(), int(events.track_ends[chunk])]
    # Nothing is taken apart before the first new event.
    kept = bisect_right(old_ticks, new_ticks[0]) if factor == 1 else 0
    ticks: list[int] = []
    contents: list[bytes] = []
    next_new = 0
    has_running_status = True
    for at, tick in enumerate(old_ticks[kept:], kept):
        # At one tick the old events come first.
        until = bisect_left(new_ticks, tick, next_new)
        if until > next_new:
            ticks += new_ticks[next_new:until]
            contents += new_contents[next_new:until]
            next_new = until
            has_running_status = False
        content = file.data[bodies[at] : places[at + 1]]
        if content[0] < 0x80 and not has_running_status:
            content = bytes((statuses[at],)) + content
        has_running_status = has_running_status or statuses[at] < 0xF0
        ticks.append(tick)
        contents.append(content)
    ticks += new_ticks[next_new:]
    contents += new_contents[next_new:]
    before = old_ticks[kept - 1] if kept else 0
    end = int(events.end_ticks[chunk]) * factor
    ticks.append(max(end, ticks[-1] if ticks else before))
    contents.append(meta(END_OF_TRACK, b""))
    return file.data[whole.start : places[kept]] + timed(ticks, contents, before)
