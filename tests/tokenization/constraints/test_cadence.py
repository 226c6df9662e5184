from __future__ import annotations

import numpy as np

from tests.support.guided import rule_of, sample
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, BOS, POSITION, TEMPO, TIME_SIGNATURE


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
