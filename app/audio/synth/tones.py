"""One tone of a SoundFont zone: its wave at one pitch, its envelope, and a cache of both."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.signal import lfilter

from app.audio.synth.soundfont import Generator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from numpy.typing import NDArray

    from app.audio.synth.soundfont import SoundFont, Zone

CONTROL_SAMPLES = 64
"""Pitch, filter and tremolo are worked out once in so many samples."""
CACHE_BYTES = 64 << 20
"""What the cached waves and envelopes of all SoundFonts may take."""
_FULL_NEPERS = 96 * np.log(10) / 20
# an envelope falls 96 decibels in its whole decay or release time
_FLOOR_VALUE = 1 - 90 / 96
# envelope value at which a tone is over
_MIN_RELEASE_SECONDS = 0.01
# a shorter release clicks
_FILTER_STEP_CENTS = 25
_MAX_CUTOFF = 0.45  # of the sample rate
_FIRST_SIZE = 1 << 14
_CHUNK_SAMPLES = 1 << 18  # of a long tone worked out at a time, which bounds the memory
_CHUNK_BLOCKS = 256  # resampled at a time, so that they stay in the processor's cache


class Envelope(NamedTuple):
    """An envelope of six phases, in seconds; `sustain` is its value in that phase, 0 to 1."""

    delay: float
    attack: float
    hold: float
    decay: float
    sustain: float
    release: float

    @classmethod
    def of(cls, values: Mapping[int, int], first: int, key: int) -> Envelope:
        """Envelope of the eight generators from `first` on, at a key."""
        delay, attack, hold, decay, sustain, release, key_to_hold, key_to_decay = (
            values[first + index] for index in range(8)
        )
        return cls(
            delay=_seconds(delay),
            attack=_seconds(attack),
            hold=_seconds(hold + (60 - key) * key_to_hold),
            decay=_seconds(decay + (60 - key) * key_to_decay),
            sustain=1 - min(max(sustain, 0), 1000) / 1000,
            release=max(_seconds(release), _MIN_RELEASE_SECONDS),
        )

    def values(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Value 0 to 1 at each time after the onset while the key is down; straight lines."""
        peak = self.delay + self.attack
        fall = peak + self.hold
        times = [self.delay, peak, fall, fall + self.decay * (1 - self.sustain)]
        return np.interp(seconds, times, [0.0, 1.0, 1.0, self.sustain])

    def amplitudes(self, count: int, sample_rate: int) -> NDArray[np.float32]:
        """Amplitude 0 to 1 of the first `count` samples (count,) while the key is down.

        It rises in a straight line; after that a value is a part of 96 decibels.
        """
        amplitudes = np.empty(count, dtype=np.float32)
        for start in range(0, count, _CHUNK_SAMPLES):
            part = amplitudes[start : start + _CHUNK_SAMPLES]
            seconds = np.arange(start, start + len(part)) / sample_rate
            part[:] = self.values(seconds)
            peak = int(np.searchsorted(seconds, self.delay + self.attack))
            part[peak:] = np.exp((part[peak:] - 1) * np.float32(_FULL_NEPERS))
        return amplitudes

    def audible_seconds(self) -> float:
        """How long a tone is heard while its key is down; infinite when it is sustained."""
        if self.sustain > _FLOOR_VALUE:
            return np.inf
        return self.delay + self.attack + self.hold + self.decay * (1 - _FLOOR_VALUE)


@lru_cache(maxsize=16)
def release_curve(release: float, sample_rate: int) -> NDArray[np.float32]:
    """Amplitude (n,) from 1 to the floor after the key is let go, for a release time in seconds."""
    count = int(release * (1 - _FLOOR_VALUE) * sample_rate)
    slope = -_FULL_NEPERS / (release * sample_rate)
    curve = np.exp(np.arange(count, dtype=np.float32) * np.float32(slope))
    curve.setflags(write=False)
    return curve


