"""Volume and modulation envelopes of a SoundFont zone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.audio.synth import BLOCK

_FULL_NEPERS = 96 * np.log(10) / 20
"""Attenuation over a full decay or release time: 96 decibels, in nepers."""
_FLOOR_VALUE = 1 - 90 / 96
"""Envelope value below which a tone is inaudible."""
_MIN_RELEASE_SECONDS = 0.01
"""A shorter release would be audible as a click."""


class Envelope(NamedTuple):
    """An envelope: durations of its phases in seconds, and the value of `sustain`, 0 to 1."""

    delay: float
    attack: float
    hold: float
    decay: float
    sustain: float
    release: float

    @classmethod
    def of(cls, values: Mapping[int, int], first: int, key: int) -> Envelope:
        """Return the envelope at a key, from eight generators starting with `first`."""
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
        """Return values (0 to 1) at times after the onset with the key down; piecewise linear."""
        peak = self.delay + self.attack
        fall = peak + self.hold
        times = [self.delay, peak, fall, fall + self.decay * (1 - self.sustain)]
        return np.interp(seconds, times, [0.0, 1.0, 1.0, self.sustain])

    def amplitudes(self, count: int, sample_rate: int) -> NDArray[np.float32]:
        """Return amplitudes (count,), 0 to 1, of the first `count` samples while the key is down.

        The attack is linear; after it, a value v means 96 (1 - v) decibels below the peak.
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
        """Return how long a tone is audible while its key is down; infinite if it is sustained."""
        if self.sustain > _FLOOR_VALUE:
            return np.inf
        return self.delay + self.attack + self.hold + self.decay * (1 - _FLOOR_VALUE)


@lru_cache(maxsize=16)
def release_curve(release: float, sample_rate: int) -> NDArray[np.float32]:
    """Return amplitudes (n,) after the key is released, starting at 1; `release` is in seconds."""
    count = int(release * (1 - _FLOOR_VALUE) * sample_rate)
    slope = -_FULL_NEPERS / (release * sample_rate)
    curve = np.exp(np.arange(count, dtype=np.float32) * np.float32(slope))
    curve.setflags(write=False)
    return curve


def seconds_of(timecents: int) -> float:
    """Convert timecents to seconds, limited to the range from 1 ms to about 100 s."""
    return 2 ** (min(max(timecents, -12000), 8000) / 1200)
