from __future__ import annotations

import numpy as np
import pytest

from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Score, Tempo, TimeSignature, Track
from training.evaluation.metrics.loops import TIMES, loop_nats, loops

REMI = MultitrackRemi()


def piece(bars=8, metre=(3, 4), silent=()):
    """A piece whose bars have different pitches; the last note of each bar ends in the next."""
    beats, bar = metre[0], 480 * metre[0]
    notes = [
        (number * bar + 480 * beat, 960 if beat == beats - 1 else 240, 40 + 3 * number + beat, 80)
        for number in range(bars)
        if number not in silent
        for beat in range(beats)
    ]
    drums = [(number * bar + 240, 120, 38, 90) for number in range(bars) if number not in silent]
    tracks = (Track.of(notes, 33), Track.of(drums, 0, is_drum=True))
    return REMI.encode(Score(480, tracks, (Tempo(0, 90.0),), (TimeSignature(0, *metre),))).ids


def test_a_loop_repeats_the_fifth_bar_of_a_piece():
    (loop,) = loops([piece()], REMI)
    bars = [loop.ids[a:b].tolist() for a, b in zip(loop.bars, loop.bars[1:], strict=False)]
    assert len(bars) == TIMES[-1] == 16
    assert bars[1:-1] == [bars[1]] * 14
    score = REMI.decode(loop.ids)
    np.testing.assert_array_equal(REMI.encode(score).ids, loop.ids)
    assert score.time_signatures == (TimeSignature(0, 3, 4),)
    drums, bass = score.tracks
    steps = score.ticks_per_beat
    assert bass.notes[:, 0].tolist() == [beat * steps for beat in range(48)]
    assert bass.notes[:, 2].tolist() == [52, 53, 54] * 16
    assert drums.notes[:, 0].tolist() == [3 * bar * steps + steps // 2 for bar in range(16)]


def test_pieces_without_notes_in_that_bar_give_no_loop():
    assert loops([piece(bars=4), piece(silent=(4,))], REMI) == []
    assert loop_nats([], []) == {}
    assert len(loops([piece()] * 30, REMI)) == 24


def test_nats_of_each_repetition_exclude_its_bar_line():
    made = loops([piece(), piece(metre=(4, 4))], REMI)
    nats = []
    for loop in made:
        values = np.full(len(loop.ids) - 1, 99.0)  # bar lines, and EOS
        for time, (a, b) in enumerate(zip(loop.bars, loop.bars[1:], strict=False), 1):
            values[a : b - 1] = 1 / time  # entry i belongs to token i + 1
        nats.append(values)
    found = loop_nats(nats, made)
    assert found == pytest.approx({time: 1 / time for time in TIMES})
