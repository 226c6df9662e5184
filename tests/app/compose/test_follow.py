"""A jam in time, driven by a scripted clock."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compose.follow import CLOCK, START, STOP, Follower, PlayedChord, chord_of, varied
from app.compose.jam import Bar
from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.chords import CHORD_INTERVALS, QUALITIES
from tokenization.plan import Chord
from tokenization.score import Score, Track

TICK = 0.01
SECONDS = 2.0
"""Of a bar at the tempo of 120."""
NOTES = st.lists(
    st.tuples(st.integers(0, 47), st.integers(0, 60), st.integers(58, 62), st.integers(1, 127)),
    max_size=6,
)


def bar(number: int, notes=((0, 12, 60, 100),)) -> Bar:
    tracks = (
        Track.of([(0, 6, 36, 90), (24, 6, 36, 90)], is_drum=True),
        Track.of([(0, 24, 40, 90)], program=33),
        Track.of(notes),
    )
    return Bar(Score(12, tracks, end_ticks=48), 120, (4, 4), (), number)


def drive(follower, seconds, write=bar, takes=lambda number: 0.1, played=(), stop=None):
    """Messages with their times, and requests, as time goes by; `takes` is the time of writing."""
    sent, requests, writing, inputs = [], [], None, list(played)
    for tick in range(round(seconds / TICK)):
        now = tick * TICK
        while inputs and inputs[0][0] <= now:
            follower.hear(*inputs.pop(0))
        if writing and now >= writing[0]:
            follower.deliver(now, writing[1])
            writing = None
        if request := follower.request(now):
            requests.append(request)
            writing = now + takes(request.number), write(request.number)
        sent += [(now, message) for message in follower.due(now)]
        if stop is not None and now >= stop:
            follower.finish()
        if follower.ended:
            break
    return sent, requests


def strike(at, *pitches, seconds=0.3):
    """Messages of keys that are struck and released one after the other."""
    on = [(at + 0.01 * n, (0x90, pitch, 80)) for n, pitch in enumerate(pitches)]
    off = [(time + seconds, (0x90, pitch, 0)) for time, (_, pitch, _) in on]
    return sorted(on + off)


def onsets(sent):
    return [(at, message) for at, message in sent if message[0] & 0xF0 == 0x90]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(NOTES, min_size=1, max_size=5),
    st.lists(st.floats(0, 5), min_size=1, max_size=5),
    st.one_of(st.none(), st.floats(0, 15)),
    st.booleans(),
)
def test_notes_end_in_order_and_no_bar_is_silent(notes, seconds, stop, silenced):
    follower = Follower(clock=True, trade=silenced, bars=0 if silenced else 6)
    sent, _ = drive(
        follower,
        14 if silenced else 60,
        lambda number: bar(number, notes[number % len(notes)]),
        lambda number: seconds[number % len(seconds)],
        stop=stop,
    )
    sent += [(sent[-1][0] if sent else 0, message) for message in follower.silence()]
    assert follower.ended
    sounding: set[tuple[int, int]] = set()
    for _, message in sent:
        if message[0] & 0xF0 in (0x80, 0x90):
            place = message[0] & 0x0F, message[1]
            assert (place in sounding) == (message[0] & 0xF0 == 0x80)
            sounding ^= {place}
    assert not sounding
    messages = [message for _, message in sent]
    if not onsets(sent):
        return
    begin, ticks = onsets(sent)[0][0], [at for at, message in sent if message == CLOCK]
    at_starts = [at for at, message in sent if message[:2] == (0x99, 36)]
    assert max((b - a for a, b in pairwise(at_starts)), default=0) <= SECONDS / 2 + 2 * TICK
    assert messages.count(START) == messages.count(STOP) == 1
    assert messages.index(START) < messages.index(CLOCK)
    assert not [message for message in messages[messages.index(STOP) :] if message == CLOCK]
    beat = begin + np.arange(len(ticks)) * SECONDS / 96
    np.testing.assert_allclose(ticks, beat, atol=1.01 * TICK)


def test_bars_that_are_late_are_replaced_and_counted():
    follower = Follower("C | Dm", bars=8, fill_every=4, keeps=True)
    late = {2: 3.0, 5: 1.0}
    _, requests = drive(follower, 60, takes=lambda number: late.get(number, 0.05))
    # bar 2 took a bar longer than its time, and bar 5 was asked twice of its time before
    assert (follower.begun, follower.late) == (8, 2)
    assert [request.number for request in requests] == [0, 1, 2, 4, 5, 6, 7]
    assert [(r.chords, r.fill) for r in requests[:4]] == [
        ("C", False), ("Dm", False), ("C", False), ("C", False)
    ]  # fmt: skip
    assert [request.is_last for request in requests] == [False] * 6 + [True]
    assert [kept.number for kept in follower.kept or ()] == [0, 1, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("quality", range(len(QUALITIES)))
def test_chords_are_recognised_with_their_bass_and_transposed(quality):
    for root in range(12):
        pitches = [48 + root + above for above in CHORD_INTERVALS[quality]]
        found = parse_chord(chord_of(pitches) or "N")
        assert found == Chord(root, quality, None)
    assert chord_of([55, 60, 64]) == "C/G"
    assert chord_of([48, 60, 67]) is None
    assert chord_of([60, 61, 62, 63, 64]) is None


def test_a_chord_counts_50_ms_after_its_last_key_and_stays_after_its_release():
    chord = PlayedChord()
    for at, message in strike(1.0, 57, 60, 64, 67, seconds=0.02):
        chord.hear(at, message)
    assert chord.symbol(1.07) is None
    assert chord.symbol(1.08 + 1e-9) == "Am7"
    for at, message in [*strike(2.0, 50), *strike(2.5, 50, 53, 57)]:
        chord.hear(at, message)
        if at < 2.5:
            assert chord.symbol(at) == "Am7"  # a single note is none
    assert chord.symbol(3) == chord.symbol(99) == "Dm"


def test_the_band_waits_for_the_first_chord_and_follows_from_the_next_bar_on():
    played = [*strike(1.0, 57, 60, 64), *strike(3.5, 53, 57, 60), *strike(6.9, 48, 52, 55)]
    sent, requests = drive(Follower(waits=True), 12, played=played)
    assert 1.05 < onsets(sent)[0][0] < 1.3
    # bar lines are at 1.3, 3.3, 5.3, 7.3 and 9.3: the last chord is in time for the fourth bar
    assert [request.chords for request in requests] == ["Am", "Am", "F", "C", "C", "C"]


def test_the_band_answers_with_the_chords_of_four_bars():
    roots = (48, 50, 52, 53)
    played = [
        event
        for number, root in enumerate(roots)
        for event in strike(0.3 + SECONDS * number, root, root + 4, root + 7)
    ]
    sent, requests = drive(Follower(trade=True), 17, played=played)
    assert [request.chords for request in requests[4:8]] == ["C", "D", "E", "F"]
    piano = [at for at, message in onsets(sent) if message[0] == 0x91]
    assert min(piano) > 4 * SECONDS


def test_a_bar_in_place_of_another_one_is_in_its_chords():
    again = varied(bar(0, [(0, 6, 60, 100), (0, 6, 61, 100), (24, 6, 60, 100)]), "C# Fm")
    assert again.score.tracks[0].notes[:, 2].tolist() == [36, 36]
    notes = again.score.tracks[2].notes
    assert set((notes[notes[:, 0] < 24, 2] - 1).tolist()) <= {59 + 1 - 1, 60}
    assert set((notes[:, 2] % 12).tolist()) <= {1, 5, 8, 0}
    assert (notes[:, 3] == 90).all()


def test_what_it_holds_does_not_grow():
    follower, sizes, now = Follower("C | F", clock=True), [], 0.0
    for _ in range(3):
        for _ in range(300):
            if request := follower.request(now):
                follower.deliver(now, bar(request.number))
            follower.due(now)
            now += 0.5
        sizes.append(len(pickle.dumps(follower)))
    assert max(sizes) < sizes[0] + 500


def test_a_band_beyond_the_channels_is_refused_and_a_chart_that_is_none():
    with pytest.raises(ValueError, match="3 chords, expected one or two"):
        Follower("C F G")
    follower, many = Follower(), bar(0)
    many = many._replace(score=many.score.with_tracks([many.score.tracks[1]] * 16))
    follower.request(0)
    with pytest.raises(ValueError, match="has 16 instruments, expected at most 15"):
        follower.deliver(0, many)
