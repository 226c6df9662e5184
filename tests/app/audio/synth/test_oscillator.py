from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.oscillator import control_seconds, wave
from app.audio.synth.soundfont import Generator, Zone, default_soundfont, open_soundfont

RATE = 22050
FONT = open_soundfont(default_soundfont())


def zone_at(program: int, key: int, bank: int = 0) -> Zone:
    return next(z for z in FONT.zones(bank, program) if z.keys[0] <= key <= z.keys[1])


@given(
    program=st.integers(0, 127),
    key=st.integers(21, 108),
    counts=st.tuples(*[st.integers(1, 9000)] * 2),
)
def test_a_shorter_wave_is_the_start_of_a_longer_one(program, key, counts):
    short, long = sorted(counts)
    zone = zone_at(program, key)
    longer = wave(FONT, zone, key, long, RATE)
    shorter = wave(FONT, zone, key, short, RATE)
    assert len(shorter) == min(short, len(longer))
    np.testing.assert_allclose(shorter, longer[: len(shorter)], atol=1e-6)


def test_a_loop_repeats_without_a_seam_and_other_samples_end():
    zone = zone_at(80, 60)  # square wave
    assert zone.loops
    sound = wave(FONT, zone, 60, RATE * 20, RATE)
    early, late = np.abs(sound[RATE : 2 * RATE]), np.abs(sound[-RATE:])
    assert late.mean() == pytest.approx(early.mean(), rel=0.01)
    assert np.abs(np.diff(sound[-RATE:])).max() <= np.abs(np.diff(sound[: 2 * RATE])).max() * 1.01

    zone = zone_at(0, 75, bank=128)  # claves
    assert not zone.loops
    assert len(wave(FONT, zone, 75, RATE * 20, RATE)) < RATE


@given(held=st.integers(100, 5000))
def test_a_loop_that_is_left_ends_with_the_rest_of_the_sample(held):
    looped = zone_at(73, 62)  # flute: data points follow its loop
    left = Zone(
        looped.keys,
        looped.velocities,
        {**looped.values, Generator.SAMPLE_MODES: 3},
        looped.sample,
    )
    sample = looped.sample
    speed = sample.rate / RATE * 2 ** (looped.transposition(62) / 1200)
    sound = wave(FONT, left, 62, RATE * 5, RATE, release=held)
    loop = sample.loop_end - sample.loop_start
    rounds = (len(sound) * speed - (sample.end - sample.start)) / loop
    assert rounds == pytest.approx(round(rounds), abs=0.01)
    assert len(sound) > held
    until = min(held, len(sound))
    np.testing.assert_allclose(
        sound[:until], wave(FONT, looped, 62, RATE * 5, RATE)[:until], atol=1e-6
    )


def test_a_bend_of_twelve_semitones_doubles_the_speed():
    zone = zone_at(73, 62)
    bent = wave(
        FONT, zone, 62, RATE, RATE, bend_cents=np.full(len(control_seconds(RATE, RATE)), 1200.0)
    )
    plain = wave(FONT, zone, 62, 2 * RATE, RATE)
    np.testing.assert_allclose(bent, plain[::2], atol=1e-4)
