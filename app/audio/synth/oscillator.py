"""The waveform of a SoundFont zone at one pitch: resampled, modulated and filtered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from app.audio.synth import BLOCK
from app.audio.synth.envelope import Envelope, seconds_of
from app.audio.synth.soundfont import Generator, SoundFont, Zone

CONTROL_SAMPLES = 64
"""Pitch, filter and tremolo are updated once per this many samples."""
_FILTER_STEP_CENTS = 25
_MAX_CUTOFF = 0.45  # of the sample rate
_RESAMPLED_PERIODS = 256  # of CONTROL_SAMPLES, at a time, to fit the processor's cache


def control_seconds(count: int, sample_rate: int) -> NDArray[np.float64]:
    """Return the seconds at which pitch, filter and volume are set, past `count` samples."""
    indices = np.arange(count // CONTROL_SAMPLES + 2, dtype=np.float64)
    return indices * CONTROL_SAMPLES / sample_rate


def interpolate(
    count: int, sample_rate: int, seconds: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Interpolate `values` at `seconds` linearly, to one value per sample (count,)."""
    samples = np.empty(count, dtype=np.float32)
    for start in range(0, count, BLOCK):
        part = samples[start : start + BLOCK]
        part[:] = np.interp(np.arange(start, start + len(part)) / sample_rate, seconds, values)
    return samples


def wave(
    soundfont: SoundFont,
    zone: Zone,
    key: int,
    count: int,
    sample_rate: int,
    *,
    bend_cents: NDArray[np.float64] | None = None,
    release: int | None = None,
) -> NDArray[np.float32]:
    """Return the first `count` samples of a zone at a key, without envelope.

    There are fewer if the zone ends.

    `bend_cents` has one value for each of `control_seconds`. `release` is the sample at which the
    key is released, for zones that leave their loop at that point. Full scale is 1.
    """
    modulation = _Modulation(zone, key, count, sample_rate)
    cents = zone.transposition(key) + modulation.pitch_cents()
    if bend_cents is not None:
        cents += bend_cents
    speeds = zone.sample.rate / sample_rate * 2 ** (np.clip(cents, -12000, 12000) / 1200)
    places = np.concatenate([[0.0], np.cumsum(speeds * CONTROL_SAMPLES)])
    sound = _resample(soundfont, zone, places, release)[:count]
    return modulation.apply_tremolo(modulation.apply_filter(sound))


def _resample(
    soundfont: SoundFont, zone: Zone, places: NDArray[np.float64], release: int | None
) -> NDArray[np.float32]:
    """Return the sample data, read at positions that are interpolated linearly between `places`.

    `places` has one position per CONTROL_SAMPLES samples. Between data points, the waveform is a
    Catmull-Rom cubic through four of them.
    """
    points, num_repeats = _unroll_loop(soundfont, zone, places, release)
    loop_end = zone.sample.loop_end - zone.sample.start
    loop_length = zone.sample.loop_end - zone.sample.loop_start
    terms = _cubics(points[: int(places[-1]) + 3 if num_repeats == 0 else None])

    num_periods = len(places) - 1
    sound = np.empty((num_periods, CONTROL_SAMPLES), dtype=np.float32)
    along = np.arange(CONTROL_SAMPLES) / CONTROL_SAMPLES
    for start in range(0, num_periods, _RESAMPLED_PERIODS):
        edges = places[start : start + _RESAMPLED_PERIODS + 1]
        position = edges[:-1, None] + np.diff(edges)[:, None] * along
        if num_repeats and edges[-1] > loop_end:
            repeats = np.clip(np.floor((position - loop_end) / loop_length), 0, num_repeats)
            position -= loop_length * repeats
        index = position.astype(np.int64)
        ended = None
        if np.isfinite(num_repeats) and index[-1, -1] >= len(terms):
            ended = index >= len(terms)
            index[ended] = len(terms) - 1
        part = (position - index).astype(np.float32)
        term = terms.take(index, axis=0)
        value = ((term[..., 3] * part + term[..., 2]) * part + term[..., 1]) * part + term[..., 0]
        sound[start : start + len(value)] = value
        if ended is not None:
            return sound.reshape(-1)[: start * CONTROL_SAMPLES + int(np.argmax(ended.reshape(-1)))]
    return sound.reshape(-1)


def _unroll_loop(
    soundfont: SoundFont, zone: Zone, places: NDArray[np.float64], release: int | None
) -> tuple[NDArray[np.int16], float]:
    """Return the points of a zone with its loop twice, and how often the second one is repeated."""
    data, sample = soundfont.points, zone.sample
    if not zone.loops:
        return data[sample.start : sample.end], 0.0
    parts = [data[sample.start : sample.loop_end], data[sample.loop_start : sample.loop_end]]
    if not zone.leaves_loop or release is None:
        # the last cubic needs three more points: the first ones of the next repetition
        return np.concatenate([*parts, np.resize(parts[1], 3)]), np.inf
    parts.append(data[sample.loop_end : sample.end])
    place = np.interp(release / CONTROL_SAMPLES, np.arange(len(places)), places)
    return np.concatenate(parts), max(0.0, np.ceil((place - len(parts[0])) / len(parts[1])) - 1)


