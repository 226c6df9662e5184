"""New music in a MIDI file, at its end or in place of some notes; other events stay unchanged."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.midi.chunks import MidiFile, chunk_bytes, open_midi
from tokenization.midi.cut import note_ends
from tokenization.midi.drums import Place, drum_places, places_of_drums
from tokenization.midi.events import (
    DRUM_CHANNEL,
    MAX_TICK,
    Events,
    instruments_of_rows,
    pair_notes,
    programs_at,
    rows_in_time,
    scan_events,
    tables_by_channel,
)
from tokenization.midi.mpe import MEMBER_BEND_CENTS
from tokenization.midi.tuning import ChannelEvents, Tuning
from tokenization.midi.writer import (
    BEFORE,
    CLOSING,
    NOTE_OFF,
    NewEvents,
    Ordered,
    Scale,
    bend_events,
    control_events,
    drum_channel,
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
from tokenization.score import Score, Track

# Controllers that stay in effect until changed: modulation and the three pedals.
_HELD_CONTROLS: Final = (1, 64, 66, 67)
# Volume and expression, with their defaults.
_LOUDNESS: Final = ((7, 100), (11, 127))
_FADED: Final = 16
"""A channel is faded out if its volume or expression at the splice is below this."""
_AUDIBLE: Final = 64
"""Minimum level to which a faded channel is raised, if it was ever that loud."""
_TICK_BITS: Final = 32
_ROWS_AT_ONCE: Final = 1 << 16
"""Number of events processed at once, which bounds the memory of Python lists."""


def append_to_midi(
    prompt: bytes, new: Score, splice_ticks: int, drums: Mapping[Place, bool] | None = None
) -> bytes:
    """Return the MIDI file with new music appended, with every event of the prompt unchanged.

    - The bytes of the prompt's tracks up to their end-of-track are kept, and so are chunks of other
      kinds. Only a RIFF wrapper and bytes that are not part of an event are removed. An event
      of the prompt that comes after a new event keeps its time; if it used running status, its
      status byte is written out.
    - New tracks with a `chunk` continue that track chunk on their `channel`. Others get a new
      chunk, on their own channel if no other instrument uses it; format 0 then becomes 1. If all
      channels are in use, new instruments share them, with a program change before each note that
      needs one.
    - At the splice, a held pedal, modulation, a pitch bend and notes that never end each get one
      closing event. A bend that holds for most notes of its channel is its tuning, to which the
      channel returns; if all channels have the same, instruments on new channels get it too.
      Tempos and time signatures of `new` after the splice are added to the first track.
    - If the prompt has faded out a channel that new notes use (volume or expression below 16), one
      event at the splice restores the level that it had when notes last sounded, or sets it to 64
      if this is higher and the channel was ever that loud. Other channels keep their level.
    - The resolution is kept. If it is too coarse for the times of `new`, the resolution and all
      times of the prompt are multiplied by an integer.

    Args:
        prompt: a MIDI file.
        new: new music, in its own ticks from the start of the file.
        splice_ticks: where the new music begins, in the ticks of `new`.
        drums: chunks and channels of which it is known whether they are drums, as in `read_midi`.

    Raises:
        MidiError: the prompt is not a MIDI file, or the result would not be valid.
        ValueError: `new` continues a chunk that the prompt does not have.
    """
    merger = _Merger.of(prompt, new, splice_ticks, drums)
    events, scale, additions = merger.events, merger.scale, merger.additions
    num_tracks, splice = len(additions), scale.ticks(splice_ticks)
    sounding = pair_notes(events)
    drum_channels = merger.drum_channels()
    tuning = _tuning(events, sounding, splice, drum_channels)
    for parts, closing in zip(
        additions, _closing_events(events, sounding[2], tuning, splice), strict=True
    ):
        parts += closing
    additions[0].append(NewEvents.of(tempo_events(new, scale, after=splice_ticks)))
    taken = _instruments(events, drum_channels)
    programs_of: dict[tuple[int, int], int] = {}
    targets: list[list[NewEvents]] = []
    channels: list[int] = []
    for track in new.tracks:
        chunk, channel = track.chunk, track.channel
        _check_chunk(chunk, num_tracks)
        if chunk is None or programs_of.get((chunk, channel), track.program) != track.program:
            channel = free_channel(track, taken)
            targets.append(merger.new_track(track, channel, splice))
        else:
            if (chunk, channel) not in programs_of:
                (program,) = programs_at(events, chunk, channel, np.array([splice])).tolist()
                if program != track.program:
                    event = program_event(track, channel, splice)
                    additions[chunk].append(NewEvents.of([event]))
            programs_of[chunk, channel] = track.program
            targets.append(additions[chunk])
        taken[channel] = (track.program, track.is_drum)
        channels.append(channel)
        targets[-1] += _tuning_events(tuning, track, channel, splice)
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
    playing = {at for at, track in zip(channels, new.tracks, strict=True) if len(track)}
    for channel in sorted(playing):
        for chunk, event in _volume_events(events, sounding, channel, splice):
            additions[chunk].append(event)
    return merger.result()


def replace_in_midi(
    data: bytes,
    new: Score,
    tracks: Iterable[Track],
    start_ticks: int,
    stop_ticks: int,
    drums: Mapping[Place, bool] | None = None,
) -> bytes:
    """Return the MIDI file in which new music replaces the notes of some tracks between two times.

    - Only the note-ons and note-offs of these notes are removed: those of `tracks`, by their
      `chunk`, `channel` and `program`, that begin from the start on and before the stop. All other
      events keep their bytes, times and order, and every track its length unless a new note ends
      later. An event after a new or a removed one gets a new delta time, and its status byte if it
      used running status.
    - The notes of new tracks with a `chunk` are added to that track chunk on their `channel`, if
      the channel has their program there. Others get a new chunk on a channel that is not in use,
      or on that of the same instrument; format 0 then becomes 1.
    - A new note ends where its pitch is struck again on its channel by a note that is kept. It is
      left out if its pitch sounds there in the same chunk.
    - Controllers, bends, programs, tempos and time signatures of `new` are not written. An
      instrument on a new channel has the tuning that all channels share, as in `append_to_midi`.
    - The resolution is kept, or multiplied by an integer as in `append_to_midi`.

    Args:
        data: a MIDI file.
        new: new notes, in ticks of their own from the start of the file.
        tracks: tracks of the file, of which notes are removed.
        start_ticks: the earliest onset of notes that are removed, in the ticks of `new`.
        stop_ticks: the time from which on notes are kept.
        drums: see `append_to_midi`.

    Raises:
        MidiError: this is not a MIDI file, the result would not be valid, or all channels are in
            use.
        ValueError: `new` continues a chunk that the file does not have.
    """
    merger = _Merger.of(data, new, start_ticks, drums)
    events, scale, additions = merger.events, merger.scale, merger.additions
    window = [
        -(-ticks * scale.numerator // scale.denominator) for ticks in (start_ticks, stop_ticks)
    ]
    places = {(track.chunk, track.channel, track.program) for track in tracks}
    kept, removed = _without_notes(events, places, *window)
    used, drum_channels = set(_channels(events)), merger.drum_channels()
    tuning = _tuning(events, pair_notes(events), MAX_TICK, drum_channels)
    for track in new.tracks:
        _check_chunk(track.chunk, len(additions))
        if not len(track):
            continue
        rows = _scale_notes(track.notes, scale)
        start = int(rows[0, 0])
        chunk, channel = track.chunk, track.channel
        if (
            chunk is None
            or (programs_at(events, chunk, channel, rows[:, 0]) != track.program).any()
        ):
            chunk, channel = None, _unused_channel(track, events, used, start, drum_channels)
        rows = kept.fitted(rows, chunk, channel)
        if not len(rows):
            continue
        if chunk is not None:
            target = additions[chunk]
        else:
            # on a channel that is in use, a program change would apply to the other notes too
            target = merger.new_track(track, channel, start, has_program=channel not in used)
            if channel not in used:
                target += _tuning_events(tuning, track, channel, start)
            used.add(channel)
        ons, offs = note_events([replace(track, notes=rows)], [channel], Scale())
        ranks = np.where(offs.ranks == NOTE_OFF, BEFORE, offs.ranks)
        target += [ons, offs._replace(ranks=ranks)]
    return merger.result(removed)


def _scale_notes(notes: NDArray[np.int64], scale: Scale) -> NDArray[np.int64]:
    """Convert the times of notes (n, 4)."""
    begins, ends = scale.ticks(notes[:, 0]), scale.ticks(notes[:, 0] + notes[:, 1])
    return np.column_stack([begins, ends - begins, notes[:, 2:]])


@dataclass(frozen=True)
class _Merger:
    """A MIDI file to which events are added."""

    file: MidiFile
    events: Events
    """In ticks of the result."""
    factor: int
    """Factor of the resolution."""
    scale: Scale
    """Converts ticks of the new music to those of the result."""
    additions: list[list[NewEvents]]
    """New events of each track chunk."""
    drums: Mapping[Place, bool]
    """Which chunks and channels are drums, as far as it is known."""
    new_parts: list[list[NewEvents]]
    """Events of each new track chunk."""

    @classmethod
    def of(
        cls, data: bytes, new: Score, start_ticks: int, drums: Mapping[Place, bool] | None
    ) -> _Merger:
        """Return a file without new events.

        The new music begins at `start_ticks`. Raises MidiError.
        """
        file = open_midi(data, "the prompt")
        events = scan_events(file)
        factor = _resolution_factor(file.division, new, start_ticks)
        scale = Scale(file.division * factor, new.ticks_per_beat)
        times = [scale.ticks(start_ticks), scale.ticks(new.end_ticks)]
        last = max(int(events.end_ticks.max()) * factor, *times)
        if last > MAX_TICK:
            raise MidiError(
                f"{file.name}: with the new music, the file ends at tick {last}, expected at most "
                f"{MAX_TICK}; use a part of it"
            )
        if factor > 1:
            ticks, end_ticks = events.tick * factor, events.end_ticks * factor
            division = file.division * factor
            events = replace(events, tick=ticks, end_ticks=end_ticks, division=division)
        places = {**(drums or {}), **drum_places(new)}
        additions: list[list[NewEvents]] = [[] for _ in events.track_ends]
        return cls(file, events, factor, scale, additions, places, [])

    def drum_channels(self) -> set[int]:
        """Return the channels of the file with drums, and the drum channel if it has no melody."""
        of_place = places_of_drums(self.file, self.events, self.drums)
        drums = {channel for (_, channel), is_drum in of_place.items() if is_drum}
        melodies = {channel for (_, channel), is_drum in of_place.items() if not is_drum}
        return drums | ({DRUM_CHANNEL} - melodies)

    def new_track(
        self, track: Track, channel: int, tick: int, *, has_program: bool = True
    ) -> list[NewEvents]:
        """Add a track chunk with a name and perhaps a program, and return its events."""
        events = instrument_events(track, channel, tick)
        self.new_parts.append([NewEvents.of(events if has_program else events[:-1])])
        return self.new_parts[-1]

    def result(self, removed: NDArray[np.int64] | None = None) -> bytes:
        """Return the file with the new events and without the `removed` rows. Raises MidiError."""
        file, events, factor = self.file, self.events, self.factor
        is_removed = np.zeros(len(events.tick), bool)
        if removed is not None:
            is_removed[removed] = True
        contents = [
            _merged(file, events, chunk, parts, is_removed, is_scaled=factor > 1)
            for chunk, parts in enumerate(self.additions)
        ]
        num_tracks = len(self.additions) + len(self.new_parts)
        if num_tracks > 0xFFFF:
            raise MidiError(
                f"{file.name}: with the new music, the file has {num_tracks} tracks, expected at "
                "most 65535; use fewer tracks"
            )
        midi_format = 1 if file.format == 0 and num_tracks > 1 else file.format
        rest = file.data[14 : file.header.end]
        header = header_bytes(midi_format, num_tracks, file.division * factor, rest)
        counts = [sum(len(part.ticks) for part in parts) for parts in self.new_parts]
        owners = np.arange(len(counts)).repeat(counts)
        contents_of_new = tracks_bytes([*chain(*self.new_parts)], owners, len(counts))
        added = (chunk_bytes(b"MTrk", content) for content in contents_of_new)
        return b"".join([header, file.with_tracks(contents), *added])


def _check_chunk(chunk: int | None, num_tracks: int) -> None:
    if chunk is not None and not 0 <= chunk < num_tracks:
        raise ValueError(f"new music continues chunk {chunk}, expected 0 to {num_tracks - 1}")


class _Kept(NamedTuple):
    """The notes of a file that are kept, which limit new notes of their pitch."""

    of_channel: NDArray[np.int64]
    """Note-ons: channel, pitch and tick, packed and sorted."""
    of_chunk: NDArray[np.int64]
    """Note-ons and note-offs: chunk, channel, pitch and tick, packed and sorted."""
    begins: NDArray[np.int64]
    """Onsets of notes: chunk, channel, pitch and tick, packed and sorted."""
    ends: NDArray[np.int64]
    """Ends of the same notes; an endless note ends at the maximum tick."""

    def fitted(self, rows: NDArray[np.int64], chunk: int | None, channel: int) -> NDArray[np.int64]:
        """Return the notes (n, 4) of a channel, cut or left out; see `replace_in_midi`."""
        begins, pitches = rows[:, 0], rows[:, 2]
        keys = channel << 7 | pitches
        ends = np.minimum(begins + rows[:, 1], _next(self.of_channel, keys, begins))
        fits = np.ones(len(rows), bool)
        if chunk is not None:
            keys = chunk << 11 | keys
            ends = np.minimum(ends, _next(self.of_chunk, keys, begins))
            # notes of one key end in the order in which they begin
            before = np.searchsorted(self.begins, keys << _TICK_BITS | begins, side="right")
            ended = np.searchsorted(self.ends, keys << _TICK_BITS | begins, side="right")
            fits = before == ended
        return np.column_stack([begins, ends - begins, rows[:, 2:]])[fits]


def _next(
    packed: NDArray[np.int64], keys: NDArray[np.int64], ticks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first tick (n,) of each key after a tick; a very late one if there is none."""
    at = np.searchsorted(packed, keys << _TICK_BITS | ticks, side="right")
    following = np.append(packed, -1)[at]
    return np.where(following >> _TICK_BITS == keys, following & (1 << _TICK_BITS) - 1, MAX_TICK)


