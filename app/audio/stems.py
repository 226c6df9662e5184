"""Renders each track of a score separately with the same gain, and writes mixes and archives.

Stems are stored on disk as raw 16-bit samples, with holes for silence, so that mixes can be summed
quickly and no stem has to stay in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import wave
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.audio.length import check_length
from app.audio.loudness import gain_for
from app.audio.render import Audio, cannot_write, save_audio
from app.audio.synth import BLOCK
from app.audio.synth.mixer import Mixer
from app.audio.synth.soundfont import SoundError, default_soundfont, open_soundfont
from app.compose.tracks import track_names
from app.files import safe_name
from relpe.files import atomic_write
from tokenization.score import Score

MOST_SECONDS = 3600.0
"""Maximum total duration of all tracks, 635 MB at 44,100 Hz; longer pieces have no stems."""
MOST_MIXES = 16
"""Maximum number of mixes that leave out tracks, per folder; the oldest ones are removed."""
_AT_ONCE = threading.BoundedSemaphore(2)
"""Limits simultaneous renderings, each of which uses one core and memory for two mixes."""
_FULL_SCALE = 32767
_CHANNELS = 2
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)

_Number = TypeVar("_Number", np.int16, np.float32)
_Samples = np.ndarray[tuple[int, int], np.dtype[np.int16]]


@dataclass(frozen=True)
class SoundFiles:
    """Paths of the audio files of a piece, whether or not they exist."""

    folder: Path
    name: str
    """Name of the files, without suffix."""
    tracks: Collection[int]
    """IDs of all tracks, in the order of the score."""

    def left_out(self, without: Collection[int]) -> list[int]:
        """Return the IDs among `without` that exist; unknown IDs are ignored."""
        return [number for number in self.tracks if number in set(without)]

    def mix(self, without: Collection[int] = (), suffix: str = ".flac") -> Path:
        """Return the path of the mix of all tracks except some."""
        part = ""
        if left_out := self.left_out(without):
            ids = "-".join(map(str, left_out))
            if len(ids) > 24:  # file systems allow 255 bytes for the whole name
                ids = hashlib.blake2b(ids.encode(), digest_size=6).hexdigest()
            part = f"_without-{ids}"
        return self.folder / f"{self.name}{part}{suffix}"

    @property
    def archive(self) -> Path:
        """Path of the archive of all tracks."""
        return self.folder / f"{self.name}_stems.zip"

    def make_room(self) -> None:
        """Remove the oldest mixes; safe if other processes do the same."""
        mixes: list[tuple[float, Path]] = []
        for path in self.folder.glob("*_without-*"):
            with suppress(FileNotFoundError):
                mixes.append((path.stat().st_mtime, path))
        for _, path in sorted(mixes)[: -MOST_MIXES + 1]:
            path.unlink(missing_ok=True)


def in_use(path: Path) -> bool:
    """Return whether a file exists; if so, set its modification time to now.

    `Path.touch` is not used because it would create a file that has just been removed.
    """
    with suppress(FileNotFoundError):
        os.utime(path)
        return True
    return False


@dataclass(frozen=True, eq=False)
class Stems:
    """The rendered score and its tracks, all with the gain of the whole mix."""

    files: SoundFiles
    """Paths of mixes and archives."""
    sample_rate: int
    whole: _Samples
    """The mix of all tracks (n, 2), full scale 32767; memory-mapped, like `tracks`."""
    tracks: Mapping[int, _Samples]
    """Stems by track ID; empty if the piece is too long."""
    names: Mapping[int, str]
    """Track names by ID, in the order of the score."""
    raw: Path | None = None
    """The folder of the raw files."""

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.whole) / self.sample_rate

    def mix(self, without: Collection[int] = (), suffix: str = ".flac") -> Path:
        """Write an audio file of all tracks except some; unknown IDs are ignored.

        Raises:
            SoundError: the piece is too long for stems, or the file cannot be written.
        """
        path = self.files.mix(without, suffix)
        if not in_use(path):
            samples = self.whole
            if left_out := self.files.left_out(without):
                samples = self._sum([n for n in self.names if n not in left_out])
                self.files.make_room()
            save_audio(Audio(samples, self.sample_rate, "builtin"), path)
        return path

    def zip(self) -> Path:
        """Write an archive with a WAV file for each track; equal stems give equal bytes.

        Raises:
            SoundError: the piece is too long for stems, or the file cannot be written.
        """
        path = self.files.archive
        if in_use(path):
            return path
        self._check_apart()
        try:
            with (
                atomic_write(path) as beside,
                zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            ):
                for place, (number, title) in enumerate(self.names.items(), start=1):
                    member = f"{self.files.name}_stems/{place:02d}_{safe_name(title)}.wav"
                    info = zipfile.ZipInfo(member, _ZIP_DATE)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = 0o644 << 16
                    with archive.open(info, "w") as file, wave.open(file, "wb") as sound:
                        shape = (_CHANNELS, 2, self.sample_rate, len(self.whole))
                        sound.setparams((*shape, "NONE", "not compressed"))
                        for block in _blocks(self.tracks[number]):
                            sound.writeframesraw(block.astype("<i2").tobytes())
        except OSError as error:
            raise cannot_write(error) from error
        return path

    def drop(self) -> None:
        """Remove the raw files; code that has them open can still read them."""
        if self.raw is not None:
            shutil.rmtree(self.raw, ignore_errors=True)

    def _sum(self, numbers: Sequence[int]) -> _Samples:
        """Return the sum (n, 2) of some tracks."""
        self._check_apart()
        total = np.zeros(self.whole.shape, np.int16)
        for start in range(0, len(total), BLOCK):
            part = np.zeros((len(total[start : start + BLOCK]), _CHANNELS), np.int32)
            for number in numbers:
                part += self.tracks[number][start : start + BLOCK]
            total[start : start + BLOCK] = np.clip(part, -_FULL_SCALE, _FULL_SCALE)
        return total

    def _check_apart(self) -> None:
        if self.names and not self.tracks:
            raise SoundError(
                f"the piece has {len(self.names)} tracks of {self.seconds / 60:.0f} minutes, "
                f"expected at most {MOST_SECONDS / 60:.0f} minutes in total to render tracks "
                "separately; use the mix of all tracks"
            )


def places_of(score: Score, ids: Sequence[int] | None = None) -> dict[int, list[int]]:
    """Return the indices of the tracks with notes, by their `ids` (default: the index itself)."""
    numbers: dict[int, list[int]] = {}
    pairs = zip(ids or count(), score.tracks, strict=False)
    for place, (number, track) in enumerate(pairs):
        if len(track):
            numbers.setdefault(number, []).append(place)
    return numbers


def render(
    score: Score,
    folder: Path,
    name: str,
    *,
    ids: Sequence[int] | None = None,
    soundfont: Path | None = None,
    sample_rate: int = 44100,
    progress: Callable[[float], None] | None = None,
) -> Stems:
    """Render a score and each of its tracks with the built-in player, as raw files in `folder`.

    The loudness is that of `app.audio.render.render`. Tracks on the same channel end each other's
    notes as in the whole mix, so that the tracks add up to it, except for rounding.

    Args:
        score: the score to render.
        folder: where files are written.
        name: the start of the names of mixes and archives.
        ids: an ID for each track. Default: its index. Tracks with equal IDs become one stem.
        soundfont: the SoundFont to play. Default: the General MIDI SoundFont of pretty_midi.
        sample_rate: in hertz.
        progress: called with the fraction done, 0 to 1. If it raises an exception, rendering ends.

    Raises:
        SoundError: the SoundFont cannot be used, the sound is longer than half an hour, or the
            files cannot be written.
    """
    check_length(float(score.seconds_at(score.end_ticks)))
    font = open_soundfont(soundfont if soundfont is not None else default_soundfont())
    numbers = places_of(score, ids)
    titles = track_names([score.tracks[places[0]] for places in numbers.values()])
    names = dict(zip(numbers, titles, strict=True))
    with _AT_ONCE, ExitStack() as undo:
        try:
            raw = Path(tempfile.mkdtemp(prefix=".stems-", dir=folder))
            undo.callback(shutil.rmtree, raw, ignore_errors=True)
            mixer = Mixer(score, font, sample_rate)
            whole, tracks = _tracks(mixer, numbers, raw, progress)
        except OSError as error:
            raise cannot_write(error) from error
        if progress is not None:
            progress(1.0)
        undo.pop_all()
    files = SoundFiles(folder, name, names)
    return Stems(files, sample_rate, whole, tracks, names, raw)


def _tracks(
    mixer: Mixer,
    numbers: Mapping[int, list[int]],
    folder: Path,
    progress: Callable[[float], None] | None,
) -> tuple[_Samples, dict[int, _Samples]]:
    """Render the whole mix and the tracks to disk; only the mix if the tracks are too long.

    `numbers` maps the ID of each track to render to indices of tracks of the score.
    """
    seconds = mixer.length / mixer.sample_rate
    if len(numbers) < 2 or seconds * len(numbers) > MOST_SECONDS:
        total = mixer.mix(progress)
        whole = _on_disk(folder / "whole", total, gain_for(total, mixer.sample_rate))
        return whole, dict.fromkeys(numbers, whole) if len(numbers) == 1 else {}
    total = np.zeros((_CHANNELS, mixer.length), np.float32)
    shares = np.cumsum([0, *(mixer.voices_of(places) for places in numbers.values())])
    shares = shares / max(shares[-1], 1)
    for (number, places), share in zip(numbers.items(), pairwise(shares), strict=True):
        mixed = mixer.mix(_part_of(progress, *share), places)
        total += mixed
        _write(folder / f"{number}.float", _blocks(mixed.T))
    gain = gain_for(total, mixer.sample_rate)
    whole = _on_disk(folder / "whole", total, gain)
    del total
    tracks: dict[int, _Samples] = {}
    for number in numbers:
        path = folder / f"{number}.float"
        mixed = np.memmap(path, np.float32, "r", shape=(mixer.length, _CHANNELS))
        tracks[number] = _on_disk(folder / str(number), mixed.T, gain)
        path.unlink()
    return whole, tracks


def _on_disk(path: Path, channels: NDArray[np.float32], gain: np.float32) -> _Samples:
    """Write a mix (2, n) as 16-bit samples and map the file to memory."""
    factor = np.float32(gain * _FULL_SCALE)
    rounded = (
        np.clip(np.rint(np.multiply(block, factor)), -_FULL_SCALE, _FULL_SCALE).astype(np.int16)
        for block in _blocks(channels.T)
    )
    _write(path, rounded)
    return np.memmap(path, np.int16, "r", shape=(channels.shape[1], _CHANNELS))


def _blocks(samples: NDArray[_Number]) -> Iterator[NDArray[_Number]]:
    """Split samples (n, 2) into blocks (m, 2)."""
    for start in range(0, len(samples), BLOCK):
        yield samples[start : start + BLOCK]


def _write(path: Path, blocks: Iterator[NDArray[_Number]]) -> None:
    """Write blocks one after the other; silent blocks become holes in the file.

    A memory map is not used because a full disk would kill the process.
    """
    end = 0
    with path.open("wb") as file:
        for block in blocks:
            if block.any():
                file.seek(end)
                file.write(np.ascontiguousarray(block).tobytes())
            end += block.nbytes
        file.truncate(end)


def _part_of(
    progress: Callable[[float], None] | None, start: float, end: float
) -> Callable[[float], None] | None:
    """Return a callback that maps the progress of one part, 0 to 0.9, to the overall progress."""
    if progress is None:
        return None
    return lambda done: progress(0.9 * start + done * (end - start))
