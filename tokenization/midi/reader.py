"""Reading of MIDI files as scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import MAX_FILE_BYTES, MidiFile, open_midi
from tokenization.midi.drums import Guess, Place, find_drums
from tokenization.midi.events import (
    NAME,
    Events,
    describe_damage,
    metre_rows,
    note_table,
    pair_notes,
    scan_events,
    tables_by_channel,
    tempo_rows,
    too_long,
)
from tokenization.midi.mpe import note_bends
from tokenization.midi.texts import decode_text, detect_encoding
from tokenization.score import (
    MAX_BEATS,
    NO_NOTES,
    Score,
    Tempo,
    TimeSignature,
    Track,
    nearest_ratio,
)

# Limits that bound memory, hundreds of times larger than music needs.
MAX_NOTES: Final = 500_000
MAX_TRACKS: Final = 1024
MAX_TEMPOS: Final = 100_000
MAX_TIME_SIGNATURES: Final = 10_000
MAX_CONTROLS: Final = 1_000_000
MAX_REST_BEATS: Final = 64
"""Quarter notes of rests at the end of a file that are read; longer silence is an artefact."""
_LAST_TEXT: Final = 0x0F
"""Meta events of the types 1 to 15 are texts: names, lyrics, copyright and so on."""
_MOST_GUESSES: Final = 3
"""Number of tracks that a notice about drums names."""
_NEAR: Final = 24
"""An end-of-track is on a bar line if it is at most this part of a quarter note away from it."""


def read_midi(
    source: bytes | str | Path,
    *,
    name: str | None = None,
    strict: bool = False,
    drums: Mapping[Place, bool] | None = None,
) -> Score:
    """Read notes, controllers, tempos and time signatures of a MIDI file.

    There is one track for each combination of track chunk, channel and program with notes; the
    channels of an MPE zone are one (`find_homes`). Its controls and bends are those of its channel,
    from all chunks. See `drums` for those that are drums. A note-off ends the earliest
    sounding note of its pitch. Notes that never end, tempos of 0 and invalid time signatures are
    ignored. Of several tempos or time signatures at one tick, the last applies. Rests at the end
    are read if the end-of-track is on a bar line. Of a damaged file,
    all that can be understood is read, and the score's `damage` describes the rest: a file may be
    cut off, lengths may be wrong, a track is read up to the first byte that is not part of an
    event, and data bytes over 127 are read as 127.

    Args:
        source: path or contents of the file.
        name: name of the file in errors.
        strict: whether a damaged file is an error.
        drums: track chunks and channels of which it is known whether they are drums, such as those
            of an earlier version of the file. Others are found by `find_drums`.

    Raises:
        MidiError: the file cannot be read, is not a MIDI file, has no notes, has a note after
            `MAX_BEATS`, or exceeds another limit of this module.
    """
    if not isinstance(source, bytes):
        name = name or str(source)
        try:
            with Path(source).open("rb") as stream:
                source = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise MidiError(
                f"{name}: the file cannot be read ({error.strerror}); choose another file"
            ) from error
    file = open_midi(source, name or "the file")
    events = scan_events(file)
    begins, ends, endless = pair_notes(events)
    damage = describe_damage(file, events)
    if strict and damage:
        raise MidiError(
            f"{file.name}: {damage}; expected an undamaged file, export or download it again"
        )
    if not begins.size:
        problem = "no note of the file ends" if endless.size else "the file has no notes"
        problem = f"{damage}, and no note is complete" if damage else problem
        raise MidiError(f"{file.name}: {problem}, expected at least one; choose another file")
    # Notes that never end are counted as well, since the new music of `append_to_midi` ends them.
    num_notes = len(begins) + len(endless)
    if num_notes > MAX_NOTES:
        raise MidiError(
            f"{file.name}: the file has {num_notes} notes, expected at most {MAX_NOTES}; "
            "use a part of it"
        )
    limit = MAX_BEATS * file.division
    last = max(int(events.tick[ends].max()), int(events.tick[begins].max()) + 1)
    if last > limit:
        beat = last // file.division
        raise too_long(
            file, events, f"a note ends at beat {beat:,}, expected at most {MAX_BEATS:,}"
        )
    tracks, guesses = _tracks(file, events, begins, ends, drums)
    metres = _time_signatures(file, events)
    return Score(
        ticks_per_beat=file.division,
        tracks=tracks,
        tempos=_tempos(file, events),
        time_signatures=metres,
        end_ticks=_end_ticks(file, events, tracks, metres),
        damage=damage,
        guesses=guesses,
    )


def _end_ticks(
    file: MidiFile, events: Events, tracks: tuple[Track, ...], metres: tuple[TimeSignature, ...]
) -> int:
    """Return the tick at which the rests at the end of a file end; 0 if there are none.

    Programs write the end-of-track at any distance from the music. It counts if it is on a bar line
    and at most `MAX_REST_BEATS` after the last note.
    """
    end = int(events.end_ticks.max())
    rest = end - max(track.end_ticks for track in tracks)
    if not 0 < rest <= MAX_REST_BEATS * file.division:
        return 0
    start, numerator, denominator = 0, 4, 4
    for metre in metres:
        if metre.tick <= end:
            start, numerator, denominator = metre
    whole = 4 * file.division * numerator  # a bar has whole / denominator ticks
    bars = nearest_ratio((end - start) * denominator, whole)
    line = start + nearest_ratio(bars * whole, denominator)
    return line if abs(line - end) * _NEAR <= file.division else 0


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
    """Return indices into `ticks`, sorted by time, of the last at each tick up to `MAX_BEATS`."""
    order = np.argsort(ticks, kind="stable")
    ticks = ticks[order]
    is_kept = ticks <= MAX_BEATS * file.division
    is_kept[:-1] &= ticks[1:] > ticks[:-1]
    kept = order[is_kept]
    if len(kept) > most:
        raise MidiError(
            f"{file.name}: the file has {len(kept)} changes of {what}, expected at most {most}; "
            "remove some of them and export the file again"
        )
    return kept


def _names(file: MidiFile, events: Events) -> dict[int, str]:
    """Return names of track chunks that have one; all texts of a file decide on the encoding."""
    rows, contents, ends = events.metas
    is_text = (events.first[rows] > 0) & (events.first[rows] <= _LAST_TEXT)
    rows, contents, ends = rows[is_text], contents[is_text], ends[is_text]
    texts = [
        file.data[start:end] for start, end in zip(contents.tolist(), ends.tolist(), strict=True)
    ]
    encoding = detect_encoding(texts)
    names: dict[int, str] = {}
    columns = (events.chunk[rows].tolist(), (events.first[rows] == NAME).tolist(), texts)
    for chunk, is_name, text in zip(*columns, strict=True):
        if is_name and chunk not in names:
            names[chunk] = decode_text(text, encoding)
    return names


def _tracks(
    file: MidiFile,
    events: Events,
    begins: NDArray[np.int32],
    ends: NDArray[np.int32],
    drums: Mapping[Place, bool] | None,
) -> tuple[tuple[Track, ...], str]:
    """Return the tracks, and a description of those that are drums, or are not, by a guess."""
    notes, key = note_table(events, begins, ends)
    firsts = np.append(0, np.flatnonzero(key[1:] != key[:-1]) + 1)
    if len(firsts) > MAX_TRACKS:
        raise MidiError(
            f"{file.name}: the file has {len(firsts)} instruments, expected at most "
            f"{MAX_TRACKS}; export it again with fewer tracks"
        )
    names = _names(file, events)
    instruments: list[int] = key[firsts].tolist()
    channels = {key >> 7 & 15 for key in instruments}
    limit = MAX_BEATS * file.division
    controls = _by_channel(events, 0xB0, limit, channels)
    bends = _by_channel(events, 0xE0, limit, channels)
    total = sum(map(len, (*controls.values(), *bends.values())))
    if total > MAX_CONTROLS:
        raise MidiError(
            f"{file.name}: the file has {total} controllers and bends, expected at most "
            f"{MAX_CONTROLS}; remove some of them and export it again"
        )
    edges = [*firsts.tolist(), len(key)]
    tables = [_fixed(notes[start:stop]) for start, stop in pairwise(edges)]
    places = [
        (instrument >> 11, instrument >> 7 & 15, instrument & 127, names.get(instrument >> 11, ""))
        for instrument in instruments
    ]
    are_drums, guesses = find_drums(file, events, places, tables, drums)
    bends_of_notes = note_bends(events, events.homes, (begins, ends), file.division)
    tracks: list[Track] = []
    for (chunk, channel, program, name), table, is_drum in zip(
        places, tables, are_drums, strict=True
    ):
        track = Track(NO_NOTES, program, is_drum, name, channel, chunk)
        tables = {"notes": table, "controls": controls[channel], "bends": bends[channel]}
        if (place := chunk << 4 | channel) in bends_of_notes:
            tables["note_bends"] = _fixed(bends_of_notes[place])
        tracks.append(track.with_tables(**tables))
    return tuple(tracks), _describe_guesses(guesses, places)


def _describe_guesses(
    guesses: Sequence[tuple[int, Guess]], places: Sequence[tuple[int, int, int, str]]
) -> str:
    """Describe which tracks are drums, or are not, by a guess."""
    clauses: list[str] = []
    for number, guess in guesses[:_MOST_GUESSES]:
        printable = (c if c.isprintable() else " " for c in places[number][3])
        name = " ".join("".join(printable).split())[:40]
        said = f"track {number + 1}" + (f" ({name})" if name else "")
        what = "drums" if guess.is_drum else "a melody"
        clauses.append(f"{said} on channel {places[number][1] + 1} is read as {what} {guess.why}")
    if more := max(len(guesses) - _MOST_GUESSES, 0):
        clauses.append(f"so are {more} others" if more > 1 else "so is one other")
    return ", and ".join(clauses)


def _by_channel(
    events: Events, kind: int, limit: int, channels: set[int]
) -> dict[int, NDArray[np.int64]]:
    """Return read-only tables of controllers (0xB0) or bends (0xE0) of channels up to a tick.

    The tracks of a channel share them, since copies could fill the memory.
    """
    tables = tables_by_channel(events, kind, limit)
    return {channel: _fixed(tables[channel]) for channel in channels}


def _fixed(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a read-only copy that owns its memory."""
    table = rows.copy()
    table.setflags(write=False)
    return table
