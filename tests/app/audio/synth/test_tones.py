from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.soundfont import Generator, Zone, default_soundfont, open_soundfont
from app.audio.synth.tones import Envelope, ToneCache, control_seconds, release_curve, wave

RATE = 22050
FONT = open_soundfont(default_soundfont())

seconds = st.floats(0.001, 2)
envelopes = st.builds(Envelope, seconds, seconds, seconds, seconds, st.floats(0, 1), seconds)
programs = st.integers(0, 127)


def zone_at(program: int, key: int, bank: int = 0) -> Zone:
    return next(z for z in FONT.zones(bank, program) if z.keys[0] <= key <= z.keys[1])


@given(program=programs, key=st.integers(21, 108), counts=st.tuples(*[st.integers(1, 9000)] * 2))
def test_a_shorter_wave_is_the_start_of_a_longer_one(program, key, counts):
    short, long = sorted(counts)
    zone = zone_at(program, key)
    longer = wave(FONT, zone, key, long, RATE)
    shorter = wave(FONT, zone, key, short, RATE)
    assert len(shorter) == min(short, len(longer))
    np.testing.assert_allclose(shorter, longer[: len(shorter)], atol=1e-6)


@given(envelope=envelopes, counts=st.tuples(*[st.integers(1, 9000)] * 2))
def test_an_envelope_rises_to_its_peak_and_falls_after_it(envelope, counts):
    short, long = sorted(counts)
    amplitudes = envelope.amplitudes(long, 2000)
    assert np.all((amplitudes >= 0) & (amplitudes <= 1))
    peak = int(np.argmax(amplitudes))
    assert np.all(np.diff(amplitudes[: peak + 1]) >= 0)
    assert np.all(np.diff(amplitudes[peak:]) <= 1e-6)
    np.testing.assert_array_equal(envelope.amplitudes(short, 2000), amplitudes[:short])


def test_phases_of_an_envelope_are_in_units_of_the_format():
    values = dict.fromkeys(range(61), 0) | {
        33: -12000,  # delay: 2 ** -10 s
        34: 0,  # attack: 1 s
        35: -1200,  # hold: half a second
        36: 1200,  # decay: 2 s for 96 dB
        37: 250,  # sustain: a quarter of 96 dB down
        38: 0,  # release: 1 s
        40: 100,  # decay: shorter by 100 timecents with each key
    }
    envelope = Envelope.of(values, Generator.VOLUME_ENVELOPE, 60)
    np.testing.assert_allclose(envelope, (2**-10, 1, 0.5, 2, 0.75, 1))
    decibels = 20 * np.log10(envelope.amplitudes(4000, 1000)[[501, 1200, 1751, 3000]])
    np.testing.assert_allclose(decibels, [-6.02, 0, -12, -24], atol=0.05)
    assert Envelope.of(values, Generator.VOLUME_ENVELOPE, 72).decay == pytest.approx(1)


def test_a_release_falls_by_96_decibels_in_its_time():
    curve = release_curve(0.5, 10000)
    assert 20 * np.log10(curve[2500]) == pytest.approx(-48, abs=0.01)
    assert 20 * np.log10(curve[-1]) == pytest.approx(-90, abs=0.1)


def test_a_loop_goes_round_without_a_seam():
    zone = zone_at(80, 60)  # square wave
    assert zone.loops
    sound = wave(FONT, zone, 60, RATE * 20, RATE)
    early, late = np.abs(sound[RATE : 2 * RATE]), np.abs(sound[-RATE:])
    assert late.mean() == pytest.approx(early.mean(), rel=0.01)
    assert np.abs(np.diff(sound[-RATE:])).max() <= np.abs(np.diff(sound[: 2 * RATE])).max() * 1.01


def test_a_sample_without_a_loop_ends():
    zone = zone_at(0, 75, bank=128)  # claves
    assert not zone.loops
    assert len(wave(FONT, zone, 75, RATE * 20, RATE)) < RATE


@given(held=st.integers(100, 5000))
def test_a_loop_that_is_left_ends_with_the_rest_of_the_sample(held):
    looped = zone_at(73, 62)  # flute: points follow its loop
    left = Zone(
        looped.keys,
        looped.velocities,
        {**looped.values, Generator.SAMPLE_MODES: 3},
        looped.sample,
    )
    sample = looped.sample
    speed = sample.rate / RATE * 2 ** (looped.transposition(62) / 1200)
    sound = wave(FONT, left, 62, RATE * 5, RATE, held=held)
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


@given(sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60000)), max_size=40))
def test_a_cache_gives_what_is_asked_for_and_stays_within_its_bytes(sizes):
    cache = ToneCache(max_bytes=1 << 20)
    for key, count in sizes:
        found = cache.get(key, count, lambda n, key=key: np.full(n, key, dtype=np.float32))
        assert len(found) >= count
        assert np.all(found == key)
        assert cache.num_bytes <= cache.max_bytes


def test_a_cache_knows_what_has_ended():
    cache, calls = ToneCache(), []

    def make(count: int) -> np.ndarray:
        calls.append(count)
        return np.zeros(min(count, 100), dtype=np.float32)

    assert len(cache.get("short", 50, make)) == 100
    assert len(cache.get("short", 10**6, make)) == 100
    assert len(calls) == 1
