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

from app.files import appearing
from app.loudness import normalize
from app.ogg import number_stream
from app.soundfont import Generator, SoundError, SoundFont, default_soundfont, open_soundfont
from app.tones import Envelope, ToneCache, control_seconds, line, release_curve, wave
from app.voices import Voices, score_voices
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
_CEILING = 10 ** (-1 / 20)
"""True peak that is never passed."""
_TAIL_SECONDS = 2.0
_SHORTEST_TAIL_SECONDS = 0.1
_FADE_SECONDS = 1.0
_SILENCE = 1e-5
_BLOCK = 1 << 18  # samples read and added at a time
_MAX_SECONDS = 1800.0  # of 44,100 Hz stereo are 635 MB, most of what rendering takes
_LONGEST_TONE_SECONDS = 300.0
_CHOKE_SECONDS = 0.9
_FORMATS = {".wav": ("WAV", "PCM_16"), ".flac": ("FLAC", "PCM_16"), ".ogg": ("OGG", "VORBIS")}

_cache = ToneCache()


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
        mixed = _mix(score_voices(score, font), font, score_seconds, sample_rate, progress)
    normalize(mixed, sample_rate, LOUDNESS_LUFS, _CEILING)
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
    """Write a WAV or FLAC file of 16 bits, or an Ogg Vorbis one, by the path's suffix.

    The same sound gives the same bytes, and the file appears when it is whole. SoundError for
    another suffix and when it cannot be written.
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
            with soundfile.SoundFile(beside, "w", audio.sample_rate, **settings) as file:
                # in pieces of one second: a long Ogg file at once overruns libsndfile's stack
                for start in range(0, len(audio.samples), audio.sample_rate):
                    piece = audio.samples[start : start + audio.sample_rate]
                    file.write(np.ascontiguousarray(piece))
            if file_format == "OGG":
                number_stream(beside)
    except (OSError, soundfile.LibsndfileError) as error:
        raise SoundError(
            f"{path.parent}: the sound cannot be written ({error}); check that the folder is there "
            "and not full"
        ) from error


def _mix(
    all_voices: list[Voices],
    font: SoundFont,
    score_seconds: float,
    sample_rate: int,
    progress: Callable[[float], None] | None,
) -> NDArray[np.float32]:
    """Sum of all voices (2, n)."""
    tones = [_Tone(voices, font, sample_rate) for voices in all_voices]
    last = max((tone.over_seconds() for tone in tones), default=0.0)
    mixed = np.zeros((2, _length(score_seconds, last, sample_rate)), dtype=np.float32)
    num_voices = sum(len(voices.onsets) for voices in all_voices)
    done = 0
    for tone in tones:
        tone.add_to(mixed)
        before, done = done, done + len(tone.voices.onsets)
        if progress is not None and 20 * done // num_voices > 20 * before // num_voices:
            progress(0.9 * done / num_voices)
    _fade_cut_end(mixed, last, sample_rate)
    return mixed


def _length(score_seconds: float, last: float, sample_rate: int) -> int:
    """Samples of a score and its tail, when the last sound is over at `last` seconds."""
    tail = min(max(last - score_seconds, _SHORTEST_TAIL_SECONDS), _TAIL_SECONDS)
    return int((score_seconds + tail) * sample_rate)


def _nearest_sample(seconds: NDArray[np.float64], sample_rate: int) -> NDArray[np.int64]:
    """Halves go up, also those that rounding errors have made a little less."""
    return np.floor(seconds * sample_rate + 0.5 + 1e-6).astype(np.int64)


def _fade_cut_end(mixed: NDArray[np.float32], last: float, sample_rate: int) -> None:
    """Fade a mix (2, n) out where sound until `last` seconds was cut off."""
    if last * sample_rate > mixed.shape[1] + 1:
        count = min(int(_FADE_SECONDS * sample_rate), mixed.shape[1])
        mixed[:, -count:] *= np.linspace(1, 0, count, dtype=np.float32)


def _add(mixed: NDArray[np.float32], tone: NDArray[np.float32], gain: np.float32) -> None:
    """Add a tone to the beginning of a mix, in blocks: a long one would stand in memory twice."""
    for start in range(0, len(tone), _BLOCK):
        block = tone[start : start + _BLOCK]
        mixed[start : start + len(block)] += block * gain


class _Tone:
    """The voices of one zone and key, which share wave and envelope."""

    def __init__(self, voices: Voices, font: SoundFont, sample_rate: int) -> None:
        self.voices = voices
        self.font = font
        self.sample_rate = sample_rate
        zone = voices.zone
        key = zone.played_key(voices.key)
        self.envelope = Envelope.of(zone.values, Generator.VOLUME_ENVELOPE, key)
        audible = min(self.envelope.audible_seconds(), _LONGEST_TONE_SECONDS)
        self.held_seconds = np.minimum(voices.ends - voices.onsets, audible)
        self.choke_seconds = np.minimum(voices.chokes - voices.onsets, _MAX_SECONDS)

    def over_seconds(self) -> float:
        """When the last voice is surely over."""
        lengths = np.minimum(
            self.held_seconds + self.envelope.release, self.choke_seconds + _CHOKE_SECONDS
        )
        return float((self.voices.onsets + lengths).max())

    def add_to(self, mixed: NDArray[np.float32]) -> None:
        """Add all voices to a mix (2, n)."""
        rate, voices = self.sample_rate, self.voices
        starts = _nearest_sample(voices.onsets, rate)
        held = _nearest_sample(self.held_seconds, rate)
        chokes = _nearest_sample(self.choke_seconds, rate)
        release = release_curve(self.envelope.release, rate)
        choke = release_curve(_CHOKE_SECONDS, rate)
        counts = np.minimum(held + len(release), chokes + len(choke))
        counts = np.minimum(counts, mixed.shape[1] - starts)
        longest = max(int(counts.max()), 1)
        amplitudes = _cache.get(
            (self.envelope, rate), longest + 1, lambda n: self.envelope.amplitudes(n, rate)
        )
        angles = (voices.pans + 500) / 1000 * np.pi / 2
        for index in np.flatnonzero(counts > 0).tolist():
            start, end, stop = int(starts[index]), int(held[index]), int(chokes[index])
            sound = self._wave(index, int(counts[index]), end, longest)
            tone = np.empty_like(sound)
            np.multiply(sound[:end], amplitudes[: len(sound[:end])], out=tone[:end])
            after = len(sound) - end
            if after > 0:
                np.multiply(sound[end:], release[:after] * amplitudes[end], out=tone[end:])
            if stop < len(tone):
                tone[stop:] *= choke[: len(tone) - stop]
            tone *= self._gain(index, len(tone))
            _add(mixed[0, start:], tone, np.float32(np.cos(angles[index])))
            _add(mixed[1, start:], tone, np.float32(np.sin(angles[index])))

    def _wave(self, index: int, count: int, held: int, longest: int) -> NDArray[np.float32]:
        """Wave of a voice, at most `count` samples; out of the cache when nothing bends it."""
        font, zone, key, rate = self.font, self.voices.zone, self.voices.key, self.sample_rate
        bends = self.voices.channel.bend_cents
        seconds = self.voices.onsets[index] + control_seconds(count, rate)
        cents = bends.at(seconds) if len(bends.values) else None
        if zone.leaves_loop or (cents is not None and np.any(cents)):
            return wave(font, zone, key, count, rate, bend_cents=cents, held=held)
        return _cache.get(
            (zone, key, rate), longest, lambda size: wave(font, zone, key, size, rate)
        )[:count]

    def _gain(self, index: int, count: int) -> NDArray[np.float32] | np.float32:
        """Amplitude factor of a voice, for each of `count` samples where it changes."""
        channel, onset = self.voices.channel, self.voices.onsets[index]
        gain = self.voices.gains[index]
        end = onset + count / self.sample_rate
        changes = (channel.volume, channel.expression)
        if not any(steps.changes_between(onset, end) for steps in changes):
            return np.float32(gain * channel.gain(onset))
        seconds = control_seconds(count, self.sample_rate)
        gains = gain * channel.gain(onset + seconds)
        return line(count, self.sample_rate, seconds, gains)


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
            mixed, heard = _read(sound, _length(score_seconds, np.inf, sample_rate))
        except (OSError, subprocess.SubprocessError, soundfile.LibsndfileError) as error:
            raise SoundError(f"FluidSynth could not play the score ({error})") from error
    last = heard / sample_rate
    mixed = mixed[:, : _length(score_seconds, last, sample_rate)]
    _fade_cut_end(mixed, last, sample_rate)
    return mixed


def _read(path: Path, length: int) -> tuple[NDArray[np.float32], int]:
    """The first `length` samples (2, n) of a stereo file, and how many last until it is silent.

    It is read in blocks: all at once would stand in memory twice more.
    """
    samples = np.zeros((2, length), dtype=np.float32)
    start = last = 0
    with soundfile.SoundFile(path) as file:
        for block in file.blocks(_BLOCK, dtype="float32", always_2d=True):
            sounding = np.flatnonzero(np.abs(block).max(axis=1) > _SILENCE)
            if len(sounding):
                last = start + int(sounding[-1]) + 1
            room = samples[:, start : start + len(block)]
            room[:] = block[: room.shape[1]].T
            start += len(block)
    return samples, last
