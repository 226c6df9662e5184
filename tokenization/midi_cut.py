"""The beginning of a MIDI file, for music that goes on from a place inside it."""

from __future__ import annotations

import numpy as np

from tokenization.midi_bytes import CLOSING, NewEvents, Scale, chunk_bytes, in_order, meta, timed
from tokenization.midi_chunks import open_midi
from tokenization.midi_events import END_OF_TRACK, pair_notes, scan_events


def cut_midi(data: bytes, end_ticks: int, ticks_per_beat: int) -> bytes:
    """The file up to `end_ticks` (of `ticks_per_beat`); what stands before keeps its bytes.

    Events at or after the end go; notes that sound there are ended.

    Raises MidiError where the file is damaged.
    """
    file = open_midi(data, "the prompt")
    events = scan_events(file)
    end = Scale(file.division, ticks_per_beat).tick(end_ticks)
    begins, ends, endless = pair_notes(events)
    sounding = (events.tick[begins] < end) & (events.tick[ends] >= end)
    rows = np.concatenate([begins[sounding], endless[events.tick[endless] < end]])
    contents: list[bytes] = []
    for chunk, whole in enumerate(file.tracks):
        first, last = events.track_rows[chunk : chunk + 2].tolist()
        kept = first + int(np.searchsorted(events.tick[first:last], end))
        place = int(events.start[kept]) if kept < last else int(events.track_ends[chunk])
        before = int(events.tick[kept - 1]) if kept > first else 0
        closing = [
            NewEvents.one(
                end,
                CLOSING,
                bytes((0x80 | int(events.status[row]) & 15, int(events.first[row]), 64)),
            )
            for row in rows[events.chunk[rows] == chunk].tolist()
        ]
        ticks, parts = in_order(closing)
        tail = timed([*ticks, max(end, before)], [*parts, meta(END_OF_TRACK, b"")], before)
        contents.append(file.data[whole.start : place] + tail)
    remaining = iter(contents)
    pieces = [file.data[: file.header.end]]
    for chunk in file.chunks:
        content = next(remaining) if chunk.kind == b"MTrk" else file.data[chunk.start : chunk.end]
        pieces.append(chunk_bytes(chunk.kind, content))
    return b"".join(pieces)
