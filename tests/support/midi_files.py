"""MIDI files written byte by byte (ordinary, unusual and broken ones), and a naive parser."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple

from hypothesis import strategies as st

from tokenization.midi import event_bytes
from tokenization.score import Score, Tempo, TimeSignature, Track

END = b"\x00\xff\x2f\x00"
SYSEX = b"\x00\xf0\x05\x7e\x7f\x09\x01\xf7"


def quantity(value: int, *, padding: int = 0) -> bytes:
    """A variable-length quantity with `padding` superfluous leading bytes."""
    groups = [value >> shift & 0x7F for shift in (21, 14, 7, 0)]
    while len(groups) > 1 + padding and groups[0] == 0:
        groups.pop(0)
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def chunk(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "big") + content


def header(num_tracks: int, midi_format: int = 1, division: int = 480, rest: bytes = b"") -> bytes:
    numbers = (midi_format, num_tracks, division)
    return chunk(b"MThd", b"".join(number.to_bytes(2, "big") for number in numbers) + rest)


def midi_file(*tracks: bytes, midi_format: int = 1, division: int = 480) -> bytes:
    parts = [header(len(tracks), midi_format, division)]
    return b"".join(parts + [chunk(b"MTrk", track) for track in tracks])


def meta(kind: int, content: bytes, delta: int = 0) -> bytes:
    return quantity(delta) + bytes([0xFF, kind]) + quantity(len(content)) + content


def tempo(microseconds: int) -> bytes:
    return meta(0x51, microseconds.to_bytes(3, "big"))


def note(pitch: int, *, delta: int = 0, length: int = 240, channel: int = 0) -> bytes:
    on = quantity(delta) + bytes([0x90 | channel, pitch, 80])
    return on + quantity(length) + bytes([0x80 | channel, pitch, 64])


def melody(count: int = 16) -> bytes:
    return b"".join(note(60 + i % 12) for i in range(count))


def riff(data: bytes) -> bytes:
    odd = b"\x00" * (len(data) % 2)
    info = b"DISP" + (3).to_bytes(4, "little") + b"abc\x00"
    content = b"RMID" + info + b"data" + len(data).to_bytes(4, "little") + data + odd
    return b"RIFF" + len(content).to_bytes(4, "little") + content


class BadFile(NamedTuple):
    name: str
    data: bytes
    outcome: int | str | None
    """Number of notes, or text of the MidiError; None if either is acceptable."""


def bad_files() -> list[BadFile]:
    """32 unusual or broken files. No MIDI library of 2026 reads all of them correctly."""
    good = midi_file(tempo(500_000), melody() + END)
    noise = random.Random(0)
    flipped = bytearray(midi_file(melody(200) + END))
    for _ in range(12):
        flipped[noise.randrange(22, len(flipped))] ^= 1 << noise.randrange(8)
    same = b"".join(b"\x00\x90\x3c\x40" for _ in range(100)) + b"\x83\x60\x80\x3c\x40"
    same += b"".join(b"\x00\x80\x3c\x40" for _ in range(99))
    silent_ends = b"".join(b"\x00\x90\x3c\x40\x60\x90\x3c\x00" for _ in range(12))
    zero = b"".join(note(60 + i, length=0) for i in range(12))
    channels = b"".join(note(60, channel=i) for i in range(16))
    files: list[tuple[str, bytes, int | str | None]] = [
        ("empty", b"", "is empty"),
        ("truncated header", good[:9], "cut off"),
        ("truncated track", good[:-20], 14),
        ("text renamed", b"Dear diary, today I played the piano.", "not a MIDI file"),
        ("division 0", midi_file(melody() + END, division=0), "division is 0"),
        ("film frames", midi_file(melody() + END, division=0xE728), "film frames"),
        (
            "track claims 300 MB",
            header(1) + b"MTrk" + (300_000_000).to_bytes(4, "big") + melody() + END,
            16,
        ),
        ("note-on without note-off", midi_file(melody() + b"\x00\x90\x20\x40" * 3 + END), 16),
        ("note-off without note-on", midi_file(b"\x00\x80\x20\x40" * 3 + melody() + END), 16),
        (
            "time of more than 4 bytes",
            midi_file(melody() + b"\xff\xff\xff\xff\x7f\x90\x3c\x40" + END),
            16,
        ),
        ("tempo 0", midi_file(tempo(0) + melody() + END), 16),
        ("tempo absurd", midi_file(tempo(1) + tempo(0xFFFFFF) + melody() + END), 16),
        ("claims 65535 tracks", header(0xFFFF) + chunk(b"MTrk", melody() + END), 16),
        ("2000 empty tracks", header(2000) + chunk(b"MTrk", END) * 2000, "no notes"),
        ("one pitch at one tick", midi_file(melody() + same + END), 116),
        ("note-on with velocity 0", midi_file(silent_ends + END), 12),
        ("repeated tempo", midi_file(tempo(500_000) * 3 + tempo(400_000) + melody() + END), 16),
        (
            "gap of 1e9 ticks",
            midi_file(note(60) + b"".join(note(60, delta=250_000_000) for _ in range(4)) + END),
            "65,536: the file is damaged, or its music has a gap",
        ),
        (
            "gap over 2^31 ticks",
            midi_file(note(60) + b"".join(note(60, delta=0x0FFFFFFF) for _ in range(9)) + END),
            "expected at most 2,147,483,647: the file is damaged, or its music has a gap",
        ),
        (
            "running status after meta",
            midi_file(b"\x00\x90\x3c\x40" + meta(1, b"x") + b"\x60\x3c\x00" + note(62) + END),
            2,
        ),
        ("data byte over 127", midi_file(melody() + b"\x00\x90\xc8\x40" + END), 16),
        ("format 2", midi_file(*[melody(8) + END] * 3, midi_format=2), 24),
        ("format 0, all channels", midi_file(channels + END, midi_format=0), 16),
        ("no end of track", midi_file(melody()), 16),
        ("notes without length", midi_file(melody() + zero + END), 28),
        (
            "denominator 2^200",
            midi_file(meta(0x58, b"\x04\xc8\x18\x08") + melody() + END),
            16,
        ),
        ("RIFF", riff(good), 16),
        ("random bytes", midi_file(noise.randbytes(400) + END), "damaged"),
        ("flipped bits", bytes(flipped), None),
        (
            "note of 1e8 ticks",
            midi_file(melody(4) + note(60, length=100_000_000) + END),
            "at beat",
        ),
        ("header of 10 bytes", header(1, rest=b"\x01\x02\x03\x04") + good[14:], 16),
        (
            "unknown chunk",
            header(1) + chunk(b"XFIH", b"odd") + chunk(b"MTrk", melody() + END),
            16,
        ),
    ]
    return [BadFile(*file) for file in files]


# ---- a naive parser


class SlowEvent(NamedTuple):
    tick: int
    content: bytes
    """Bytes of the event, with its status byte even if the file omits it."""


class SlowTrack(NamedTuple):
    rows: list[list[int]]
    """Offset, offset of the body, tick, status, and the two numbers of each event."""
    end: int
    """Offset where the events end."""
    tick: int
    ending: int
    """A constant of `event_bytes`, with the offset of the byte that cannot be read."""
    place: int


class _DamageError(Exception):
    """How a track ends too early, and where."""


def _slow_quantity(data: bytes, at: int) -> tuple[int, int]:
    digits = data[at : at + 4]
    if not (match := re.match(rb"[\x80-\xff]*[\x00-\x7f]", digits)):
        is_cut = len(digits) < 4
        raise _DamageError(event_bytes.CUT_NUMBER if is_cut else event_bytes.LONG_NUMBER, at)
    return int("".join(f"{byte & 0x7F:07b}" for byte in match[0]), 2), at + len(match[0])


def slow_scan(data: bytes, at: int = 0) -> SlowTrack:
    """Events of a track chunk, legal or not, without the end-of-track."""
    rows: list[list[int]] = []
    tick = status = 0
    try:
        while at < len(data):
            delta, body = _slow_quantity(data, at)
            if body == len(data):
                raise _DamageError(event_bytes.CUT_TIME, at)
            kind, content = data[body], body + 1
            size = {0xF1: 1, 0xF2: 2, 0xF3: 1}.get(kind, 0)
            if kind in (0xF0, 0xF7, 0xFF):
                size, content = _slow_quantity(data, content + (kind == 0xFF))
            numbers = [data[body + 1] if kind == 0xFF else 0, content]
            if kind < 0xF0:
                if kind >= 0x80:
                    status = kind
                else:
                    kind, content = status, body
                if kind == 0:
                    raise _DamageError(event_bytes.NO_STATUS, body)
                size = 1 if 0xC0 <= kind < 0xE0 else 2
                numbers = [*data[content : content + size], 0][:2]
            if content + size > len(data):
                cut = event_bytes.CUT_MESSAGE if kind < 0xF0 else event_bytes.CUT_EVENT
                raise _DamageError(cut, body)
            if data[body : body + 2] == b"\xff\x2f":
                return SlowTrack(rows, at, tick + delta, event_bytes.ENDED, at)
            tick += delta
            rows.append([at, body, tick, kind, *numbers])
            at = content + size
    except _DamageError as damage:
        return SlowTrack(rows, at, tick, *damage.args)
    return SlowTrack(rows, at, tick, event_bytes.OPEN, at)


def slow_track(data: bytes) -> list[SlowEvent]:
    """Events of a legal track chunk, without the end-of-track."""
    track = slow_scan(data)
    events: list[SlowEvent] = []
    for (_, body, tick, status, *_), (end, *_) in pairwise([*track.rows, [track.end]]):
        omitted = bytes([status]) if data[body] < 0x80 else b""
        events.append(SlowEvent(tick, omitted + data[body:end]))
    return events


def slow_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and content of all chunks, without a RIFF wrapper."""
    if data[:4] == b"RIFF":
        data = data[data.index(b"MThd") :]
    chunks: list[tuple[bytes, bytes]] = []
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        if at + 8 + size > len(data):
            break
        chunks.append((data[at : at + 4], data[at + 8 : at + 8 + size]))
        at += 8 + size
    return chunks


