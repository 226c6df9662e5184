"""Mixes the voices of a score, or of some of its tracks."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from app.audio.synth import BLOCK
from app.audio.synth.cache import ToneCache
from app.audio.synth.envelope import Envelope, release_curve
from app.audio.synth.oscillator import control_seconds, interpolate, wave
from app.audio.synth.soundfont import Generator, SoundFont
from app.audio.synth.voices import Voices, score_voices
from tokenization.score import Score

_TAIL_SECONDS = 2.0
_SHORTEST_TAIL_SECONDS = 0.1
_FADE_SECONDS = 1.0
_LONGEST_TONE_SECONDS = 300.0
_LONGEST_CHOKE_SECONDS = 1800.0  # finite, so that it can be converted to samples
_CHOKE_SECONDS = 0.9

_cache = ToneCache()


class Mixer:
    """Renders the voices of a score from `begin_seconds` to the end of its tail."""

    def __init__(
        self, score: Score, font: SoundFont, sample_rate: int, begin_seconds: float = 0.0
    ) -> None:
        self.sample_rate = sample_rate
        self._begin = int(begin_seconds * sample_rate)
        self._tones = [_Tone(voices, font, sample_rate) for voices in score_voices(score, font)]
        self._last = max((tone.over_seconds() for tone in self._tones), default=0.0)
        end = length_with_tail(float(score.seconds_at(score.end_ticks)), self._last, sample_rate)
        self.length = max(end - self._begin, 1)
        """Number of samples of a mix."""

    def mix(
        self, progress: Callable[[float], None] | None = None, tracks: Collection[int] | None = None
    ) -> NDArray[np.float32]:
        """Return the sum (2, length) of all voices, or of those of `tracks`, given by index.

        `progress` is called with the fraction done, up to 0.9; the rest is for measuring loudness.
        """
        mixed = np.zeros((2, self.length), dtype=np.float32)
        num_voices = sum(len(tone.voices.onsets) for tone in self._tones)
        done = 0
        for tone in self._tones:
            tone.add_to(mixed, tracks, self._begin)
            before, done = done, done + len(tone.voices.onsets)
            if progress is not None and 20 * done // num_voices > 20 * before // num_voices:
                progress(0.9 * done / num_voices)
        fade_cut_end(mixed, self._last - self._begin / self.sample_rate, self.sample_rate)
        return mixed

    def voices_of(self, tracks: Collection[int]) -> int:
        """Return the number of voices of some tracks, as an estimate of the work."""
        return sum(int(np.count_nonzero(tone.of(tracks))) for tone in self._tones)


def length_with_tail(score_seconds: float, last: float, sample_rate: int) -> int:
    """Return the samples of a score with its tail, if the last voice ends at `last` seconds."""
    tail = min(max(last - score_seconds, _SHORTEST_TAIL_SECONDS), _TAIL_SECONDS)
    return int((score_seconds + tail) * sample_rate)


def fade_cut_end(mixed: NDArray[np.float32], last: float, sample_rate: int) -> None:
    """Fade out a mix (2, n) in place if it ends before its last voice does, at `last` seconds."""
    if last * sample_rate > mixed.shape[1] + 1:
        count = min(int(_FADE_SECONDS * sample_rate), mixed.shape[1])
        mixed[:, -count:] *= np.linspace(1, 0, count, dtype=np.float32)


def _nearest_sample(seconds: NDArray[np.float64], sample_rate: int) -> NDArray[np.int64]:
    """Return the nearest sample, with halves up even if a rounding error made them smaller."""
    return np.floor(seconds * sample_rate + 0.5 + 1e-6).astype(np.int64)


def _add(mixed: NDArray[np.float32], tone: NDArray[np.float32], gain: np.float32) -> None:
    """Add a tone to the start of a mix, in blocks to avoid a second copy in memory."""
    for start in range(0, len(tone), BLOCK):
        block = tone[start : start + BLOCK]
        mixed[start : start + len(block)] += block * gain


class _Tone:
    """The voices of one zone and key, which share a waveform and an envelope."""

    def __init__(self, voices: Voices, font: SoundFont, sample_rate: int) -> None:
        self.voices = voices
        self.font = font
        self.sample_rate = sample_rate
        zone = voices.zone
        key = zone.played_key(voices.key)
        self.envelope = Envelope.of(zone.values, Generator.VOLUME_ENVELOPE, key)
        audible = min(self.envelope.audible_seconds(), _LONGEST_TONE_SECONDS)
        self.held_seconds = np.minimum(voices.ends - voices.onsets, audible)
        self.choke_seconds = np.minimum(voices.chokes - voices.onsets, _LONGEST_CHOKE_SECONDS)

    def over_seconds(self) -> float:
        """Return an upper bound of the end of the last voice, in seconds."""
        lengths = np.minimum(
            self.held_seconds + self.envelope.release, self.choke_seconds + _CHOKE_SECONDS
        )
        return float((self.voices.onsets + lengths).max())

    def of(self, tracks: Collection[int] | None) -> NDArray[np.bool_]:
        """Return the mask (voices,) of the voices of some tracks; None: all."""
        numbers = self.voices.tracks
        return np.isin(numbers, numbers if tracks is None else list(tracks))

    def add_to(
        self, mixed: NDArray[np.float32], tracks: Collection[int] | None = None, begin: int = 0
    ) -> None:
        """Add the voices of all or some tracks to a mix (2, n) that starts at sample `begin`."""
        of_tracks = self.of(tracks)
        if not of_tracks.any():
            return
        rate, voices = self.sample_rate, self.voices
        starts = _nearest_sample(voices.onsets, rate) - begin
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
        before = np.maximum(-starts, 0)
        for index in np.flatnonzero(of_tracks & (counts > before)).tolist():
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
            start, tone = max(start, 0), tone[before[index] :]
            _add(mixed[0, start:], tone, np.float32(np.cos(angles[index])))
            _add(mixed[1, start:], tone, np.float32(np.sin(angles[index])))

    def _wave(self, index: int, count: int, held: int, longest: int) -> NDArray[np.float32]:
        """Return at most `count` samples of a voice, cached unless they depend on its release."""
        font, zone, key, rate = self.font, self.voices.zone, self.voices.key, self.sample_rate
        bends = self.voices.channel.bend_cents
        seconds = self.voices.onsets[index] + control_seconds(count, rate)
        cents = bends.at(seconds) if len(bends.values) else None
        if zone.leaves_loop or (cents is not None and np.any(cents)):
            return wave(font, zone, key, count, rate, bend_cents=cents, release=held)
        return _cache.get(
            (zone, key, rate), longest, lambda size: wave(font, zone, key, size, rate)
        )[:count]

    def _gain(self, index: int, count: int) -> NDArray[np.float32] | np.float32:
        """Return the amplitude factor of a voice; an array (count,) if it changes in the voice."""
        channel, onset = self.voices.channel, self.voices.onsets[index]
        gain = self.voices.gains[index]
        end = onset + count / self.sample_rate
        changes = (channel.volume, channel.expression)
        if not any(steps.changes_between(onset, end) for steps in changes):
            return np.float32(gain * channel.gain(onset))
        seconds = control_seconds(count, self.sample_rate)
        gains = gain * channel.gain(onset + seconds)
        return interpolate(count, self.sample_rate, seconds, gains)