def _without_notes(
    events: Events, places: Collection[tuple[int | None, int, int]], start: int, stop: int
) -> tuple[_Kept, NDArray[np.int64]]:
    """Return the notes that are kept, and the rows (n,) of the others.

    The others begin from `start` to `stop` in the `places`: chunk, channel and program.
    """
    begins, ends, endless = pair_notes(events)
    all_begins = np.append(begins, endless).astype(np.int64)
    until = np.append(events.tick[ends], np.full(len(endless), MAX_TICK))
    order = np.argsort(all_begins, kind="stable")
    sorted_rows = all_begins[order]
    channel = (events.status[sorted_rows] & 15).astype(np.int64)
    chunk, tick = events.chunk[sorted_rows], events.tick[sorted_rows]
    place = instruments_of_rows(events, chunk, channel, sorted_rows, tick)
    removed_places = [at << 11 | of << 7 | program for at, of, program in places if at is not None]
    is_out = np.isin(place, removed_places) & (tick >= start) & (tick < stop)
    is_removed = np.zeros(len(all_begins), bool)
    is_removed[order] = is_out
    removed = [all_begins[is_removed], ends[is_removed[: len(ends)]].astype(np.int64)]

    is_key = (events.status & 0xE0) == 0x80  # note-offs and note-ons
    is_key[np.concatenate(removed)] = False
    rows = np.flatnonzero(is_key)
    is_on = ((events.status[rows] & 0x10) > 0) & (events.second[rows] > 0)
    keys = (events.status[rows].astype(np.int64) & 15) << 7 | events.first[rows]
    of_channel = (keys << _TICK_BITS | events.tick[rows])[is_on]
    keys |= events.chunk[rows] << 11
    kept = all_begins[~is_removed]
    of_note = (events.status[kept].astype(np.int64) & 15) << 7 | events.first[kept]
    of_note |= events.chunk[kept] << 11
    columns = (
        of_channel,
        keys << _TICK_BITS | events.tick[rows],
        of_note << _TICK_BITS | events.tick[kept],
        of_note << _TICK_BITS | until[~is_removed],
    )
    return _Kept(*map(np.sort, columns)), np.concatenate(removed)