def division_of(data: bytes) -> int:
    """Ticks of a quarter note."""
    at = data.index(b"MThd")
    return int.from_bytes(data[at + 12 : at + 14], "big")


def slow_tracks(data: bytes) -> list[list[SlowEvent]]:
    return [slow_track(content) for kind, content in slow_chunks(data) if kind == b"MTrk"]


class SlowNote(NamedTuple):
    """A note of a file, with the indices of its events in their track."""

    chunk: int
    channel: int
    pitch: int
    begin: int
    end: int | None
    velocity: int
    program: int
    on: int
    off: int | None


Row = Sequence[int]
"""Chunk, tick, status, and two numbers of an event."""


def slow_pairs(rows: Sequence[Row]) -> dict[int, int | None]:
    """Index of the end of each note by that of its begin; None: it never ends."""
    sounding: dict[Row, list[int]] = defaultdict(list)
    ends: dict[int, int | None] = {}
    for index, (chunk, _, status, first, second) in enumerate(rows):
        queue = sounding[chunk, status & 15, first]
        if status >> 4 == 9 and second:
            queue.append(index)
            ends[index] = None
        elif status >> 4 in (8, 9) and queue:
            ends[queue.pop(0)] = index
    return ends


def slow_program(rows: Sequence[Row], index: int, late: float = -1) -> int:
    """The program that the chunk of a note sets before it; 0: only later, -1: never.

    The first one counts for notes before it if it is at most `late` ticks after the first of them.
    """
    chunk, _, status, *_ = rows[index]
    own = [i for i, r in enumerate(rows) if r[0] == chunk and r[2] & 15 == status & 15]
    changes = [i for i in own if rows[i][2] >> 4 == 0xC]
    before = [rows[i][3] for i in changes if i < index]
    if before or not changes:
        return before[-1] if before else -1
    first_note = next(rows[i][1] for i in own if rows[i][2] >> 4 == 9 and rows[i][4])
    _, tick, _, program, _ = rows[changes[0]]
    return program if tick - first_note <= late else 0


