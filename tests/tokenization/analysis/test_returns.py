from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.returns import contents, distance_to_equal, similarity_to_earlier
from tokenization.score import Score, Track

BARS = st.lists(
    st.frozensets(
        st.tuples(st.sampled_from([0, 47]), st.sampled_from([0, 127]), st.integers(0, 2)),
        max_size=2,
    ),
    max_size=16,
)


@given(BARS)
def test_equal_bars_are_those_of_similarity_one(bars):
    notes = [
        (48 * at + place, 6, pitch, 80, part)
        for at, row in enumerate(bars)
        for place, pitch, part in row
    ]
    tracks = [
        Track.of([row[:4] for row in notes if row[4] == part], is_drum=part == 2)
        for part in range(3)
    ]
    score = ScoreBars.of(Score(12, tuple(tracks), end_ticks=48 * len(bars)))
    count = score.num_bars
    sounds = score.places * 128 + score.pitches
    table = similarity_to_earlier(score.bars, score.tracks, sounds, 0, count, count) == 1
    found = contents(score, count + 2)
    assert found[count:] == [b"", b""]
    nearest = np.where(table.any(1), table.argmax(1) + 1, 0)
    assert distance_to_equal(found).tolist() == [*nearest, 0, 0]
