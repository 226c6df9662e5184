"""Score to audio, at an equal loudness, and audio to files."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import soundfile

from app.audio.loudness import normalize
from app.audio.ogg import number_stream
from app.audio.synth.mixer import BLOCK, Mixer, fade_cut_end, length_with_tail
from app.audio.synth.soundfont import SoundError, default_soundfont, open_soundfont
from app.files import appearing
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokenization.score import Score

__all__ = [
    "LOUDNESS_LUFS",
    "Audio",
    "Renderer",
    "SoundError",
    "check_length",
    "render",
    "save_audio",
]

_log = logging.getLogger(__name__)

Renderer = Literal["auto", "builtin", "fluidsynth"]
LOUDNESS_LUFS = -23.0
"""Loudness of all that is rendered (EBU R 128): in a comparison the louder one would win."""
CEILING = 10 ** (-1 / 20)
"""True peak that is never passed, as an amplitude."""
_SILENCE = 1e-5
_MAX_SECONDS = 1800.0  # of 44,100 Hz stereo are 635 MB, most of what rendering takes
_FORMATS = {".wav": ("WAV", "PCM_16"), ".flac": ("FLAC", "PCM_16"), ".ogg": ("OGG", "VORBIS")}


@dataclass(frozen=True, eq=False)
class Audio:
    """Stereo sound."""

    samples: NDArray[np.float32]
    """(n, 2), full scale 1."""
    sample_rate: int
    renderer: Literal["builtin", "fluidsynth"]
    """What made it."""

    @property
    def seconds(self) -> float:
        """Length."""
        return len(self.samples) / self.sample_rate


def render(
    score: Score,
    *,
    sample_rate: int = 44100,
    soundfont: Path | None = None,
    renderer: Renderer = "auto",
    progress: Callable[[float], None] | None = None,
) -> Audio:
    """The sound of a score, to its end and at most two seconds more for what still sounds.

    Its loudness is LOUDNESS_LUFS, or less where the true peak would pass -1 dB. `auto` takes
    FluidSynth when it is installed and else the built-in player; both play `soundfont`, or the
    General MIDI one of pretty_midi, without reverb, and give the same samples for the same score.
    `progress` is called with the part that is done, 0 to 1.

    SoundError when the SoundFont cannot be used, FluidSynth is asked for and not there or fails,
    or the score lasts over half an hour.
    """
    score_seconds = float(score.seconds_at(score.end_ticks))
    check_length(score_seconds)
    path = soundfont if soundfont is not None else default_soundfont()
    font = open_soundfont(path)
    if renderer == "fluidsynth" and shutil.which("fluidsynth") is None:
        raise SoundError(
            'the command fluidsynth was not found; install FluidSynth or render with "builtin"'
        )
    mixed = None
    made_by: Literal["builtin", "fluidsynth"] = "builtin"
    if renderer != "builtin" and shutil.which("fluidsynth") is not None:
        try:
            mixed = _fluidsynth(score, path, sample_rate, score_seconds)
            made_by = "fluidsynth"
        except SoundError as error:
            if renderer == "fluidsynth":
                raise
            _log.warning("%s; the built-in player goes on", error)
    if mixed is None:
        mixed = Mixer(score, font, sample_rate).mix(progress)
    normalize(mixed, sample_rate, LOUDNESS_LUFS, CEILING)
    if progress is not None:
        progress(1.0)
    return Audio(mixed.T, sample_rate, made_by)


def check_length(seconds: float) -> None:
    """Raises SoundError where a piece is too long for its sound to be made."""
    if seconds > _MAX_SECONDS:
        raise SoundError(
            f"the piece lasts {seconds / 60:.0f} minutes, expected at most "
            f"{_MAX_SECONDS / 60:.0f} to make its sound; ask for fewer bars, or for MIDI alone"
        )


def save_audio(audio: Audio, path: Path) -> None:
    """Write a sound file, as `save_samples`."""
    save_samples(audio.samples, audio.sample_rate, path)


def save_samples(
    samples: NDArray[np.float32] | NDArray[np.int16], sample_rate: int, path: Path
) -> None:
    """Write a WAV or FLAC file of 16 bits, or an Ogg Vorbis one, by the path's suffix.

    Samples (n, 2) have the full scale 1, or 32767 where they are whole numbers. The same ones give
    the same bytes, and the file appears when it is whole. SoundError for another suffix and when it
    cannot be written.
    """
    try:
        file_format, subtype = _FORMATS[path.suffix.lower()]
    except KeyError:
        raise SoundError(
            f"{path}: sound cannot be written as {path.suffix or 'a file without a suffix'}, "
            f"expected one of {', '.join(_FORMATS)}; choose another name"
        ) from None
    settings = {"channels": 2, "format": file_format, "subtype": subtype}
    try:
        with appearing(path) as beside:
            with soundfile.SoundFile(beside, "w", sample_rate, **settings) as file:
                # in pieces of one second: a long Ogg file at once overruns libsndfile's stack
                for start in range(0, len(samples), sample_rate):
                    piece = samples[start : start + sample_rate]
                    file.write(np.ascontiguousarray(piece))
            if file_format == "OGG":
                number_stream(beside)
    except (OSError, soundfile.LibsndfileError) as error:
        raise SoundError(
            f"{path.parent}: the sound cannot be written ({error}); check that the folder is there "
            "and not full"
        ) from error


def _fluidsynth(
    score: Score, soundfont: Path, sample_rate: int, score_seconds: float
) -> NDArray[np.float32]:
    """The score played by FluidSynth without reverb and chorus (2, n); SoundError if it fails."""
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
            mixed, heard = _read(sound, length_with_tail(score_seconds, np.inf, sample_rate))
        except (OSError, subprocess.SubprocessError, soundfile.LibsndfileError) as error:
            raise SoundError(f"FluidSynth could not play the score ({error})") from error
    last = heard / sample_rate
    mixed = mixed[:, : length_with_tail(score_seconds, last, sample_rate)]
    fade_cut_end(mixed, last, sample_rate)
    return mixed


def _read(path: Path, length: int) -> tuple[NDArray[np.float32], int]:
    """The first `length` samples (2, n) of a stereo file, and how many last until it is silent.

    It is read in blocks: all at once would stand in memory twice more.
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
