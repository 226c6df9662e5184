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
from app.audio.length import check_length
from app.audio.loudness import LOUDNESS_LUFS, gain_for, level_for
from app.audio.synth import BLOCK
from app.audio.synth.mixer import Mixer, fade_cut_end, length_with_tail
from app.audio.synth.soundfont import SoundError, default_soundfont, open_soundfont
from relpe.files import atomic_write
from tokenization.midi import write_midi
from tokenization.score import Score

__all__ = [
    "Audio",
    "Renderer",
    "SoundError",
    "render",
    "render_clip",
    "save_audio",
]

_log = logging.getLogger(__name__)

Renderer = Literal["auto", "builtin", "fluidsynth"]
SAMPLE_RATE = 44100
"""Samples per second, unless another rate is asked."""
CLIP_TAIL_SECONDS = 2.0
"""Length of the fade after the last bar line of a clip."""
_CLIP_FADE_IN_SECONDS = 0.01
_SILENCE = 1e-5
"""Largest absolute value that counts as silence."""
_OGG_HEADER = 27
"""Bytes of the header of an Ogg page, without the lengths of its segments."""
_OGG_SERIAL = 1
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in the opposite order."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Stereo audio."""

    samples: NDArray
    """(n, 2), float32 of full scale 1 or int16."""
    sample_rate: int
    renderer: Literal["builtin", "fluidsynth"]
    loudness: float | None = None
    """In LUFS, -inf for silence; None if it was not measured."""

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.sample_rate


def render(
    score: Score,
    *,
    sample_rate: int = SAMPLE_RATE,
    soundfont: Path | None = None,
    renderer: Renderer = "auto",
    progress: Callable[[float], None] | None = None,
) -> Audio:
    """Render a score to its end, plus at most two seconds while notes still sound.

    The loudness is -23 LUFS, or lower if the true peak would exceed -1 dB. The same score gives the
    same samples.

    Args:
        score: the score to render.
        sample_rate: in hertz.
        soundfont: the SoundFont to play. Default: the General MIDI SoundFont of pretty_midi.
        renderer: "auto" uses FluidSynth if it is installed, otherwise the built-in player, which
            alone bends single notes of an MPE zone. Both play without reverb.
        progress: called with the fraction done, 0 to 1.

    Raises:
        SoundError: the SoundFont cannot be used, FluidSynth was requested but is missing, fails or
            cannot bend single notes, or the score is longer than half an hour.
    """
    score_seconds = float(score.seconds_at(score.end_ticks))
    check_length(score_seconds)
    path = soundfont if soundfont is not None else default_soundfont()
    font = open_soundfont(path)
    is_installed = shutil.which("fluidsynth") is not None
    if renderer == "fluidsynth" and not is_installed:
        raise SoundError(
            'the command fluidsynth was not found; install FluidSynth or use the renderer "builtin"'
        )
    is_bent = any(track.note_bends[:, 2].any() for track in score.tracks)
    if renderer == "fluidsynth" and is_bent:
        raise SoundError(
            "the score bends single notes of an MPE zone, which a MIDI file for FluidSynth cannot "
            'hold; use the renderer "builtin"'
        )
    mixed = None
    if renderer != "builtin" and is_installed and not is_bent:
        try:
            mixed = _fluidsynth(score, path, sample_rate, score_seconds)
        except SoundError as error:
            if renderer == "fluidsynth":
                raise
            _log.warning("%s; using the built-in player instead", error)
    used = "builtin" if mixed is None else "fluidsynth"
    if mixed is None:
        mixed = Mixer(score, font, sample_rate).mix(progress)
    mixed *= gain_for(mixed, sample_rate)
    if progress is not None:
        progress(1.0)
    return Audio(mixed.T, sample_rate, used)