def slow_notes(data: bytes) -> list[SlowNote]:
    """The notes of a file, including those that never end."""
    tracks = slow_tracks(data)
    rows = [
        (at, tick, *[*event, 0][:3]) for at, track in enumerate(tracks) for tick, event in track
    ]
    starts = [0, *accumulate(map(len, tracks))]
    notes: list[SlowNote] = []
    for on, off in slow_pairs(rows).items():
        chunk, tick, status, pitch, velocity = rows[on]
        program = slow_program(rows, on, division_of(data) / 4)
        if program < 0:
            others = [row[1:] for row in rows if row[1] <= tick and row[2] == 0xC0 | status & 15]
            program = sorted([(-1, 0, 0), *others], key=itemgetter(0))[-1][2]
        end, index = (None, None) if off is None else (rows[off][1], off - starts[chunk])
        place = (chunk, status & 15, pitch, tick, end, velocity, program, on - starts[chunk], index)
        notes.append(SlowNote(*place))
    return notes


# ---- strategies

TICKS = st.integers(0, 300)


@st.composite
def tracks_of_anything(draw: st.DrawFn) -> bytes:
    """A legal track chunk with events of all kinds, running status and unusual ends."""
    parts: list[bytes] = []
    status = 0
    for _ in range(draw(st.integers(0, 12))):
        delta = quantity(draw(TICKS), padding=draw(st.integers(0, 3)))
        kind = draw(st.sampled_from([0x80, 0x90, 0x90, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF]))
        if kind == 0xFF:
            text = draw(st.binary(max_size=4))
            event = bytes([0xFF, draw(st.sampled_from([1, 3, 5, 0x51, 0x58, 0x7F]))])
            event += quantity(len(text)) + text
        elif kind == 0xF0:
            dump = draw(st.binary(max_size=4))
            event = bytes([draw(st.sampled_from([0xF0, 0xF7]))]) + quantity(len(dump)) + dump
        else:
            # few channels, pitches and controllers, so that events interact
            new = kind | draw(st.integers(0, 1))
            first = draw(st.sampled_from([1, 60, 64]))
            event = bytes([first, draw(st.integers(0, 127))])[: 1 if kind in (0xC0, 0xD0) else 2]
            if new != status or draw(st.booleans()):
                event = bytes([new]) + event
            status = new
        parts.append(delta + event)
    late = quantity(draw(st.sampled_from([0, 5, 5000]))) + END[1:]
    parts.append(draw(st.sampled_from([END, late, late, b"", END + b"junk"])))
    return b"".join(parts)


