"""Reading of MIDI files as scores."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import MAX_FILE_BYTES, MidiFile, open_midi
from tokenization.midi.events import (
    DRUM_CHANNEL,
    NAME,
    Events,
    meta_events,
    metre_rows,
    pair_notes,
    programs_at,
    rows_in_time,
    scan_events,
    tempo_rows,
)
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track

# Limits that bound memory, hundreds of times larger than music needs.
MAX_NOTES: Final = 500_000
MAX_TRACKS: Final = 1024
MAX_TEMPOS: Final = 100_000
MAX_TIME_SIGNATURES: Final = 10_000
MAX_CONTROLS: Final = 1_000_000


def read_midi(source: bytes | Path, *, name: str | None = None) -> Score:
    """Reads notes, controllers, tempos and time signatures of a MIDI file.

    There is one track for each combination of track chunk, channel and program with notes. Its
    controls and bends are those of its channel, from all chunks. A note-off ends the earliest
    sounding note of its pitch. Notes that never end, tempos of 0 and invalid time signatures are
    ignored. Of several tempos or time signatures at one tick, the last applies. If a file is cut
    off at its end, its intact part is read, and the score's `damage` describes the rest.

    Args:
        source: path or contents of the file.
        name: name of the file in errors.

    Raises:
        MidiError: the file cannot be read, is not a MIDI file, is damaged, has no notes, has a note
            after `MAX_BEATS`, or exceeds another limit of this module.
    """
    if not isinstance(source, bytes):
        name = name or str(source)
        try:
            with source.open("rb") as stream:
                source = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise MidiError(
                f"{name}: the file cannot be read ({error.strerror}); choose another file"
            ) from error
    file = open_midi(source, name or "the file")
    events = scan_events(file)
    begins, ends, _ = pair_notes(events)
    damage = _damage(file, events)
    if not begins.size:
        found = f"{damage}, and no note is complete" if damage else "the file has no notes"
        raise MidiError(f"{file.name}: {found}, expected at least one; choose another file")
    if len(begins) > MAX_NOTES:
        raise MidiError(
            f"{file.name}: the file has {len(begins)} notes, expected at most {MAX_NOTES}; "
            "use a part of it"
        )
    limit = MAX_BEATS * file.division
    last = int(max(events.tick[ends].max(), events.tick[begins].max() + 1))
    if last > limit:
        raise MidiError(
            f"{file.name}: a note ends at beat {last // file.division}, expected at most "
            f"{MAX_BEATS}; remove the gap in the music and export the file again"
        )
    return Score(
        ticks_per_beat=file.division,
        tracks=_tracks(file, events, begins, ends),
        tempos=_tempos(file, events),
        time_signatures=_time_signatures(file, events),
        damage=damage,
    )


def _damage(file: MidiFile, events: Events) -> str:
    """Describes where a file is cut off and how much of it can be read; empty if it is complete."""
    last = file.tracks[-1]
    if events.is_cut:
        size = last.end - last.start + last.missing
        read = int(events.track_ends[-1]) - last.start
        return (
            f"the file is cut off in track {len(file.tracks)}, of which {read:,} of {size:,} bytes "
            "can be read"
        )
    if file.missing_tracks:
        whole = len(file.tracks)
        return f"the file ends after {whole} of {whole + file.missing_tracks} tracks"
    return ""


def _tempos(file: MidiFile, events: Events) -> tuple[Tempo, ...]:
    rows, microseconds = tempo_rows(file, events)
    kept = _last_at_each_tick(file, events.tick[rows], MAX_TEMPOS, "tempo")
    bpm: list[float] = (60e6 / microseconds[kept]).tolist()
    return tuple(map(Tempo, events.tick[rows[kept]].tolist(), bpm))


def _time_signatures(file: MidiFile, events: Events) -> tuple[TimeSignature, ...]:
    rows, numerator, denominator = metre_rows(file, events)
    kept = _last_at_each_tick(file, events.tick[rows], MAX_TIME_SIGNATURES, "metre")
    ticks: list[int] = events.tick[rows[kept]].tolist()
    metres = (numerator[kept].tolist(), denominator[kept].tolist())
    return tuple(map(TimeSignature, ticks, *metres))


def _last_at_each_tick(
    file: MidiFile, ticks: NDArray[np.int64], most: int, what: str
) -> NDArray[np.int64]:
    """Indices into `ticks`, sorted by time, of the last one at each tick up to `MAX_BEATS`."""
    order = np.argsort(ticks, kind="stable")
    is_last = np.append(np.diff(ticks[order]) > 0, True)[: len(order)]
    kept = order[is_last & (ticks[order] <= MAX_BEATS * file.division)]
    if len(kept) > most:
        raise MidiError(
            f"{file.name}: the file has {len(kept)} changes of {what}, expected at most {most}; "
            "remove some of them and export the file again"
        )
    return kept


def _names(file: MidiFile, events: Events) -> dict[int, str]:
    """Names of the track chunks that have one."""
    rows, content, end = meta_events(events, NAME)
    chunks, firsts = np.unique(events.chunk[rows], return_index=True)
    return {
        chunk: _text(file.data[content[first] : end[first]])
        for chunk, first in zip(chunks.tolist(), firsts.tolist(), strict=True)
    }


def _text(content: bytes) -> str:
    """Decodes a name as UTF-8 if possible, else as Latin 1, which accepts all bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _tracks(
    file: MidiFile,
    events: Events,
    begins: NDArray[np.int32],
    ends: NDArray[np.int32],
) -> tuple[Track, ...]:
    tick, chunk, channel = events.tick[begins], events.chunk[begins], events.status[begins] & 15
    columns = (tick, events.tick[ends] - tick, events.first[begins], events.second[begins])
    notes = np.stack(columns, axis=1, dtype=np.int64)
    key = chunk << 11 | channel << 7 | programs_at(events, chunk, channel, begins, tick)
    order = np.argsort(key, kind="stable")
    keys, firsts = np.unique(key[order], return_index=True)
    instruments = [(key >> 11, key >> 7 & 15, key & 127) for key in keys.tolist()]
    if len(instruments) > MAX_TRACKS:
        raise MidiError(
            f"{file.name}: the file has {len(instruments)} instruments, expected at most "
            f"{MAX_TRACKS}; export it again with fewer tracks"
        )
    names = _names(file, events)
    limit = MAX_BEATS * file.division
    controls: dict[int, NDArray[np.int64]] = {}
    bends: dict[int, NDArray[np.int64]] = {}
    for channel in {channel for _, channel, _ in instruments}:
        rows = rows_in_time(events, 0xB0 | channel, limit)
        columns = (events.tick[rows], events.first[rows], events.second[rows])
        controls[channel] = np.stack(columns, axis=1, dtype=np.int64)
        rows = rows_in_time(events, 0xE0 | channel, limit)
        bend = (events.second[rows] << 7 | events.first[rows]) - 8192
        bends[channel] = np.stack([events.tick[rows], bend], axis=1)
        # The tracks of a channel share read-only tables, since copies could fill the memory.
        controls[channel].setflags(write=False)
        bends[channel].setflags(write=False)
    total = sum(map(len, (*controls.values(), *bends.values())))
    if total > MAX_CONTROLS:
        raise MidiError(
            f"{file.name}: the file has {total} controllers and bends, expected at most "
            f"{MAX_CONTROLS}; remove some of them and export it again"
        )
    return tuple(
        Track(
            notes[rows],
            program=program,
            is_drum=channel == DRUM_CHANNEL,
            name=names.get(chunk, ""),
            channel=channel,
            chunk=chunk,
            controls=controls[channel],
            bends=bends[channel],
        )
        for (chunk, channel, program), rows in zip(
            instruments, np.split(order, firsts[1:]), strict=True
        )
    )