def _unused_channel(
    track: Track, events: Events, used: Collection[int], start: int, drum_channels: Collection[int]
) -> int:
    """Return a channel that is not in use, or on which only the track's instrument plays.

    The latter applies from the tick `start` on. Raises MidiError if there is none. Only drums use
    the drum channel, and member channels of a zone are the last choice.
    """
    if track.is_drum:
        return drum_channel(_instruments(events, drum_channels))
    members = events.members
    melodic = [channel for channel in range(16) if channel != DRUM_CHANNEL]
    melodic.sort(key=members.__contains__)
    for channel in melodic:
        if channel not in used:
            return channel
    for channel in melodic:
        rows = rows_in_time(events, 0xC0 | channel)
        programs = set(events.first[rows].tolist()) or {0}
        if (
            channel not in drum_channels
            and programs == {track.program}
            and (events.tick[rows[:1]] <= start).all()
        ):
            return channel
    raise MidiError(
        "the file uses all channels, expected a free one for the new notes; remove a track, or "
        "choose an instrument that the file has"
    )


def _resolution_factor(division: int, new: Score, splice_ticks: int) -> int:
    """Return the factor of the resolution with which different times of `new` stay different."""
    times = [np.array([splice_ticks, *(t.tick for t in (*new.tempos, *new.time_signatures))])]
    times += [track.notes[:, :2].ravel() for track in new.tracks]
    times += [table[:, 0] for track in new.tracks for table in (track.controls, track.bends)]
    unit = math.gcd(new.ticks_per_beat, int(np.gcd.reduce(np.concatenate(times))))
    needed = new.ticks_per_beat // unit
    factor = -(-needed // division)
    return factor if division * factor <= 0x7FFF else 1


def _tuning(
    events: Events,
    notes: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    until: int,
    drum_channels: Collection[int],
) -> Tuning:
    """Return the tuning of all channels up to a tick.

    `notes` are the rows returned by `pair_notes`.
    """
    begins, ends, endless = notes
    rows = np.append(begins, endless)
    stops = np.minimum(np.append(events.tick[ends], np.full(len(endless), until)), until)
    is_before = events.tick[rows] < until
    rows, stops = rows[is_before], stops[is_before]
    spans, channel = np.column_stack([events.tick[rows], stops]), events.status[rows] & 15
    bends, controls = (tables_by_channel(events, kind, until) for kind in (0xE0, 0xB0))
    members = events.members
    played: dict[int, ChannelEvents] = {}
    for number in _channels(events):
        channel_events = ChannelEvents(spans[channel == number], bends[number], controls[number])
        channel_events = channel_events._replace(is_drum=number in drum_channels)
        if number in members:
            channel_events = channel_events._replace(bend_range=MEMBER_BEND_CENTS)
        played[number] = channel_events
    return Tuning.of(played)


def _tuning_events(tuning: Tuning, track: Track, channel: int, tick: int) -> list[NewEvents]:
    """Return the events at a tick that tune a track which joins a file on a channel."""
    tuned = tuning.joining(replace(track, controls=[], bends=[]), channel, tick)
    return [control_events(tuned, channel, Scale()), bend_events(tuned, channel, Scale())]


def _closing_events(
    events: Events, endless: NDArray[np.int32], tuning: Tuning, splice: int
) -> list[list[NewEvents]]:
    """Return events that end notes, held controllers and bends at the splice, by track chunk."""
    closing: list[list[NewEvents]] = [[] for _ in events.track_ends]

    def close(row: int, *content: int) -> None:
        chunk = int(events.chunk[row])
        closing[chunk].append(NewEvents.one(splice, CLOSING, bytes(content)))

    members = events.members  # new music does not play on these
    for channel in _channels(events):
        rows = rows_in_time(events, 0xB0 | channel, splice)
        for control in _HELD_CONTROLS:
            of_control = rows[events.first[rows] == control]
            if of_control.size and events.second[of_control[-1]] > 0:
                close(of_control[-1], 0xB0 | channel, control, 0)
        rows = rows_in_time(events, 0xE0 | channel, splice)
        bend = tuning.bend(channel)
        if rows.size and channel not in members and tuning.last_bend(channel) != bend:
            close(rows[-1], 0xE0 | channel, *reversed(divmod(bend + 8192, 128)))
    for chunk, ends in note_ends(events, endless[events.tick[endless] <= splice], splice):
        closing[chunk].append(ends)
    return closing


def _volume_events(
    events: Events,
    notes: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    channel: int,
    splice: int,
) -> Iterator[tuple[int, NewEvents]]:
    """Yield the events that undo a fade of the channel at the splice, each with its track chunk.

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
    """Return the channels with at least one message."""
    is_channel = (events.status >= 0x80) & (events.status < 0xF0)
    return np.unique(events.status[is_channel] & 15).tolist()


def _instruments(events: Events, drum_channels: Collection[int]) -> dict[int, tuple[int, bool]]:
    """Return the last program of each channel in use, and whether it has drums.

    Member channels of a zone are in use if there are others.
    """
    taken: dict[int, tuple[int, bool]] = {}
    for channel in _channels(events):
        rows = rows_in_time(events, 0xC0 | channel)
        program = int(events.first[rows[-1]]) if rows.size else 0
        taken[channel] = (program, channel in drum_channels)
    members = events.members
    if not members.union(taken, [DRUM_CHANNEL]).issuperset(range(16)):
        taken |= dict.fromkeys(members - {DRUM_CHANNEL}, (-1, False))
    return taken


def _merged(
    file: MidiFile,
    events: Events,
    chunk: int,
    parts: list[NewEvents],
    is_removed: NDArray[np.bool_],
    *,
    is_scaled: bool,
) -> bytes:
    """Return a track chunk's content with new events, without rows `is_removed`, and its end."""
    whole = file.tracks[chunk]
    new = Ordered.of(parts)
    first, last = events.track_rows[chunk : chunk + 2].tolist()
    removed = np.flatnonzero(is_removed[first:last]) + first
    kept: NDArray[np.int64] | slice = slice(first, last)  # needs no memory
    if len(removed):
        kept = np.flatnonzero(~is_removed[first:last]) + first
    is_changed = is_scaled or len(removed) > 0 or len(new.ticks) > 0
    if not (is_changed or whole.missing) and events.is_whole[chunk]:
        return file.data[whole.start : whole.end]
    # Each new event comes after the existing ones at its tick, or before them.
    ticks = events.tick[kept]
    places = np.searchsorted(ticks, new.ticks, side="right")
    if new.is_before.any():
        places = np.where(new.is_before, np.searchsorted(ticks, new.ticks), places)
    existing = np.append(0, ticks)[places]
    content, offsets = timed(new, np.maximum(existing, np.append(0, new.ticks)[:-1]))
    written = bytearray()
    now = next_new = 0
    has_running_status = True
    copied = whole.start  # the file has been copied up to here
    needs_status = _without_status(file, events, kept) if isinstance(kept, np.ndarray) else removed
    if is_scaled:
        changed = np.arange(first, last, dtype=np.int64)
    else:
        after = removed + 1
        behind = _behind_new(events, first, kept, places)
        changed = [behind, needs_status, removed, after[after < last]]
        changed = np.unique(np.concatenate(changed))
    for at in range(0, len(changed), _ROWS_AT_ONCE):
        rows = changed[at : at + _ROWS_AT_ONCE]
        columns = (events.start, events.body, events.status, events.tick)
        columns = [column[rows].tolist() for column in columns]
        before = events.tick[np.maximum(rows - 1, first)].tolist()
        lost = np.isin(rows, needs_status).tolist()
        out = is_removed[rows].tolist()
        nexts = events.start[np.minimum(rows + 1, len(events.start) - 1)]
        stops = np.where(rows + 1 < last, nexts, events.track_ends[chunk]).tolist()
        index = rows - first if isinstance(kept, slice) else np.searchsorted(kept, rows)
        untils = np.searchsorted(places, index, side="right").tolist()
        for start, body, status, tick, tick_before, is_lost, is_out, stop, until in zip(
            *columns, before, lost, out, stops, untils, strict=True
        ):
            if start > copied:
                written += file.data[copied:start]
                now = tick_before
            if is_out:
                copied = stop
                continue
            if until > next_new:
                written += content[offsets[next_new] : offsets[until]]
                now, next_new, has_running_status = int(new.ticks[until - 1]), until, False
            written += variable_length(tick - now)
            if file.data[body] < 0x80 and (is_lost or not has_running_status):
                written.append(status)
            has_running_status = has_running_status or status < 0xF0
            now, copied = tick, body
    written += file.data[copied : int(events.track_ends[chunk])]
    written += content[offsets[next_new] :]
    now = max([int(ticks[-1]) if len(ticks) else 0, *new.ticks[-1:].tolist()])
    return bytes(written + end_of_track(max(int(events.end_ticks[chunk]) - now, 0)))


def _without_status(file: MidiFile, events: Events, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the `kept` rows of a track whose running status is that of a removed row."""
    messages = kept[events.status[kept] < 0xF0]
    status = events.status[messages]
    changes = messages[status != np.append(-1, status[:-1])]
    data = np.frombuffer(file.data, np.uint8)
    return changes[data[events.body[changes]] < 0x80]


def _behind_new(
    events: Events, first: int, kept: NDArray[np.int64] | slice, places: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the `kept` rows of a track whose bytes change because of new events.

    After a new event, the next delta time changes, and the next channel message needs a status
    byte. `first` is the first row of the track, and `places` are the numbers of kept rows before
    each new event.
    """
    status = events.status[kept]
    behind = np.unique(places[places < len(status)])
    if behind.size:
        messages = np.flatnonzero(status < 0xF0)
        following = np.searchsorted(messages, behind)
        behind = np.append(behind, messages[following[following < len(messages)]])
    return behind + first if isinstance(kept, slice) else kept[behind]
