import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.envelope import Envelope, release_curve
from app.audio.synth.soundfont import Generator

seconds = st.floats(0.001, 2)
envelopes = st.builds(Envelope, seconds, seconds, seconds, seconds, st.floats(0, 1), seconds)


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
    # a release falls by 96 decibels in its time
    curve = release_curve(0.5, 10000)
    assert 20 * np.log10(curve[2500]) == pytest.approx(-48, abs=0.01)
    assert 20 * np.log10(curve[-1]) == pytest.approx(-90, abs=0.1)
