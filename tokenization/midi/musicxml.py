"""MusicXML files as MIDI files, read by music21."""

# pyright: basic
# music21 lacks complete type hints.
from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any, Final, TypeVar
from xml.etree import ElementTree

from tokenization.errors import MidiError
from tokenization.midi.reader import read_midi
from tokenization.midi.writer import write_midi
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_XML: Final = 20 << 20
"""Maximum size of the XML in bytes; an opera has about this size, and takes minutes."""
TICKS: Final = 480
"""Ticks in a quarter note, of which a triplet has a whole number."""
_STEPS: Final = ("C", "C1", "D", "D1", "E", "F", "F1", "G", "G1", "A", "A1", "B")
"""Name and alteration of each pitch class."""
_SHORTEST: Final = 32
"""Irregular bars are counted in these parts of a whole note, or longer ones."""
_VELOCITY: Final = 80
"""Velocity of notes before any dynamics."""

_LEFT_OUT: Final = {
    "lyrics": "note/lyric",
    "chord symbols": "harmony",
    "ornaments": "note/notations/ornaments",
    "articulations": "note/notations/articulations",
    "arpeggios": "note/notations/arpeggiate",
    "fermatas": "note/notations/fermata",
    "hairpins": "direction/direction-type/wedge",
    "pedals": "direction/direction-type/pedal",
    "swing": ".//swing/first",
}
"""What is not read, by its elements in a bar."""

ValueT = TypeVar("ValueT")


def read_music(data: bytes, name: str, *, strict: bool = False) -> tuple[bytes, Score]:
    """Return a MIDI file, or a MusicXML file as a MIDI file, and its score.

    The score's `left_out` says what of MusicXML is not in it. Arguments and errors are those of
    `as_midi` and `read_midi`.
    """
    midi, left_out = _convert(data, name)
    score = read_midi(midi, name=name, strict=strict)
    return midi, replace(score, left_out=left_out, is_notated=is_musicxml(data))


def as_midi(data: bytes, name: str) -> bytes:
    """Return the contents of a MIDI file, or of a MusicXML file as a MIDI file.

    Repeats are played, tied notes are joined, and transposing instruments sound as they do. Written
    dynamics become velocities. Grace notes, and what `_LEFT_OUT` names, are left out. If the first
    bar is a pickup, rests complete it, so that later bar lines stay where they are.

    Args:
        data: contents of the file, compressed (.mxl) or not.
        name: name of the file in errors.

    Raises:
        MidiError: this is MusicXML that cannot be read or has no notes.
    """
    return _convert(data, name)[0]


def _convert(data: bytes, name: str) -> tuple[bytes, str]:
    """Return the MIDI file of `as_midi`, and what it leaves out."""
    if not is_musicxml(data):
        return data, ""
    try:
        # expat bounds entities that grow, and fetches none
        root = ElementTree.fromstring(_unpack(data, name))  # nosec B314
    except (ElementTree.ParseError, zipfile.BadZipFile, ValueError) as error:
        raise _damaged(name, str(error)) from error
    tag = root.tag.rpartition("}")[2]
    if tag != "score-partwise":
        raise MidiError(
            f"{name}: found the XML element {tag}, expected score-partwise; export the piece as "
            "MusicXML or MIDI"
        )
    try:
        import music21
    except ImportError as error:
        raise MidiError(
            f"{name}: MusicXML needs the package music21; install it with pip install music21, or "
            "export the piece as MIDI"
        ) from error
    try:
        num_quarter_tones = _round_quarter_tones(root)
        drums, num_unknown = _pitch_drums(root)
        parsed: Any = music21.converter.parseData(
            ElementTree.tostring(root, encoding="unicode"), format="musicxml"
        )
        score, repeats_played = _score_of(parsed, drums)
    except Exception as error:  # music21 raises many kinds of errors
        raise _damaged(name, str(error) or type(error).__name__) from error
    if not score.num_notes:
        raise MidiError(f"{name}: the file has no notes, expected at least one; choose another")
    counts = {
        ("grace note", "grace notes"): len(root.findall("part/measure/note/grace")),
        ("quarter tone", "quarter tones"): num_quarter_tones,
        ("stroke of unknown drums", "strokes of unknown drums"): num_unknown,
    }
    lost = [f"{n:,} {names[n > 1]}" for names, n in counts.items() if n]
    return write_midi(score), _left_out(root, lost, repeats_played=repeats_played)


