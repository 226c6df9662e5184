"""Renders scores to audio of equal loudness, and writes audio files."""

from __future__ import annotations

import logging
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.audio.formats import AUDIO_SUFFIXES, CONTAINERS
from app.audio.loudness import gain_for
from app.audio.synth import BLOCK
from app.audio.synth.mixer import Mixer, fade_cut_end, length_with_tail
from app.audio.synth.soundfont import SoundError, default_soundfont, open_soundfont
from app.files import appearing
from tokenization.midi import write_midi
from tokenization.score import Score

__all__ = [
    "Audio",
    "Renderer",
    "SoundError",
    "check_length",
    "render",
    "save_audio",
]

_log = logging.getLogger(__name__)

Renderer = Literal["auto", "builtin", "fluidsynth"]
_SILENCE = 1e-5
_MAX_SECONDS = 1800.0  # 635 MB of 44,100 Hz stereo, most of the memory that rendering needs
_OGG_HEADER = 27
_OGG_SERIAL = 1
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(frozen=True, eq=False)
class Audio:
    """Stereo audio."""

    samples: NDArray
    """(n, 2), float32 of full scale 1 or int16."""
    sample_rate: int
    renderer: Literal["builtin", "fluidsynth"]

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.sample_rate


def render(
    score: Score,
    *,
    sample_rate: int = 44100,
    soundfont: Path | None = None,
    renderer: Renderer = "auto",
    progress: Callable[[float], None] | None = None,
) -> Audio:
    """Render a score to its end, and at most two seconds more while notes still ring.

    The loudness is -23 LUFS, or lower if the true peak would exceed -1 dB. `auto` uses
    FluidSynth if it is installed and the built-in player otherwise; both play `soundfont`, by
    default the General MIDI one of pretty_midi, without reverb, and give the same samples for the
    same score. `progress` is called with the fraction done, 0 to 1.

    Raises:
        SoundError: the SoundFont cannot be used, FluidSynth was requested and is missing or fails,
            or the score lasts over half an hour.
    """
    score_seconds = float(score.seconds_at(score.end_ticks))
    check_length(score_seconds)
    path = soundfont if soundfont is not None else default_soundfont()
    font = open_soundfont(path)
    is_installed = shutil.which("fluidsynth") is not None
    if renderer == "fluidsynth" and not is_installed:
        raise SoundError(
            'the command fluidsynth was not found; install FluidSynth or render with "builtin"'
        )
    mixed, used = None, "builtin"
    if renderer != "builtin" and is_installed:
        try:
            mixed, used = _fluidsynth(score, path, sample_rate, score_seconds), "fluidsynth"
        except SoundError as error:
            if renderer == "fluidsynth":
                raise
            _log.warning("%s; the built-in player goes on", error)
    if mixed is None:
        mixed = Mixer(score, font, sample_rate).mix(progress)
    mixed *= gain_for(mixed, sample_rate)
    if progress is not None:
        progress(1.0)
    return Audio(mixed.T, sample_rate, used)


def check_length(seconds: float) -> None:
    """Raise SoundError if a piece is too long to be rendered."""
    if seconds > _MAX_SECONDS:
        raise SoundError(
            f"the piece lasts {seconds / 60:.0f} minutes, expected at most "
            f"{_MAX_SECONDS / 60:.0f} to make its sound; ask for fewer bars, or for MIDI alone"
        )


