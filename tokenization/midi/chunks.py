"""The chunks of a Standard MIDI File.

Files that are not MIDI files are rejected here with an error message, before their contents are
used. Of damaged files, all tracks that can be found are read.

Source: The Complete MIDI 1.0 Detailed Specification (MMA, 1996), Standard MIDI Files 1.0, and
RP-029 for the RIFF wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenization.errors import MidiError

MAX_FILE_BYTES: Final = 16 * 2**20
"""Maximum file size; an hour of dense piano music takes less than 1 MiB."""


class Chunk(NamedTuple):
    """Type of a chunk (four letters), and start and end of its content in the file."""

    kind: bytes
    start: int
    end: int
    missing: int = 0
    """Bytes missing from the content because the file is cut off."""


@dataclass(frozen=True)
class MidiFile:
    """A file split into chunks, with a valid header; the tracks are not parsed yet."""

    name: str
    data: bytes
    """The file without a RIFF wrapper."""
    format: int
    division: int
    """Ticks per quarter note."""
    header: Chunk
    chunks: tuple[Chunk, ...]
    """All chunks after the header, including those of unknown kinds."""
    tracks: tuple[Chunk, ...]
    """The track chunks among them; only the last can be cut off."""
    damage: tuple[str, ...] = ()
    """What is wrong with the chunks, a clause each; cut-off tracks are not among them."""

    def with_tracks(self, contents: Iterable[bytes]) -> bytes:
        """Return bytes of all chunks after the header, with new contents of the track chunks."""
        remaining = iter(contents)
        return b"".join(
            chunk_bytes(
                chunk.kind,
                next(remaining) if chunk.kind == b"MTrk" else self.data[chunk.start : chunk.end],
            )
            for chunk in self.chunks
        )


def chunk_bytes(kind: bytes, content: bytes) -> bytes:
    """Return the bytes of a chunk: type, length, content."""
    return kind + len(content).to_bytes(4, "big") + content


def open_midi(data: bytes, name: str) -> MidiFile:
    """Split a file into chunks, and unwrap RIFF files.

    Raises:
        MidiError: the file is not a MIDI file, is cut off before its first track, or does not count
            time in fractions of a quarter note.
    """
    if len(data) > MAX_FILE_BYTES:
        raise MidiError(
            f"{name}: the file has more than {MAX_FILE_BYTES >> 20} MB, expected a MIDI file of a "
            "few hundred kB; choose another file or a part of it"
        )
    if not data:
        raise MidiError(f"{name}: the file is empty, expected a MIDI file; choose another file")
    if data[:4] == b"RIFF" and data[8:12] == b"RMID":
        data = _unwrap(data, name)
    if data[:4] != b"MThd":
        raise MidiError(
            f"{name}: this is not a MIDI file (its header MThd is missing); choose a .mid file, or "
            "export one from your music program"
        )
    header = Chunk(b"MThd", 8, 8 + int.from_bytes(data[4:8], "big"))
    if header.end > len(data) or header.end < 14:
        raise MidiError(
            f"{name}: the file is cut off or damaged in its header; export or download it again"
        )
    midi_format, claimed, division = (int.from_bytes(data[i : i + 2], "big") for i in (8, 10, 12))
    if midi_format > 2:
        raise MidiError(
            f"{name}: unknown MIDI format {midi_format}, expected 0, 1 or 2; export the file again"
        )
    if division == 0 or division >= 0x8000:
        problem = "the division is 0" if division == 0 else "time is counted in film frames (SMPTE)"
        raise MidiError(
            f"{name}: {problem}, expected ticks per quarter note; export the file with musical time"
        )
    chunks, num_wrong, rest = _chunks(data, header.end, claimed, name)
    tracks = tuple(chunk for chunk in chunks if chunk.kind == b"MTrk")
    damage: list[str] = []
    if num_wrong:
        damage.append(f"{num_wrong} track{'s have' if num_wrong > 1 else ' has'} a wrong length")
    if claimed > len(tracks):
        damage.append(f"the file ends after {len(tracks)} of {claimed} tracks")
    if rest:
        are = "byte after the last track is" if rest == 1 else "bytes after the last track are"
        damage.append(f"{rest:,} {are} not part of the music")
    return MidiFile(name, data, midi_format, division, header, chunks, tracks, tuple(damage))


def _unwrap(data: bytes, name: str) -> bytes:
    """Return the MIDI file inside a RIFF file: the content of its chunk `data`."""
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            return data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    raise MidiError(f"{name}: this RIFF file contains no MIDI data; export it again as a .mid file")


def _chunks(data: bytes, at: int, claimed: int, name: str) -> tuple[tuple[Chunk, ...], int, int]:
    """Return the chunks from an offset on, how many have a wrong length, and the bytes left over.

    A chunk that should be longer than the file, although another track follows, ends where that
    track begins. Bytes after the last of the `claimed` tracks that are not a chunk are left over.
    """
    chunks: list[Chunk] = []
    num_tracks = num_wrong = 0
    while at + 8 <= len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "big")
        end = at + 8 + size
        missing = max(end - len(data), 0)
        is_track = kind == b"MTrk"
        if missing and not is_track and num_tracks >= claimed:
            break
        following = data.find(b"MTrk", at + 8 if is_track else at - 3) if missing else -1
        if following >= 0 or (is_track and missing and size > MAX_FILE_BYTES):
            num_wrong += 1
            end, missing = following if following >= 0 else len(data), 0
        if is_track or end == at + 8 + size <= len(data):
            chunks.append(Chunk(kind, at + 8, min(end, len(data)), missing))
            num_tracks += is_track
        at = min(end, len(data))
        if missing:
            break
    if num_tracks == 0:
        raise MidiError(
            f"{name}: the file has no track chunk, expected at least one; "
            "export or download it again"
        )
    if num_tracks > 0xFFFF:
        raise MidiError(
            f"{name}: the file has {num_tracks} tracks, expected at most 65535; export it again"
        )
    return tuple(chunks), num_wrong, len(data) - at
