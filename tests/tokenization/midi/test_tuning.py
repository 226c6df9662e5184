from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.midi.tuning import Tuning
from tokenization.score import Score, Track


def a_track(channel: int, bends: object = (), controls: object = (), count: int = 8) -> Track:
    """Notes of 80 ticks every 100 ticks."""
    notes = [(100 * at, 80, 60, 80) for at in range(count)]
    return Track(notes, channel=channel, bends=bends, controls=controls)  # pyright: ignore


def tuning_of(*tracks: Track) -> Tuning:
    return Tuning.of_score(Score(100, tracks))


def parameter(number: int, value: int) -> list[tuple[int, int, int]]:
    return [(0, 101, 0), (0, 100, number), (0, 6, value)]


@given(bend=st.integers(-8192, 8191), others=st.integers(0, 3))
def test_a_bend_that_most_notes_hold_is_tuning_whatever_the_others_do(bend, others):
    slides = [(700 - 100 * at + 20 * part, 300 * part) for at in range(others) for part in range(4)]
    restored = [(700 - 100 * at + 90, bend) for at in range(others)]
    tuning = tuning_of(a_track(0, [(0, bend), *sorted(slides + restored)]))
    assert tuning.bend(0) == bend


def test_effects_are_not_tuning():
    glides, dive = [(10 * at, 100 * (at % 10)) for at in range(80)], [(700, 3000)]
    for bends in (glides, dive):
        tuning = tuning_of(a_track(0, bends))
        assert (tuning.bend(0), tuning.shared_cents) == (0, 0)


def test_a_scoop_into_each_note_keeps_the_tuning():
    scoops = [(100 * at + tick, value) for at in range(8) for tick, value in ((0, 0), (15, -1300))]
    assert tuning_of(a_track(0, scoops)).bend(0) == -1300


def test_reset_all_controllers_centres_the_bend_but_not_the_tuning():
    tuning = tuning_of(a_track(0, [(0, -1300)], [(790, 121, 0)]))
    assert (tuning.bend(0), tuning.last_bend(0)) == (-1300, 0)


def test_bend_range_and_tuning_by_parameters_count_in_cents():
    wide = a_track(0, [(0, 341)], parameter(0, 24))  # 100 cents
    fine = a_track(1, (), [*parameter(1, 127), (0, 38, 127)])
    coarse = a_track(2, (), parameter(2, 65))
    assert tuning_of(wide, fine, coarse).shared_cents == pytest.approx(100, abs=0.5)
    unregistered = a_track(0, (), [(0, 99, 0), (0, 98, 2), (0, 6, 65)])
    assert tuning_of(unregistered).shared_cents == 0


def test_transposing_instruments_share_the_cents_besides_semitones():
    octave_down = [*parameter(2, 52)]
    assert tuning_of(
        a_track(0, [(0, 2048)]), a_track(1, [(0, 2048)], octave_down)
    ).shared_cents == pytest.approx(50)
    assert tuning_of(a_track(0, [(0, 2048)]), a_track(1)).shared_cents == 0
    drums = replace(a_track(4), is_drum=True)  # they have no pitch
    assert tuning_of(a_track(0, [(0, 2048)]), drums).shared_cents == pytest.approx(50)


@given(cents=st.integers(-6300, 6300))
def test_an_instrument_that_joins_sounds_in_the_tuning(cents):
    semitones = round(cents / 100)
    bend = round((cents - 100 * semitones) / 200 * 8192)
    tuning = tuning_of(a_track(0, [(0, bend)], parameter(2, 64 + semitones)))
    for joined in (tuning.joining(a_track(5), 5, 0), tuning.alone(a_track(0))):
        again = tuning_of(joined)
        assert again.shared_cents == pytest.approx(tuning.shared_cents, abs=0.1)
    assert tuning.joining(a_track(0), 0, 0).bends.size == 0  # its channel is tuned


def test_a_channel_without_notes_keeps_its_bend():
    empty = a_track(3, [(0, 500)], count=0)
    assert tuning_of(a_track(0), empty).bend(3) == 500


def test_a_channel_that_only_glides_returns_to_the_tuning_of_the_others():
    glides = [(10 * at, 2048 + 100 * (at % 10)) for at in range(80)]
    tuning = tuning_of(a_track(0, [(0, 2048)]), a_track(1, glides))
    assert tuning.bend(1) == 2048
    assert np.isclose(tuning.shared_cents, 50)
