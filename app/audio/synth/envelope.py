"""Volume and modulation envelopes of a SoundFont zone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.audio.synth import BLOCK

_FULL_NEPERS = 96 * np.log(10) / 20
"""Fall of an envelope over its whole decay or release time: 96 decibels, in nepers."""
_FLOOR_VALUE = 1 - 90 / 96
"""Envelope value at which a tone has ended."""
_MIN_RELEASE_SECONDS = 0.01
"""A shorter release clicks."""


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
        """The envelope at a key, from eight generators starting with `first`."""
        delay, attack, hold, decay, sustain, release, key_to_hold, key_to_decay = (
            values[first + index] for index in range(8)
        )
        return cls(
            delay=seconds_of(delay),
            attack=seconds_of(attack),
            hold=seconds_of(hold + (60 - key) * key_to_hold),
            decay=seconds_of(decay + (60 - key) * key_to_decay),
            sustain=1 - min(max(sustain, 0), 1000) / 1000,
            release=max(seconds_of(release), _MIN_RELEASE_SECONDS),
        )

    def values(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Value, 0 to 1, at each time after the onset while the key is down; piecewise linear."""
        peak = self.delay + self.attack
        fall = peak + self.hold
        times = [self.delay, peak, fall, fall + self.decay * (1 - self.sustain)]
        return np.interp(seconds, times, [0.0, 1.0, 1.0, self.sustain])

    def amplitudes(self, count: int, sample_rate: int) -> NDArray[np.float32]:
        """Amplitude 0 to 1 of the first `count` samples (count,) while the key is down.

        It rises linearly; after the peak, a value v stands for 96 (1 - v) decibels below the peak.
        """
        amplitudes = np.empty(count, dtype=np.float32)
        for start in range(0, count, BLOCK):
            part = amplitudes[start : start + BLOCK]
            seconds = np.arange(start, start + len(part)) / sample_rate
            part[:] = self.values(seconds)
            peak = int(np.searchsorted(seconds, self.delay + self.attack))
            part[peak:] = np.exp((part[peak:] - 1) * np.float32(_FULL_NEPERS))
        return amplitudes

    def audible_seconds(self) -> float:
        """How long a tone is audible while its key is down; infinite if it is sustained."""
        if self.sustain > _FLOOR_VALUE:
            return np.inf
        return self.delay + self.attack + self.hold + self.decay * (1 - _FLOOR_VALUE)


@lru_cache(maxsize=16)
def release_curve(release: float, sample_rate: int) -> NDArray[np.float32]:
    """Amplitude (n,) from 1 to the floor after the release of the key; `release` in seconds."""
    count = int(release * (1 - _FLOOR_VALUE) * sample_rate)
    slope = -_FULL_NEPERS / (release * sample_rate)
    curve = np.exp(np.arange(count, dtype=np.float32) * np.float32(slope))
    curve.setflags(write=False)
    return curve


def seconds_of(timecents: int) -> float:
    """A time in timecents as seconds, limited to between 1 millisecond and about 100 seconds."""
    return 2 ** (min(max(timecents, -12000), 8000) / 1200)
