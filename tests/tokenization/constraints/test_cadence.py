from __future__ import annotations

import numpy as np

from tests.support.guided import rule_of, sample
from tokenization.constraints.cadence import LOW, Cadence
from tokenization.constraints.density import Density
from tokenization.plan import Chord
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
)


def test_a_cadence_has_longer_last_notes_and_none_late():
    lengths, late = {}, {}
    for ending, biases in (("bar", []), ("cadence", [Cadence()])):
        for seed in range(12):
            rule = rule_of(Density(8), *biases, bars=2, four_four=True)
            score = PianoRemi().decode(
                [BOS, BAR, TIME_SIGNATURE + 7, POSITION, TEMPO + 90, *sample(rule, seed)[0]]
            )
            notes = score.tracks[0].notes
            last = notes[notes[:, 0] >= 48] - [48, 0, 0, 0]
            lengths.setdefault(ending, []).extend(np.minimum(last[:, 0] + last[:, 1], 48) / 48)
            late.setdefault(ending, []).append(int(np.count_nonzero(last[:, 0] >= 36)))
    assert np.mean(lengths["cadence"]) > np.mean(lengths["bar"]) + 0.03
    assert np.sum(late["cadence"]) == 0 < np.sum(late["bar"])


def test_the_last_bar_has_the_chord_that_is_given_and_begins_with_its_root():
    inside, first, low = [], [], []
    for seed in range(12):
        rule = rule_of(Density(8), Cadence(Chord(2, 1)), bars=2, four_four=True)
        score = PianoRemi().decode(
            [BOS, BAR, TIME_SIGNATURE + 7, POSITION, TEMPO + 90, *sample(rule, seed)[0]]
        )
        notes = score.tracks[0].notes
        last = notes[notes[:, 0] >= 48]
        inside.extend(np.isin(last[:, 2] % 12, (2, 5, 9)))
        first.extend(last[:1, 2] % 12 == 2)
        low.extend(last[last[:, 2] < LOW, 2] % 12 == 2)
        assert np.isin(notes[notes[:, 0] < 48, 2] % 12, (2, 5, 9)).mean() < 0.6
    assert np.mean(inside) > 0.8
    assert np.mean(first) > 0.8
    assert np.mean(low) > 0.6  # few notes are that low


def test_a_bass_other_than_the_root_is_the_lowest_note():
    rule = rule_of(Cadence(Chord(0, 0, 7)), bars=1, four_four=True).advance(POSITION)
    families, bias = PIANO_FAMILIES, rule.bias
    assert bias is not None
    of_pitch = slice(families.pitch, families.drum)
    pitches = np.arange(128)
    assert set(pitches[bias[of_pitch] == 0] % 12) == {7}
