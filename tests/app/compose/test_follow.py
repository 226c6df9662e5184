"""A jam in time, driven by a scripted clock."""

from __future__ import annotations

import pickle
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compose import jam as jams
from app.compose.follow import CLOCK, START, STOP, Follower, PlayedChord, chord_of, moved, varied
from app.compose.jam import Bar
from relpe.models.pointer.config import PointerConfig
from tests.support.bands import model_of
from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.chords import CHORD_INTERVALS, QUALITIES
from tokenization.plan import Chord
from tokenization.remi.multitrack import MultitrackRemi
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


def drive(follower, seconds, write=None, takes=lambda number: 0.1, played=(), stop=None):
    """Messages with their times, and requests, as time goes by; `takes` is the time of writing."""
    sent, requests, writing, inputs = [], [], None, list(played)
    write = write or (lambda request: bar(request.number))
    for tick in range(round(seconds / TICK)):
        now = tick * TICK
        while inputs and inputs[0][0] <= now:
            follower.hear(*inputs.pop(0))
        if writing and now >= writing[0]:
            follower.deliver(now, writing[1])
            writing = None
        if request := follower.request(now):
            requests.append(request)
            writing = now + takes(request.number), write(request)
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


@settings(deadline=None, max_examples=25)
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
        lambda request: bar(request.number, notes[request.number % len(notes)]),
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
    seconds = {2: 1.0, 3: 3.0}
    _, requests = drive(follower, 60, takes=lambda number: seconds.get(number, 0.05))
    assert (follower.begun, follower.late) == (8, 2)
    assert [request.number for request in requests] == list(range(8))
    assert [request.chords for request in requests] == ["C", "Dm"] * 4
    assert [request.fill for request in requests] == [False, False, False, True] * 2
    assert [request.is_last for request in requests] == [False] * 7 + [True]
    assert [kept.number for kept in follower.kept or ()] == [0, 1, 1, 2, 4, 5, 6, 7]


def test_all_chords_are_recognised_with_their_bass():
    for root, quality in product(range(12), range(len(QUALITIES))):
        pitches = [48 + root + above for above in CHORD_INTERVALS[quality]]
        assert parse_chord(chord_of(pitches) or "N") == Chord(root, quality)
    assert chord_of([55, 60, 64]) == "C/G"
    assert chord_of([48, 60, 67]) is None


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
    for at, message in [*strike(100, 48, 52, 55, seconds=9), *strike(101, 69)]:
        chord.hear(at, message)  # a melody over a chord that is held
    assert chord.symbol(102) == "C"


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


@given(NOTES, st.integers(0, 40))
def test_from_a_step_on_a_bar_is_moved_to_a_chord_and_before_it_is_not(notes, step):
    before, after = bar(0, notes), moved(bar(0, notes), "C# Fm", step)
    for one, other in zip(before.score.tracks, after.score.tracks, strict=True):
        if one.is_drum:
            assert other == one
            continue
        early = other.notes[:, 0] < step
        assert {*map(tuple, other.notes[early][:, [0, 2, 3]])} <= {
            *map(tuple, one.notes[:, [0, 2, 3]])
        }
        assert (other.notes[early][:, :2].sum(axis=1) <= max(step, 1)).all()
        in_first = other.notes[:, 0] < 24
        for half, tones in ((in_first, {1, 5, 8}), (~in_first, {5, 8, 0})):
            assert {*(other.notes[half & ~early][:, 2] % 12).tolist()} <= tones


def test_a_bar_in_place_of_another_one_is_in_its_chords():
    again = varied(bar(0, [(0, 6, 60, 100), (0, 6, 61, 100), (24, 6, 60, 100)]), "C# Fm")
    assert again.score.tracks[0].notes[:, 2].tolist() == [36, 36]
    notes = again.score.tracks[2].notes
    assert notes.tolist() == [[0, 6, 61, 90], [24, 6, 60, 90]]


def test_the_same_seed_and_chords_give_the_same_messages(monkeypatch):
    monkeypatch.setattr(jams, "MOST_TOKENS", 24)
    model = model_of(MultitrackRemi(), pointer=PointerConfig(reach=256, unit=4))

    def sent(seed, takes):
        jam, follower = jams.Jam(model, band=["Drums"], seed=seed), Follower("C | F", bars=4)
        messages, _ = drive(follower, 60, lambda request: request.write(jam), lambda _: takes)
        return [message for _, message in messages]

    assert sent(3, 0.1) == sent(3, 0.2) != sent(4, 0.1)


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