def _left_out(root: ElementTree.Element, lost: list[str], *, repeats_played: bool) -> str:
    """Return what was not read, such as `2 grace notes and lyrics`; empty if all was."""
    bars = root.findall("part/measure")
    parts = list(lost)
    for name, elements in _LEFT_OUT.items():
        if any(bar.find(elements) is not None for bar in bars):
            parts.append(name)
    if not repeats_played and any(_repeats(bar) for bar in bars):
        parts.append("repeats")
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _round_quarter_tones(root: ElementTree.Element) -> int:
    """Round alterations, of which music21 knows only some, to semitones; return their number."""
    altered = [
        alter
        for alter in root.iterfind("part/measure/note/pitch/alter")
        if float(alter.text or 0) % 1
    ]
    for alter in altered:
        alter.text = str(floor(float(alter.text or 0) + 0.5))
    return len(altered)


def _repeats(bar: ElementTree.Element) -> bool:
    """Return whether music before the end of a bar is played again after it."""
    jumps = [sound for sound in bar.iter("sound") if {"dacapo", "dalsegno"} & set(sound.keys())]
    return bool(jumps) or bar.find("barline/repeat[@direction='backward']") is not None


def _damaged(name: str, why: str) -> MidiError:
    said = " ".join(why.split())[:200]
    return MidiError(
        f"{name}: this MusicXML cannot be read ({said}); export it again, or export it as MIDI"
    )


def is_musicxml(data: bytes) -> bool:
    """Return whether this looks like a zip archive or XML, as a MIDI file never does."""
    start = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return start.startswith((b"PK\x03\x04", b"<", b"\xff\xfe<", b"\xfe\xff\x00<"))


def _unpack(data: bytes, name: str) -> bytes:
    """Return the XML of a compressed or plain file. Raises MidiError, BadZipFile or ValueError."""
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = _name_of_score(archive)
            if archive.getinfo(member).file_size > MOST_XML:
                raise _too_large(name, archive.getinfo(member).file_size)
            with archive.open(member) as stream:
                data = stream.read(MOST_XML + 1)
    if len(data) > MOST_XML:
        raise _too_large(name, len(data))
    return data


def _too_large(name: str, size: int) -> MidiError:
    return MidiError(
        f"{name}: found {size:,} bytes of XML, expected at most {MOST_XML:,}; export a part of the "
        "piece, or MIDI"
    )


def _name_of_score(archive: zipfile.ZipFile) -> str:
    """Return the name of the score in an archive, from its container or of the first XML file."""
    names = archive.namelist()
    container = "META-INF/container.xml"
    if container in names and archive.getinfo(container).file_size <= 1 << 16:
        for element in ElementTree.fromstring(archive.read(container)).iter():  # nosec B314 - as above
            path = element.get("full-path")
            if element.tag.rpartition("}")[2] == "rootfile" and path in names:
                return str(path)
    for path in names:
        if path.endswith((".xml", ".musicxml")) and not path.startswith("META-INF/"):
            return path
    raise ValueError("the archive contains no score; unpack it if it contains MIDI files")