def render_clip(
    score: Score,
    begin_seconds: float,
    end_seconds: float,
    *,
    soundfont: Path | None = None,
    lufs: float = LOUDNESS_LUFS,
) -> Audio:
    """Render a part of a score by the built-in player, and measure its loudness.

    Notes that sound at the begin continue as in the whole piece. The audio fades in within 10 ms
    if it does not begin at the start of the score, and fades out in CLIP_TAIL_SECONDS after the
    end. Clips of the same length have the same number of samples.

    Args:
        score: the whole piece.
        begin_seconds: where the clip begins, a bar line.
        end_seconds: where its last bar ends.
        soundfont: see `render`.
        lufs: the loudness; it is lower if the true peak would exceed -1 dB.

    Raises:
        SoundError: the SoundFont cannot be used, or the clip is longer than half an hour.
    """
    check_length(end_seconds - begin_seconds)
    font = open_soundfont(soundfont if soundfont is not None else default_soundfont())
    mixed = Mixer(score, font, SAMPLE_RATE, begin_seconds).mix()
    length = round((end_seconds - begin_seconds + CLIP_TAIL_SECONDS) * SAMPLE_RATE)
    mixed = np.pad(mixed[:, :length], ((0, 0), (0, max(length - mixed.shape[1], 0))))
    if begin_seconds > 0:
        _fade(mixed[:, : round(_CLIP_FADE_IN_SECONDS * SAMPLE_RATE)])
    _fade(mixed[:, ::-1][:, : round(CLIP_TAIL_SECONDS * SAMPLE_RATE)])
    level = level_for(mixed, SAMPLE_RATE, lufs)
    mixed *= level.gain
    return Audio(mixed.T, SAMPLE_RATE, "builtin", level.loudness)


def _fade(mixed: NDArray[np.float32]) -> None:
    """Fade in a mix (2, n) in place, from silence to full level, by half a period of a cosine."""
    angles = np.linspace(0, np.pi, mixed.shape[1], dtype=np.float32)
    mixed *= (1 - np.cos(angles)) / 2


def save_audio(audio: Audio, path: Path) -> None:
    """Write a 16-bit WAV or FLAC file, or an Ogg Vorbis file, depending on the path's suffix.

    Equal samples give equal bytes. The file appears only when it is complete.

    Raises:
        SoundError: the suffix is not supported, or the file cannot be written.
    """
    samples, sample_rate = audio.samples, audio.sample_rate
    try:
        file_format, subtype = CONTAINERS[path.suffix.lower()[1:]]
    except KeyError:
        raise SoundError(
            f"{path}: audio cannot be written to {path.suffix or 'a file without a suffix'}, "
            f"expected one of {', '.join(AUDIO_SUFFIXES)}; choose another name"
        ) from None
    settings = {"channels": 2, "format": file_format, "subtype": subtype}
    try:
        with atomic_write(path) as partial:
            with soundfile.SoundFile(partial, "w", sample_rate, **settings) as file:
                # one second at a time: writing a long Ogg file at once overflows libsndfile's stack
                for start in range(0, len(samples), sample_rate):
                    piece = samples[start : start + sample_rate]
                    file.write(np.ascontiguousarray(piece))
            if file_format == "OGG":
                _set_serial(partial)
    except (OSError, soundfile.LibsndfileError) as error:
        raise cannot_write(error) from error


def cannot_write(error: Exception) -> SoundError:
    """Return the error for audio that cannot be written.

    It contains no path, since the page shows it.
    """
    reason = error.strerror if isinstance(error, OSError) else None
    return SoundError(
        f"the audio cannot be written ({reason or error}); check that the folder exists and the "
        "disk is not full"
    )


def _set_serial(path: Path) -> None:
    """Set the serial number of an Ogg stream to a fixed value; libsndfile chooses a random one.

    The number is in the header of each page (RFC 3533, section 6).
    """
    with path.open("r+b") as file:
        while header := file.read(_OGG_HEADER):
            start = file.tell() - _OGG_HEADER
            lengths = file.read(header[26])
            body = lengths + file.read(sum(lengths))
            fields = header[:14] + struct.pack("<I", _OGG_SERIAL) + header[18:22]
            checksum = _page_checksum(fields + bytes(4) + header[26:] + body)
            file.seek(start)
            file.write(fields + struct.pack("<I", checksum))
            file.seek(start + _OGG_HEADER + len(body))


def _page_checksum(page: bytes) -> int:
    """Return the CRC of an Ogg page whose checksum is 0: zlib's CRC, bit-reversed, from 0 on."""
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
    """Return the first `length` samples (2, n) of a file, and how many precede the final silence.

    The file is read in blocks, since reading it at once would need three times the memory.
    """
    samples = np.zeros((2, length), dtype=np.float32)
    start = last = 0
    with soundfile.SoundFile(path) as file:
        for block in file.blocks(BLOCK, dtype="float32", always_2d=True):
            sounding = np.flatnonzero(np.abs(block).max(axis=1) > _SILENCE)
            if len(sounding):
                last = start + int(sounding[-1]) + 1
            count = max(min(len(block), length - start), 0)
            samples[:, start : start + count] = block[:count].T
            start += len(block)
    return samples, last
