from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenization.midi import read_midi, write_midi
from tokenization.midi_cut import cut_midi
from tokenization.score import Score, Track

notes = st.tuples(
    st.integers(0, 900), st.integers(1, 400), st.integers(40, 52), st.integers(1, 127)
)


@given(
    rows=st.lists(notes, min_size=1, max_size=20, unique_by=lambda n: (n[0] // 450, n[2])),
    end=st.integers(1, 80),
)
def test_what_stands_before_the_end_is_kept(rows: list[tuple[int, ...]], end: int) -> None:
    rows = [(onset, min(length, 449 - onset % 450), pitch, v) for onset, length, pitch, v in rows]
    data = write_midi(
        Score(120, (Track.of([(0, 1, 30, 9), *((o, max(d, 1), p, v) for o, d, p, v in rows)]),))
    )
    score = read_midi(cut_midi(data, end, 12))
    whole = read_midi(data).tracks[0].notes
    wanted = whole[whole[:, 0] < end * 10].copy()
    wanted[:, 1] = np.minimum(wanted[:, 1], end * 10 - wanted[:, 0])
    assert np.array_equal(score.tracks[0].notes, Track(wanted).notes)


def test_bytes_before_the_end_stay_as_they_were() -> None:
    data = write_midi(Score(480, (Track.of([(i * 480, 400, 60 + i, 80) for i in range(8)]),)))
    cut = cut_midi(data, 4, 1)
    track, original = cut[cut.rindex(b"MTrk") + 8 :], data[data.rindex(b"MTrk") + 8 :]
    kept = len(track) - 5  # without the new end of track
    assert original.startswith(track[:kept])
    assert kept > 20