def _pitch_drums(root: ElementTree.Element) -> tuple[set[str], int]:
    """Give percussion the pitches of its MIDI keys.

    Returns the ids of the parts with drums, and the number of notes without a key, which become
    rests. music21 loses which of several instruments of a part plays a note.
    """
    keys, only_keys = _drum_keys(root)
    drums = {
        part.get("id", "")
        for part in root.iterfind("part-list/score-part")
        if any(channel.text == "10" for channel in part.iterfind("midi-instrument/midi-channel"))
    }
    num_unknown = 0
    for part in root.iterfind("part"):
        for note in part.findall("measure/note"):
            pitch = note.find("unpitched")
            if pitch is None:
                continue
            drums.add(part.get("id", ""))
            instrument = note.find("instrument")
            name = None if instrument is None else instrument.get("id")
            key = keys.get(name, only_keys.get(part.get("id"), -1))
            pitch.clear()
            if not 0 <= key < 128:
                pitch.tag = "rest"
                num_unknown += 1
                continue
            pitch.tag = "pitch"
            step = _STEPS[key % 12]
            octave = str(key // 12 - 1)
            for tag, text in (("step", step[0]), ("alter", step[1:]), ("octave", octave)):
                ElementTree.SubElement(pitch, tag).text = text or "0"
    return drums, num_unknown


def _drum_keys(root: ElementTree.Element) -> tuple[dict[str | None, int], dict[str | None, int]]:
    """Return the MIDI key of each drum by its id, and of parts with a single drum by theirs."""
    keys: dict[str | None, int] = {}
    only_keys: dict[str | None, int] = {}
    for part in root.iterfind("part-list/score-part"):
        part_keys = {
            drum.get("id"): int(key) - 1
            for drum in part.iterfind("midi-instrument")
            if (key := drum.findtext("midi-unpitched", "").strip()).isdecimal()
        }
        keys |= part_keys
        if len(part_keys) == 1:
            only_keys[part.get("id")] = next(iter(part_keys.values()))
    return keys, only_keys


def _score_of(parsed: Any, drums: set[str]) -> tuple[Score, bool]:  # noqa: ANN401
    """Return the score, and whether repeats are played in it."""
    written_parts = list(parsed.parts)
    are_drums = [not drums.isdisjoint(part.groups) for part in written_parts]  # with the part's id
    parts, repeats_played = _play_repeats(written_parts)
    pickup = _pickup(parts[0]) if parts else 0.0
    flat_parts = [part.flatten() for part in parts]
    tempos: dict[int, float] = {}
    metres: dict[int, tuple[int, int]] = {}
    for part in flat_parts:
        for mark in part.getElementsByClass("MetronomeMark"):
            if bpm := mark.getQuarterBPM():
                tempos.setdefault(_ticks(mark.offset, pickup), float(bpm))
        for metre in part.getElementsByClass("TimeSignature"):
            tick = _ticks(metre.offset, pickup if metre.offset else 0.0)
            metres.setdefault(tick, (metre.numerator, metre.denominator))
    metres |= _irregular_metres(parts[0], pickup, metres) if parts else {}
    if tempos and pickup and 0 not in tempos:  # the rests before the first bar have its tempo
        tempos[0] = tempos.pop(min(tempos))
    tracks = tuple(
        track
        for part, is_drum in zip(flat_parts, are_drums, strict=True)
        if len(track := _track_of(part, pickup, is_drum=is_drum))
    )
    # a repeat says again what holds already
    new_tempos = tuple(Tempo(tick, bpm) for tick, bpm in _changes(tempos))
    new_metres = tuple(TimeSignature(tick, *metre) for tick, metre in _changes(metres))
    return Score(TICKS, tracks, new_tempos, new_metres), repeats_played


def _changes(values: dict[int, ValueT]) -> list[tuple[int, ValueT]]:
    """Return values by tick, in order, without those that equal the one before."""
    changes: list[tuple[int, ValueT]] = []
    for tick, value in sorted(values.items()):
        if not changes or changes[-1][1] != value:
            changes.append((tick, value))
    return changes


def _play_repeats(parts: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return the parts with repeats played, if they all can be and stay equally long.

    Also returns whether this has made the music longer.
    """
    sounding = [part.toSoundingPitch() for part in parts]
    try:
        expanded = [part.expandRepeats() for part in sounding]
    except Exception:  # noqa: BLE001 - repeats that make no sense are not played
        return sounding, False
    lengths = {round(float(part.highestTime), 6) for part in sounding}
    expanded_lengths = {round(float(part.highestTime), 6) for part in expanded}
    if len(expanded_lengths) > len(lengths):
        return sounding, False
    return expanded, max(expanded_lengths, default=0.0) > max(lengths, default=0.0)


def _pickup(part: Any) -> float:  # noqa: ANN401
    """Return the quarter notes that a first bar lacks; 0 if it is whole or the only one."""
    bars = list(part.getElementsByClass("Measure"))
    if len(bars) < 2:
        return 0.0
    whole = float(bars[0].barDuration.quarterLength)
    missing = whole - float(bars[0].highestTime)
    return missing if 0 < missing < whole else 0.0


def _irregular_metres(
    part: Any,  # noqa: ANN401
    pickup: float,
    metres: dict[int, tuple[int, int]],
) -> dict[int, tuple[int, int]]:
    """Return metres by tick that keep bar lines where they are, although a bar is long or short.

    Bars that are whole again, such as those before and after a repeat sign, have no metre of their
    own.
    """
    changes: dict[int, tuple[int, int]] = {}
    line, metre = 0, (4, 4)  # the last bar that begins on a bar line of the metres
    for bar in part.getElementsByClass("Measure"):
        tick = _ticks(bar.offset, pickup if bar.offset else 0.0)
        new = metres.get(tick)
        is_whole = bar.highestTime == bar.barDuration.quarterLength
        is_displaced = (tick - line) * metre[1] % (4 * TICKS * metre[0]) != 0
        length = Fraction(tick - line, 4 * TICKS)  # in whole notes
        if is_displaced and is_whole and new is None and _SHORTEST % length.denominator == 0:
            unit = max(1, metre[1] // length.denominator)
            changes[line] = (length.numerator * unit, length.denominator * unit)
            changes[tick] = new = metre
        if new is not None or not is_displaced:
            line, metre = tick, new or metre
    return changes


def _ticks(offset: Any, pickup: float) -> int:  # noqa: ANN401
    """Return ticks of an offset in quarter notes, after the rests that complete a pickup."""
    return round((float(offset) + pickup) * TICKS)


def _track_of(part: Any, pickup: float, *, is_drum: bool) -> Track:  # noqa: ANN401
    """Return the notes of a flat part."""
    marks = [(float(mark.offset), mark.volumeScalar) for mark in part.getElementsByClass("Dynamic")]
    instrument = next(iter(part.getElementsByClass("Instrument")), None)
    rows: list[tuple[int, int, int, int]] = []
    tied: dict[tuple[int, int], int] = {}  # row of each pitch whose tie is open at a tick
    for note in part.notes:
        if note.duration.isGrace or not note.duration.quarterLength:
            continue
        scalars = [scalar for offset, scalar in marks if offset <= float(note.offset) and scalar]
        velocity = round(127 * scalars[-1]) if scalars else _VELOCITY
        start = _ticks(note.offset, pickup)
        end = max(_ticks(note.offset + note.duration.quarterLength, pickup), start + 1)
        for member in getattr(note, "notes", (note,)):  # of a chord
            pitch = int(member.pitch.midi)
            tie = member.tie.type if member.tie else ""
            # stripTies of music21 loses ties of chords while another voice plays
            row = tied.pop((start, pitch), None) if tie in ("stop", "continue") else None
            if row is None:
                row = len(rows)
                rows.append((start, end - start, pitch, velocity))
            else:
                first_start, _, _, first_velocity = rows[row]
                rows[row] = (first_start, end - first_start, pitch, first_velocity)
            if tie in ("start", "continue"):
                tied[end, pitch] = row
    name = str(getattr(part, "partName", None) or getattr(instrument, "partName", None) or "")
    program = getattr(instrument, "midiProgram", None)
    program = 0 if is_drum else _program_named(name) if program is None else program
    track = Track.of(sorted(set(rows)), program, is_drum=is_drum)
    return Track(track.notes, track.program, is_drum, name)


def _program_named(name: str) -> int:
    """Return the program of an instrument with a name in any of several languages; else 0."""
    from music21.exceptions21 import InstrumentException
    from music21.instrument import fromString

    try:
        return fromString(name).midiProgram or 0
    except InstrumentException:
        return 0
