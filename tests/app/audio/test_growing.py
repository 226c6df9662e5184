"""Music is rendered while it is written; joined, its parts are the sound of the whole."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audio.growing import PART_SECONDS, STEADY, GrowingSound, can_start
from app.audio.loudness import CEILING
from app.audio.synth.mixer import Mixer
from app.audio.synth.soundfont import default_soundfont, open_soundfont
from tests.support.bands import band
from tokenization.score import Score, Tempo, Track

RATE = 22050


def played(growing):
    """All parts of a growing sound, joined (n, 2)."""
    parts = [soundfile.read(part.path, dtype="float32")[0] for part in growing.parts]
    for before, after in zip(growing.parts, growing.parts[1:], strict=False):
        assert before.begin + before.seconds == pytest.approx(after.begin, abs=1e-9)
    return np.concatenate(parts)


def grow(growing, score, until=None):
    """Renders all parts up to a tick, each of them short."""
    assert growing.add(score, until)
    while growing.add(score, until):
        pass
    assert not growing.add(score, until)
    assert all(part.seconds <= PART_SECONDS + 2.1 for part in growing.parts)


def whole(score, begin=0.0):
    """The sound (n, 2) of the finished score, before its gain."""
    font = open_soundfont(default_soundfont())
    return Mixer(score, font, RATE, begin).mix().T


def ringing(bars=4):
    """Long and repeated notes over bar lines, an open hi-hat that a closed one ends, two tempos."""
    drums = [
        (at, 60, key, 90)
        for bar in range(bars)
        for at, key in ((1920 * bar, 42), (1920 * bar + 1680, 46))
    ]
    piano = [(1920 * bar + 960, 1500, 60, 80) for bar in range(bars)]
    tracks = (Track.of(piano), Track.of(drums, is_drum=True))
    return Score(480, tracks, (Tempo(0, 97.0), Tempo(1920, 131.0)), (), 1920 * bars)


@pytest.mark.parametrize(
    ("score", "first", "steps"),
    [(band(bars=4), 0, [2, 3]), (ringing(), 0, [1, 2, 3]), (ringing(), 1, [2])],
)
def test_joined_parts_are_the_sound_of_the_whole_or_that_from_a_bar_on(
    score, first, steps, tmp_path
):
    """Notes before that bar ring on."""
    begin = float(score.seconds_at(1920 * first))
    growing = GrowingSound(lambda: tmp_path, None, begin, RATE)
    for bar in steps:
        # what is written later is not known yet
        known = score.with_tracks(
            replace(t, notes=t.notes[t.notes[:, 0] < 1920 * bar + 400]) for t in score.tracks
        )
        grow(growing, known, 1920 * bar)
    grow(growing, score)
    assert growing.whole
    sound = played(growing)
    expected = whole(score, (round(begin * RATE) + 0.5) / RATE if first else 0.0)
    gain = float(np.vdot(sound, expected) / np.vdot(expected, expected))
    assert sound.shape == expected.shape
    assert np.abs(sound - gain * expected).max() < 2 / 32768
    assert growing.parts[0].begin == pytest.approx(begin, abs=1 / RATE)


def test_a_loud_part_after_a_soft_one_does_not_clip(tmp_path):
    soft = [(0, 480, 60, 8)]
    loud = [(1920, 960, pitch, 127) for pitch in range(36, 96, 2)]
    score = Score(480, (Track.of([*soft, *loud]),))
    growing = GrowingSound(lambda: tmp_path, sample_rate=RATE)
    grow(growing, score, 1920)
    grow(growing, score)
    assert np.abs(played(growing)).max() <= CEILING + 1e-4
    assert list(tmp_path.iterdir())
    growing.drop()
    assert not list(tmp_path.iterdir())


@settings(max_examples=100, deadline=None)
@given(
    bars=st.integers(1, 40),
    bar=st.floats(0.5, 4),
    speed=st.floats(0.05, 20),
    jitter=st.floats(STEADY, 1.5),
)
def test_music_that_starts_when_allowed_never_runs_out(bars, bar, speed, jitter):
    written = [(number + 1) * bar / speed for number in range(bars)]  # so far as observed
    ready = next(
        (n for n in range(1, bars + 1) if can_start(n * bar, bars * bar, bar, speed)), bars
    )
    start = written[ready - 1]
    later = speed * jitter  # the speed of the rest
    for number in range(ready, bars):
        available = start + (number + 1 - ready) * bar / later
        assert available <= start + number * bar + 1e-6
    # nothing starts without music
    assert not can_start(0, 16, 2, 100)
    assert not can_start(2, 16, 2, 0)
    assert can_start(16, 16, 2, 0.01)