@st.composite
def files_of_anything(draw: st.DrawFn) -> bytes:
    """A legal file: any format, unknown chunks, a long header, RIFF."""
    tracks = draw(st.lists(tracks_of_anything(), min_size=1, max_size=3))
    midi_format = 0 if len(tracks) == 1 and draw(st.booleans()) else draw(st.sampled_from([1, 2]))
    division = draw(st.sampled_from([4, 7, 24, 96, 100, 480, 0x7FFF]))
    rest = draw(st.sampled_from([b"", b"", b"more"]))
    parts = [header(len(tracks), midi_format, division, rest)]
    for track in tracks:
        parts.append(draw(st.sampled_from([b"", b"", chunk(b"XFIH", b"odd"), chunk(b"junk", b"")])))
        parts.append(chunk(b"MTrk", track))
    data = b"".join(parts)
    return riff(data) if draw(st.integers(0, 4)) == 0 else data


@st.composite
def musical_files(draw: st.DrawFn) -> bytes:
    """Files of few keys, so that notes overlap, repeat and share channels between tracks."""
    tracks: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        content, status = bytearray(), 0
        for _ in range(draw(st.integers(1, 14))):
            content += quantity(draw(st.sampled_from([0, 0, 1, 5, 24, 60])))
            kind = draw(st.sampled_from([0x90, 0x90, 0x90, 0x80, 0xB0, 0xC0, 0xFF, 0xF0]))
            if kind == 0xFF:
                content += b"\xff\x01\x02hi"
            elif kind == 0xF0:
                content, status = content + b"\xf0\x01\xf7", 0
            else:
                event = kind | draw(st.sampled_from([0, 0, 9]))
                if event != status or draw(st.integers(0, 3)) == 0:
                    content.append(event)
                status = event
                content.append(draw(st.sampled_from([60, 61])))
                if kind != 0xC0:
                    content.append(draw(st.sampled_from([0, 40, 90])))
        tracks.append(bytes(content) + (END if draw(st.booleans()) else b"\x30\xff\x2f\x00"))
    midi_format = 0 if len(tracks) == 1 and draw(st.booleans()) else 1
    return midi_file(*tracks, midi_format=midi_format, division=24)


