"""Cutting of a MIDI file at a time, so that the music can be continued from there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenization.midi.chunks import open_midi
from tokenization.midi.events import (
    TEMPO,
    TIME_SIGNATURE,
    Events,
    meta_events,
    metre_rows,
    pair_notes,
    scan_events,
    tempo_rows,
)
from tokenization.midi.writer import CLOSING, NewEvents, Ordered, Scale, end_of_track, meta, timed


def cut_midi(data: bytes, end_ticks: int, ticks_per_beat: int) -> bytes:
    """Return a MIDI file up to `end_ticks` (of `ticks_per_beat`); earlier events keep their bytes.

    Events at or after the end are removed, except tempos and time signatures at the end, which
    apply to the music that follows. Notes that sound at the end are ended there.

    Raises MidiError if this is not a MIDI file.
    """
    file = open_midi(data, "the prompt")
    events = scan_events(file)
    end = Scale(file.division, ticks_per_beat).ticks(end_ticks)
    begins, ends, endless = pair_notes(events)
    sounding = begins[(events.tick[begins] < end) & (events.tick[ends] >= end)]
    closing: list[list[NewEvents]] = [[] for _ in file.tracks]
    for chunk, parts in note_ends(events, sounding, end):
        closing[chunk].append(parts)
    for chunk, parts in note_ends(events, endless[events.tick[endless] < end], end):
        closing[chunk].append(parts)
    del begins, ends, endless, sounding
    for kind, rows in (
        (TEMPO, tempo_rows(file, events)[0]),
        (TIME_SIGNATURE, metre_rows(file, events)[0]),
    ):
        metas, starts, stops = meta_events(events, kind)
        last: list[int] = rows[events.tick[rows] == end][-1:].tolist()  # the last one applies
        for row in last:
            at = int(np.searchsorted(metas, row))
            content = meta(kind, file.data[starts[at] : stops[at]])
            closing[int(events.chunk[row])].append(NewEvents.one(end, CLOSING, content))
    contents: list[bytes] = []
    for chunk, whole in enumerate(file.tracks):
        first, last = events.track_rows[chunk : chunk + 2].tolist()
        kept = first + int(np.searchsorted(events.tick[first:last], end))
        place = int(events.start[kept]) if kept < last else int(events.track_ends[chunk])
        before = int(events.tick[kept - 1]) if kept > first else 0
        new = Ordered.of(closing[chunk])
        newest = int(new.ticks[-1]) if len(new.ticks) else before
        tail, _ = timed(new, np.append(before, new.ticks)[:-1])
        tail += end_of_track(max(end - newest, 0))
        contents.append(file.data[whole.start : place] + tail)
    return file.data[: file.header.end] + file.with_tracks(contents)


def note_ends(
    events: Events, rows: NDArray[np.int32], tick: int
) -> Iterator[tuple[int, NewEvents]]:
    """Yield the note-offs at a tick for the notes that begin in `rows`, by track chunk.

    Each note gets its own, even if several have one pitch: a note-off ends only the earliest.
    """
    keys = events.chunk[rows] << 11 | (events.status[rows] & 15) << 7 | events.first[rows]
    keys.sort()
    chunks, starts = np.unique(keys >> 11, return_index=True)
    stops = np.append(starts[1:], len(keys))
    for chunk, start, stop in zip(chunks.tolist(), starts.tolist(), stops.tolist(), strict=False):
        of_chunk = keys[start:stop]
        size = len(of_chunk)
        columns = (np.full(size, tick), np.full(size, CLOSING))
        status, pitch = 0x80 | of_chunk >> 7 & 15, of_chunk & 127
        yield chunk, NewEvents.messages(*columns, status, pitch, 64)