def save_audio(audio: Audio, path: Path) -> None:
    """Write a 16-bit WAV or FLAC file, or an Ogg Vorbis file, chosen by the path's suffix.

    Equal samples give equal bytes. The file appears only once it is complete.

    Raises:
        SoundError: the suffix is another one, or the file cannot be written.
    """
    samples, sample_rate = audio.samples, audio.sample_rate
    try:
        file_format, subtype = CONTAINERS[path.suffix.lower()[1:]]
    except KeyError:
        raise SoundError(
            f"{path}: sound cannot be written as {path.suffix or 'a file without a suffix'}, "
            f"expected one of {', '.join(AUDIO_SUFFIXES)}; choose another name"
        ) from None
    settings = {"channels": 2, "format": file_format, "subtype": subtype}
    try:
        with appearing(path) as beside:
            with soundfile.SoundFile(beside, "w", sample_rate, **settings) as file:
                # one second at a time: writing a long Ogg file at once overflows libsndfile's stack
                for start in range(0, len(samples), sample_rate):
                    piece = samples[start : start + sample_rate]
                    file.write(np.ascontiguousarray(piece))
            if file_format == "OGG":
                _set_serial(beside)
    except (OSError, soundfile.LibsndfileError) as error:
        raise cannot_write(path.parent, error) from error


def cannot_write(folder: Path, reason: object) -> SoundError:
    """The error for audio that cannot be written to a folder."""
    return SoundError(
        f"{folder}: the sound cannot be written ({reason}); check that the folder is there "
        "and not full"
    )


def _set_serial(path: Path) -> None:
    """Give the stream of an Ogg file a fixed serial number; libsndfile draws a random one.

    The number is in the header of every page (RFC 3533, section 6).
    """
    with path.open("r+b") as file:
        while header := file.read(_OGG_HEADER):
            start = file.tell() - _OGG_HEADER
            lengths = file.read(header[26])
            body = lengths + file.read(sum(lengths))
            numbered = header[:14] + struct.pack("<I", _OGG_SERIAL) + header[18:22] + bytes(4)
            checksum = _page_checksum(numbered + header[26:] + body)
            file.seek(start)
            file.write(numbered[:22] + struct.pack("<I", checksum))
            file.seek(start + _OGG_HEADER + len(body))


def _page_checksum(page: bytes) -> int:
    """CRC of an Ogg page whose checksum field is zero: zlib's, bit-reversed and starting at 0."""
    crc = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)


def _fluidsynth(
    score: Score, soundfont: Path, sample_rate: int, score_seconds: float
) -> NDArray[np.float32]:
    """Render with FluidSynth, without reverb and chorus (2, n). Raises SoundError if it fails."""
    with tempfile.TemporaryDirectory(prefix="relpe-") as folder:
        midi, sound = Path(folder) / "score.mid", Path(folder) / "score.wav"
        midi.write_bytes(write_midi(score))
        command = ["fluidsynth", "-n", "-i", "-q", "-R", "0", "-C", "0", "-O", "float", "-T", "wav"]
        command += ["-f", os.devnull, "-o", "synth.polyphony=4096", "-r", str(sample_rate)]
        command += ["-F", str(sound), str(soundfont), str(midi)]
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=60 + score_seconds,
            )
            mixed, sounding = _read(sound, length_with_tail(score_seconds, np.inf, sample_rate))
        except (OSError, subprocess.SubprocessError, soundfile.LibsndfileError) as error:
            raise SoundError(f"FluidSynth could not play the score ({error})") from error
    last = sounding / sample_rate
    mixed = mixed[:, : length_with_tail(score_seconds, last, sample_rate)]
    fade_cut_end(mixed, last, sample_rate)
    return mixed


def _read(path: Path, length: int) -> tuple[NDArray[np.float32], int]:
    """The first `length` samples (2, n) of a stereo file, and how many precede the final silence.

    The file is read in blocks: all at once it would be in memory three times.
    """
    samples = np.zeros((2, length), dtype=np.float32)
    start = last = 0
    with soundfile.SoundFile(path) as file:
        for block in file.blocks(BLOCK, dtype="float32", always_2d=True):
            sounding = np.flatnonzero(np.abs(block).max(axis=1) > _SILENCE)
            if len(sounding):
                last = start + int(sounding[-1]) + 1
            room = samples[:, start : start + len(block)]
            room[:] = block[: room.shape[1]].T
            start += len(block)
    return samples, last