def without_overlaps(notes: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Notes without overlaps at the same pitch, which MIDI can represent unambiguously."""
    free_from: dict[int, int] = {}
    kept: list[tuple[int, int, int, int]] = []
    for onset, duration, pitch, velocity in sorted(notes):
        if onset >= free_from.get(pitch, 0):
            free_from[pitch] = onset + duration
            kept.append((onset, duration, pitch, velocity))
    return kept


def notes_of_a_track(
    start: int = 0, *, shortest: int = 0
) -> st.SearchStrategy[list[tuple[int, int, int, int]]]:
    row = st.tuples(
        st.integers(start, start + 200),
        st.integers(shortest, 60),
        st.integers(0, 127) | st.sampled_from([60, 61]),
        st.integers(1, 127),
    )
    return st.lists(row, min_size=1, max_size=12).map(without_overlaps)


@st.composite
def scores(draw: st.DrawFn, *, shortest: int = 0) -> Score:
    """Scores that MIDI can represent: one instrument per channel, no ambiguous notes."""
    channels = draw(st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True))
    tracks: list[Track] = []
    for number, channel in enumerate(channels):
        rows = sorted(draw(st.lists(st.tuples(TICKS, *[st.integers(0, 127)] * 2), max_size=5)))
        bends = sorted(draw(st.lists(st.tuples(TICKS, st.integers(-8192, 8191)), max_size=5)))
        track = Track(
            draw(notes_of_a_track(shortest=shortest)),  # pyright: ignore[reportArgumentType]
            program=draw(st.integers(0, 127)),
            is_drum=channel == 9,
            # any notes of a track with this name are drums
            name="Drums"
            if channel == 9
            else draw(st.sampled_from(["", "Piano", "Klavier für Élise", "ピアノ"])),
            channel=channel,
            chunk=number + 1,
            controls=rows,  # pyright: ignore[reportArgumentType]
            bends=bends,  # pyright: ignore[reportArgumentType]
        )
        tracks.append(track)
    microseconds = st.integers(1, 0xFFFFFF)
    tempos = draw(st.dictionaries(TICKS, microseconds.map(lambda us: 60e6 / us), max_size=3))
    powers = st.integers(0, 7).map(lambda power: 2**power)
    metres = draw(st.dictionaries(TICKS, st.tuples(st.integers(1, 255), powers), max_size=3))
    return Score(
        ticks_per_beat=draw(st.sampled_from([1, 12, 96, 480, 0x7FFF])),
        tracks=tuple(tracks),
        tempos=tuple(Tempo(tick, bpm) for tick, bpm in tempos.items()),
        time_signatures=tuple(TimeSignature(tick, *metre) for tick, metre in metres.items()),
    )


Mutation = Callable[[bytearray, random.Random], None]


def _flip(data: bytearray, noise: random.Random) -> None:
    data[noise.randrange(len(data))] ^= 1 << noise.randrange(8)


def _replace(data: bytearray, noise: random.Random) -> None:
    data[noise.randrange(len(data))] = noise.choice([0, 0x7F, 0x80, 0x90, 0xC0, 0xF0, 0xF7, 0xFF])


def _delete(data: bytearray, noise: random.Random) -> None:
    start = noise.randrange(len(data))
    del data[start : start + noise.randrange(1, 5)]


def _insert(data: bytearray, noise: random.Random) -> None:
    at = noise.randrange(len(data) + 1)
    data[at:at] = noise.randbytes(noise.randrange(1, 5))


def _repeat(data: bytearray, noise: random.Random) -> None:
    start, at = noise.randrange(len(data)), noise.randrange(len(data))
    data[at:at] = data[start : start + noise.randrange(1, 40)]


def _cut(data: bytearray, noise: random.Random) -> None:
    del data[noise.randrange(1, len(data)) :]


_MUTATIONS: list[Mutation] = [_flip, _flip, _replace, _replace, _delete, _insert, _repeat, _cut]


def mutated(data: bytes, noise: random.Random) -> bytes:
    """A file with random damage in a few places."""
    damaged = bytearray(data)
    for _ in range(noise.choice([1, 1, 1, 2, 4, 8])):
        if len(damaged) > 1:
            noise.choice(_MUTATIONS)(damaged, noise)
    return bytes(damaged)
