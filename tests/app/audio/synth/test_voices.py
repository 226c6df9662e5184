from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.soundfont import default_soundfont, open_soundfont
from app.audio.synth.voices import score_voices
from tokenization.score import Score, Tempo, Track

FONT = open_soundfont(default_soundfont())
PEDAL, VOLUME, PAN, EXPRESSION, RESET = 64, 7, 10, 11, 121


def track(notes, controls=(), bends=(), **rest) -> Track:
    return Track(
        np.array(notes, dtype=np.int64).reshape(-1, 4),
        controls=np.array(controls, dtype=np.int64).reshape(-1, 3),
        bends=np.array(bends, dtype=np.int64).reshape(-1, 2),
        **rest,
    )


def score(*tracks: Track, end_ticks: int = 0) -> Score:
    """A score whose ticks are milliseconds."""
    return Score(500, tracks, (Tempo(0, 120.0),), end_ticks=end_ticks)


def ends(music: Score) -> dict[tuple[int, float], float]:
    """End of each (key, onset), in milliseconds."""
    return {
        (voices.key, round(onset * 1000)): round(end * 1000)
        for voices in score_voices(music, FONT)
        for onset, end in zip(voices.onsets, voices.ends, strict=True)
    }


notes = st.lists(
    st.tuples(
        st.integers(0, 4000), st.integers(20, 2000), st.integers(21, 108), st.integers(1, 127)
    ),
    min_size=1,
    max_size=30,
)
pedals = st.lists(st.tuples(st.integers(0, 6000), st.just(PEDAL), st.integers(0, 127)), max_size=10)


@given(rows=notes, pedal=pedals)
def test_tones_end_after_their_notes_unless_struck_again_and_never_after_the_score(rows, pedal):
    music = score(track(rows, pedal))
    assert sum(len(voices.onsets) for voices in score_voices(music, FONT)) == len(rows)
    for (key, onset), end in ends(music).items():
        same = [row for row in rows if row[2] == key]
        written = min(row[0] + row[1] for row in same if row[0] + row[1] > onset)
        again = min((row[0] for row in same if row[0] > onset), default=np.inf)
        assert end >= min(written, max(again, onset + 10))
        assert end <= max(music.end_ticks, onset + 10)
        assert end <= max(again, onset + 10)


def test_two_hands_on_one_key_strike_it_once_and_release_it_together():
    """As in MIDI: the second note-on ends the first tone, the first note-off ends the second."""
    left = replace(track([(0, 1000, 60, 90), (3000, 400, 62, 90)]), chunk=0)
    right = replace(track([(500, 1500, 60, 90), (3000, 900, 62, 90)]), chunk=1)
    music = score(left, right)
    assert ends(music)[60, 500] == 1000
    assert ends(music)[60, 0] == 500
    struck = [
        round(1000 * (end - onset))
        for voices in score_voices(music, FONT)
        if voices.key == 62
        for onset, end in zip(voices.onsets, voices.ends, strict=True)
    ]
    assert sorted(struck) == [10, 400]
    apart = score_voices(score(left, replace(right, channel=1)), FONT)
    apart_ends = {round(1000 * end) for voices in apart for end in voices.ends}
    assert apart_ends == {1000, 2000, 3400, 3900}


def test_the_pedal_holds_voices_until_its_release_or_the_next_strike():
    single = [(0, 100, 60, 90)]
    several = [*single, (500, 100, 62, 90), (700, 100, 60, 90), (1200, 100, 64, 90)]
    held = {(60, 0): 700, (62, 500): 1000, (60, 700): 1000, (64, 1200): 1300}
    for rows, controls, expected in (
        (several, [(50, PEDAL, 127), (1000, PEDAL, 0)], held),
        (single, [(0, PEDAL, 127), (100, PEDAL, 0)], {(60, 0): 100}),  # lifted where the note ends
        (single, [(100, PEDAL, 127), (900, PEDAL, 0)], {(60, 0): 100}),  # pressed where it ends
        (single, [(0, PEDAL, 64)], {(60, 0): 2000}),
        (single, [(0, PEDAL, 64), (300, RESET, 0)], {(60, 0): 300}),
    ):
        assert ends(score(track(rows, controls), end_ticks=2000)) == expected