def _cubics(points: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return coefficients (n, 4), lowest power first, of the cubic from each point to the next."""
    padded = np.pad(points.astype(np.float32) / 32768, (1, 2))
    before, here, after, beyond = (padded[shift : shift + len(points)] for shift in range(4))
    return np.stack(
        [
            here,
            (after - before) / 2,
            before - 2.5 * here + 2 * after - beyond / 2,
            (beyond - before) / 2 + 1.5 * (here - after),
        ],
        axis=1,
        dtype=np.float32,
    )


class _Modulation:
    """Modulation of a tone by the envelope and the two low-frequency oscillators of its zone."""

    def __init__(self, zone: Zone, key: int, count: int, sample_rate: int) -> None:
        self.values = zone.values
        self.key = zone.played_key(key)
        self.sample_rate = sample_rate
        self.seconds = control_seconds(count, sample_rate)

    def _oscillator(self, delay: Generator, frequency: Generator) -> NDArray[np.float64]:
        """Return a triangle wave between -1 and 1 that starts at 0 after its delay, rising."""
        turns = (self.seconds - seconds_of(self.values[delay])) * _hertz(self.values[frequency])
        turns = np.maximum(turns, 0) + 0.25
        return 1 - 4 * np.abs(turns - np.floor(turns) - 0.5)

    def _mod_oscillator(self) -> NDArray[np.float64]:
        return self._oscillator(Generator.MOD_LFO_DELAY, Generator.MOD_LFO_FREQUENCY)

    def _cents(self, start: float, from_envelope: Generator, from_lfo: Generator) -> NDArray:
        """Return `start` plus the modulation by the envelope and the modulation oscillator."""
        cents = np.full(len(self.seconds), start)
        if depth := self.values[from_envelope]:
            envelope = Envelope.of(self.values, Generator.MOD_ENVELOPE, self.key)
            cents += depth * envelope.values(self.seconds)
        if depth := self.values[from_lfo]:
            cents += depth * self._mod_oscillator()
        return cents

    def pitch_cents(self) -> NDArray[np.float64]:
        """Return the change of pitch at each of `control_seconds`."""
        cents = self._cents(0.0, Generator.MOD_ENVELOPE_TO_PITCH, Generator.MOD_LFO_TO_PITCH)
        if depth := self.values[Generator.VIBRATO_TO_PITCH]:
            cents += depth * self._oscillator(Generator.VIBRATO_DELAY, Generator.VIBRATO_FREQUENCY)
        return cents

    def apply_tremolo(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the modulation of the volume, in place."""
        if not self.values[Generator.MOD_LFO_TO_VOLUME]:
            return sound
        decibels = self.values[Generator.MOD_LFO_TO_VOLUME] / 10 * self._mod_oscillator()
        sound *= interpolate(len(sound), self.sample_rate, self.seconds, 10 ** (decibels / 20))
        return sound

    def apply_filter(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the two-pole low-pass filter in place; its cutoff moves in small steps.

        Source: Bristow-Johnson, Cookbook formulae for audio equalizer biquad filter coefficients.
        The resonance, and the gain that compensates half of it, follow section 8.1.3 of the
        SoundFont specification.
        """
        cents = self._cents(
            float(self.values[Generator.FILTER_CUTOFF]),
            Generator.MOD_ENVELOPE_TO_FILTER,
            Generator.MOD_LFO_TO_FILTER,
        )
        resonance = max(self.values[Generator.FILTER_Q], 0) / 10
        steps = np.round(np.clip(cents, 1500, 13500) / _FILTER_STEP_CENTS)
        open_step = 13500 // _FILTER_STEP_CENTS
        if resonance == 0 and np.all(steps >= open_step):
            return sound
        starts = np.flatnonzero(np.diff(steps, prepend=-1.0))
        ends = np.append(starts[1:] * CONTROL_SAMPLES, len(sound))
        state = np.zeros(2)
        for first, end in zip(starts, ends, strict=True):
            numerator, denominator = _low_pass(
                _hertz(float(steps[first]) * _FILTER_STEP_CENTS), resonance, self.sample_rate
            )
            for start in range(first * CONTROL_SAMPLES, min(end, len(sound)), BLOCK):
                piece = slice(start, min(start + BLOCK, end))
                sound[piece], state = lfilter(numerator, denominator, sound[piece], zi=state)
        return sound


def _low_pass(
    cutoff_hertz: float, resonance_decibels: float, sample_rate: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numerator (3,) and the denominator (3,) of the filter."""
    angle = 2 * np.pi * min(cutoff_hertz / sample_rate, _MAX_CUTOFF)
    quality = 10 ** ((resonance_decibels - 3.01) / 20)
    width = np.sin(angle) / (2 * quality)
    gain = 10 ** (-resonance_decibels / 40)
    rise = 1 - np.cos(angle)
    numerator = gain * np.array([rise / 2, rise, rise / 2])
    denominator = np.array([1 + width, -2 * np.cos(angle), 1 - width])
    return numerator / denominator[0], denominator / denominator[0]


def _hertz(cents: float) -> float:
    """Return the frequency of a pitch in cents above MIDI key 0."""
    return 440 * 2 ** ((cents - 6900) / 1200)