def control_seconds(count: int, sample_rate: int) -> NDArray[np.float64]:
    """Times after the onset at which pitch, filter and volume are set, to past `count` samples."""
    indices = np.arange(count // CONTROL_SAMPLES + 2, dtype=np.float64)
    return indices * CONTROL_SAMPLES / sample_rate


def line(
    count: int, sample_rate: int, seconds: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Value at each of `count` samples (count,) on straight lines through `values` at `seconds`."""
    drawn = np.empty(count, dtype=np.float32)
    for start in range(0, count, _CHUNK_SAMPLES):
        part = drawn[start : start + _CHUNK_SAMPLES]
        part[:] = np.interp(np.arange(start, start + len(part)) / sample_rate, seconds, values)
    return drawn


def wave(
    soundfont: SoundFont,
    zone: Zone,
    key: int,
    count: int,
    sample_rate: int,
    *,
    bend_cents: NDArray[np.float64] | None = None,
    held: int | None = None,
) -> NDArray[np.float32]:
    """The first `count` samples of a zone at a key, fewer when it ends before, without envelope.

    `bend_cents` has one value for each of `control_seconds`. `held` is the sample at which the key
    is let go, of use to zones that leave their loop then. Full scale is 1.
    """
    modulation = _Modulation(zone, key, count, sample_rate)
    cents = zone.transposition(key) + modulation.pitch_cents()
    if bend_cents is not None:
        cents += bend_cents
    speeds = zone.sample.rate / sample_rate * 2 ** (np.clip(cents, -12000, 12000) / 1200)
    places = np.concatenate([[0.0], np.cumsum(speeds * CONTROL_SAMPLES)])
    sound = _resampled(soundfont, zone, places, held)[:count]
    return modulation.tremolo(modulation.filtered(sound))


def _resampled(
    soundfont: SoundFont, zone: Zone, places: NDArray[np.float64], held: int | None
) -> NDArray[np.float32]:
    """Sample points at every place on straight lines through `places`, one of CONTROL_SAMPLES each.

    Between points stands the cubic through four of them with Catmull and Rom's slopes.
    """
    data, sample = soundfont.points, zone.sample
    parts = [data[sample.start : sample.loop_end if zone.loops else sample.end]]
    turn, loop, rounds = len(parts[0]), 1, 0.0
    if zone.loops:
        parts.append(data[sample.loop_start : sample.loop_end])
        loop, rounds = len(parts[1]), np.inf
        if zone.leaves_loop and held is not None:
            left = np.interp(held / CONTROL_SAMPLES, np.arange(len(places)), places)
            rounds = max(0.0, np.ceil((left - turn) / loop) - 1)
            parts.append(data[sample.loop_end : sample.end])
        else:
            parts.append(np.resize(parts[1], 3))
    terms = _cubics(np.concatenate(parts)[: int(places[-1]) + 3 if rounds == 0 else None])

    num_blocks = len(places) - 1
    sound = np.empty((num_blocks, CONTROL_SAMPLES), dtype=np.float32)
    along = np.arange(CONTROL_SAMPLES) / CONTROL_SAMPLES
    for start in range(0, num_blocks, _CHUNK_BLOCKS):
        first = places[start : start + _CHUNK_BLOCKS + 1]
        place = first[:-1, None] + np.diff(first)[:, None] * along
        if rounds and first[-1] > turn:
            place -= loop * np.clip(np.floor((place - turn) / loop), 0, rounds)
        whole = place.astype(np.int64)
        if np.isfinite(rounds) and whole[-1, -1] >= len(terms):
            ended = whole >= len(terms)
            whole[ended] = len(terms) - 1
        else:
            ended = None
        part = (place - whole).astype(np.float32)
        term = terms.take(whole, axis=0)
        value = ((term[..., 3] * part + term[..., 2]) * part + term[..., 1]) * part + term[..., 0]
        sound[start : start + len(value)] = value
        if ended is not None:
            return sound.reshape(-1)[: start * CONTROL_SAMPLES + int(np.argmax(ended.reshape(-1)))]
    return sound.reshape(-1)


def _cubics(points: NDArray[np.int16]) -> NDArray[np.float32]:
    """Coefficients (n, 4), lowest power first, of the curve from each point to the next."""
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
    """What the modulation envelope and the two oscillators of a zone do to a tone over time."""

    def __init__(self, zone: Zone, key: int, count: int, sample_rate: int) -> None:
        self.values = zone.values
        self.key = zone.played_key(key)
        self.sample_rate = sample_rate
        self.seconds = control_seconds(count, sample_rate)

    def _envelope(self) -> NDArray[np.float64]:
        return Envelope.of(self.values, Generator.MOD_ENVELOPE, self.key).values(self.seconds)

    def _oscillator(self, delay: Generator, frequency: Generator) -> NDArray[np.float64]:
        """Triangle between -1 and 1 that starts upwards from 0 after its delay."""
        turns = (self.seconds - _seconds(self.values[delay])) * _hertz(self.values[frequency])
        turns = np.maximum(turns, 0) + 0.25
        return 1 - 4 * np.abs(turns - np.floor(turns) - 0.5)

    def _mod_oscillator(self) -> NDArray[np.float64]:
        return self._oscillator(Generator.MOD_LFO_DELAY, Generator.MOD_LFO_FREQUENCY)

    def pitch_cents(self) -> NDArray[np.float64]:
        """Change of pitch at each of `control_seconds`."""
        cents = np.zeros(len(self.seconds))
        if self.values[Generator.MOD_ENVELOPE_TO_PITCH]:
            cents += self.values[Generator.MOD_ENVELOPE_TO_PITCH] * self._envelope()
        if self.values[Generator.MOD_LFO_TO_PITCH]:
            cents += self.values[Generator.MOD_LFO_TO_PITCH] * self._mod_oscillator()
        if self.values[Generator.VIBRATO_TO_PITCH]:
            vibrato = self._oscillator(Generator.VIBRATO_DELAY, Generator.VIBRATO_FREQUENCY)
            cents += self.values[Generator.VIBRATO_TO_PITCH] * vibrato
        return cents

    def tremolo(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sound with the change of volume."""
        if not self.values[Generator.MOD_LFO_TO_VOLUME]:
            return sound
        decibels = self.values[Generator.MOD_LFO_TO_VOLUME] / 10 * self._mod_oscillator()
        sound *= line(len(sound), self.sample_rate, self.seconds, 10 ** (decibels / 20))
        return sound

    def filtered(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sound after the low-pass filter of two poles, whose cutoff moves in small steps.

        Source: Bristow-Johnson, Cookbook formulae for audio equalizer biquad filter coefficients;
        resonance and the gain that pays for half of it as in section 8.1.3 of the specification.
        """
        cents = np.full(len(self.seconds), float(self.values[Generator.FILTER_CUTOFF]))
        if self.values[Generator.MOD_ENVELOPE_TO_FILTER]:
            cents += self.values[Generator.MOD_ENVELOPE_TO_FILTER] * self._envelope()
        if self.values[Generator.MOD_LFO_TO_FILTER]:
            cents += self.values[Generator.MOD_LFO_TO_FILTER] * self._mod_oscillator()
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
            for start in range(first * CONTROL_SAMPLES, min(end, len(sound)), _CHUNK_SAMPLES):
                piece = slice(start, min(start + _CHUNK_SAMPLES, end))
                sound[piece], state = lfilter(numerator, denominator, sound[piece], zi=state)
        return sound


def _low_pass(
    cutoff_hertz: float, resonance_decibels: float, sample_rate: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numerator (3,) and denominator (3,) of the filter."""
    angle = 2 * np.pi * min(cutoff_hertz / sample_rate, _MAX_CUTOFF)
    quality = 10 ** ((resonance_decibels - 3.01) / 20)
    width = np.sin(angle) / (2 * quality)
    gain = 10 ** (-resonance_decibels / 40)
    rise = 1 - np.cos(angle)
    numerator = gain * np.array([rise / 2, rise, rise / 2])
    denominator = np.array([1 + width, -2 * np.cos(angle), 1 - width])
    return numerator / denominator[0], denominator / denominator[0]


class ToneCache:
    """Waves and envelopes that were used last, up to a number of bytes; threads may share it."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._arrays: OrderedDict[Hashable, tuple[NDArray[np.float32], bool]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, count: int, make: Callable[[int], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Read-only array of at least `count` items, or of all that there are.

        `make(n)` gives the first n items of what `key` stands for, fewer when there are no more.
        """
        with self._lock:
            array, is_whole = self._arrays.get(key, (None, False))
            if array is not None and (is_whole or len(array) >= count):
                self._arrays.move_to_end(key)
                return array
        size = _FIRST_SIZE
        while size < count:
            size = size * 3 // 2
        if 4 * size > self.max_bytes // 8:
            size = count  # more would be for later, and it is too long to be kept
        array = make(size)
        array.setflags(write=False)
        if array.nbytes <= self.max_bytes // 8:
            self._put(key, array, is_whole=len(array) < size)
        return array

    def _put(self, key: Hashable, array: NDArray[np.float32], *, is_whole: bool) -> None:
        with self._lock:
            old = self._arrays.pop(key, None)
            if old is not None:
                self.num_bytes -= old[0].nbytes
            self._arrays[key] = array, is_whole
            self.num_bytes += array.nbytes
            while self.num_bytes > self.max_bytes:
                _, (dropped, _) = self._arrays.popitem(last=False)
                self.num_bytes -= dropped.nbytes


def _seconds(timecents: int) -> float:
    return 2 ** (min(max(timecents, -12000), 8000) / 1200)


def _hertz(cents: float) -> float:
    """Frequency of a pitch in cents above MIDI key 0."""
    return 440 * 2 ** ((cents - 6900) / 1200)