def test_tracks_of_a_file_share_the_controllers_of_their_channel():
    controls = track([], [(0, PEDAL, 127)], channel=3, chunk=0)
    note = track([(0, 100, 60, 90)], channel=3, chunk=1)
    assert ends(score(controls, note, end_ticks=900)) == {(60, 0): 900}
    assert ends(score(controls, replace(note, channel=4), end_ticks=900)) == {(60, 0): 100}
    assert ends(score(controls, replace(note, chunk=None), end_ticks=900)) == {(60, 0): 100}


def test_a_closed_hi_hat_cuts_the_open_one():
    music = score(track([(0, 100, 46, 90), (300, 100, 42, 90), (600, 100, 36, 90)], is_drum=True))
    chokes = {
        voices.key: float(choke) for voices in score_voices(music, FONT) for choke in voices.chokes
    }
    assert chokes == {46: pytest.approx(0.3), 42: np.inf, 36: np.inf}


def test_tones_grow_with_the_square_of_velocity_volume_and_expression():
    rows = [(index * 100, 90, 60, velocity) for index, velocity in enumerate((40, 80, 127))]
    (voices,) = score_voices(score(track(rows)), FONT)
    np.testing.assert_allclose(
        voices.gains / voices.gains[2], [(v / 127) ** 2 for v in (40, 80, 127)]
    )
    # a channel starts at volume 100
    (voices,) = score_voices(
        score(
            track([(0, 900, 60, 90)], [(100, VOLUME, 127), (200, EXPRESSION, 64), (300, RESET, 0)])
        ),
        FONT,
    )
    gains = voices.channel.gain(np.array([0, 0.15, 0.25, 0.35]))
    np.testing.assert_allclose(gains, [(100 / 127) ** 2, 1, (64 / 127) ** 2, 1])
    # pan moves a tone
    for value, pan in ((0, -500), (1, -500), (64, 0), (127, 500)):
        music = score(track([(0, 90, 72, 90)], [(0, PAN, value)], program=73))
        (voices,) = score_voices(music, FONT)
        assert voices.pans == pytest.approx([pan])


def test_bends_have_the_range_of_registered_parameter_0_until_a_reset():
    """As in FluidSynth. A bend at the time of the reset is kept: files begin with a reset."""
    music = score(
        track([(0, 900, 60, 90)], [(200, RESET, 0), (400, RESET, 0)], [(100, 8191), (400, 4096)])
    )
    (voices,) = score_voices(music, FONT)
    cents = voices.channel.bend_cents.at(np.array([0.05, 0.15, 0.25, 0.45]))
    np.testing.assert_allclose(cents, [0, 200 * 8191 / 8192, 0, 100])
    wide = [(0, 101, 0), (0, 100, 0), (0, 6, 12)]
    other = [(0, 101, 0), (0, 100, 1), (0, 6, 12)]
    own = [(0, 60, 50), (100, 60, -50)]
    both = track([(0, 900, 60, 90), (0, 900, 64, 90)], (), [(200, 4096)], note_bends=own)
    for voices in score_voices(score(both), FONT):
        cents = voices.channel.bend_cents.at(np.array([0.05, 0.15, 0.25]))
        np.testing.assert_allclose(cents, [50, -50, 50] if voices.key == 60 else [0, 0, 100])
    for controls, semitones in (((), 2), (wide, 12), (other, 2)):
        music = score(track([(0, 900, 60, 90)], controls, [(100, -8192), (200, 4096)]))
        (voices,) = score_voices(music, FONT)
        cents = voices.channel.bend_cents.at(np.array([0.05, 0.15, 0.25]))
        np.testing.assert_allclose(cents, [0, -100 * semitones, 50 * semitones])
