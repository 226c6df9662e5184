from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import strategies
from tokenization.constraints.recall import (
    ANYWHERE,
    GAIN,
    IN_PHRASE,
    LONGEST_PHRASE,
    MANNER,
    Recall,
    _of_tracks,
    phrase_bars,
)
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.vocabulary import BAR, POSITION, PROGRAM_ORDER, TEMPO
from tokenization.score import Score, Tempo, TimeSignature, Track

REMI = MultitrackRemi()
FAMILIES = REMI.families
MOST = GAIN * MANNER * (ANYWHERE[0] + IN_PHRASE[0])


def loop(bars, remi=REMI, *, drums=True):
    """A repeated bar of bass and drums."""
    bass = [
        (1920 * bar + at, 240, pitch, 80)
        for bar in range(bars)
        for at, pitch in ((0, 40), (720, 43))
    ]
    beats = [
        (1920 * bar + 480 * beat, 60, 36 + beat, 90) for bar in range(bars) for beat in range(4)
    ]
    tracks = (*([Track.of(beats, is_drum=True)] if drums else []), Track.of(bass, 33))
    score = Score(480, tracks, (Tempo(0, 100.0),), (TimeSignature(0, 4, 4),))
    return remi.encode(score, ends=False).ids


def test_a_loop_is_recalled_token_by_token():
    ids = loop(9)
    bars = np.flatnonzero(ids == BAR)
    recall = Recall.after(FAMILIES, ids[: bars[8] + 1])
    for token in ids[bars[8] + 1 :].tolist():
        bias = recall.logits()
        assert bias is not None
        assert bias.argmax() == token
        assert bias[token] > GAIN / 2
        assert np.count_nonzero(bias) <= 2  # the first bar has a metre besides
        recall = recall.advance(token)


def test_a_track_beside_given_ones_is_recalled_alone_whatever_is_given():
    remi = MultitrackRemi()
    families = remi.families
    plan = families.return_
    ids = [token for token in loop(9, remi).tolist() if token < plan]
    bars = [at for at, token in enumerate(ids) if token == BAR]
    begin, last = ids[: bars[8]], ids[bars[8] : -1]
    bass = families.program + PROGRAM_ORDER.index(33)
    rank = int(families.values[bass])
    written = _of_tracks(last, families, {rank})
    given = _of_tracks(last, families, {0})
    assert sum(token == bass for token in written) == 2
    assert bass not in given
    for before_write in ([BAR, *given[1:]], [BAR]):
        recall = Recall.after(families, begin, ranks={rank})
        for token in [*before_write, families.write]:
            recall = recall.advance(token)
        for token in [*written[1:], BAR]:
            bias = recall.logits()
            assert bias is not None
            assert bias.argmax() == token
            assert bias[token] > GAIN / 2
            recall = recall.advance(token)


def form(num_bars, phrase, seed=0):
    """Bars that begin alike and continue differently, repeated after each phrase."""
    pitches = 30 + np.random.default_rng(seed).permutation(phrase)
    bass = [(1920 * bar + 480, 480, int(pitches[bar % phrase]), 80) for bar in range(num_bars)]
    drums = [(1920 * bar, 60, 36, 90) for bar in range(num_bars)]
    tracks = (Track.of(drums, is_drum=True), Track.of(bass, 33))
    score = Score(480, tracks, (Tempo(0, 100.0),), (TimeSignature(0, 4, 4),))
    return REMI.encode(score, ends=False).ids


@pytest.mark.parametrize(("num_bars", "phrase"), [(4, 4), (11, 8), (18, 6), (32, 16)])
def test_bars_that_begin_alike_are_recalled_in_the_order_of_the_phrase(num_bars, phrase):
    ids = form(num_bars + 16, phrase)
    bars = np.flatnonzero(ids == BAR)
    recall = Recall.after(FAMILIES, ids[: bars[num_bars] + 1])
    for token in ids[bars[num_bars] + 1 :].tolist():
        bias = recall.logits()
        assert bias is not None
        assert bias.argmax() == token
        recall = recall.advance(token)


def test_the_opening_of_the_first_new_bar_is_not_part_of_the_prompt():
    for num_bars in (1, 3, 7, 8, 12, 15, 40):
        ids = form(num_bars + 1, 12)
        bars = np.flatnonzero(ids == BAR)
        read = ids[: bars[num_bars] + 1]
        opening = [*read, POSITION, TEMPO + 3]
        plain, opened = Recall.after(FAMILIES, read), Recall.after(FAMILIES, opening)
        assert opened.phrase == plain.phrase
        assert opened.followed == plain.followed
        assert plain.advance(POSITION).advance(TEMPO + 3) == opened


def test_second_parts_of_two_instruments_are_distinct():
    players = [[(480 * at, 240, pitch, 80) for at in range(64)] for pitch in (40, 45, 70, 75)]
    tracks = tuple(map(Track.of, players, (33, 33, 48, 48)))
    ids = REMI.encode(Score(480, tracks, (Tempo(0, 100.0),), (TimeSignature(0, 4, 4),))).ids
    recall = Recall.after(FAMILIES, ids[: np.flatnonzero(ids == BAR)[8] + 1])
    ids_of = REMI.vocabulary.ids
    for name in ("Position_0", "Program_33", "Part_1"):  # the second part never played alone before
        recall = recall.advance(ids_of[name])
    bias = recall.logits()
    assert bias is not None
    assert np.flatnonzero(bias).tolist() == [ids_of["Pitch_45"]]


def test_only_the_last_bars_of_a_long_prompt_are_used():
    ids = form(200, 16)
    bars = np.flatnonzero(ids == BAR)
    read = Recall.after(FAMILIES, ids[: bars[100] + 1])
    assert len(read.followed) == len(Recall.after(FAMILIES, ids[: bars[199] + 1]).followed)
    assert read.phrase == LONGEST_PHRASE


def test_a_phrase_is_never_longer_than_the_music():
    different = [{(bar,)} for bar in range(100)]
    phrases = [phrase_bars(different[:bars]) for bars in range(100)]
    assert phrases[:9] == [1, 1, 2, 2, 4, 4, 4, 4, 8]
    assert all(phrase <= max(bars, 1) for bars, phrase in enumerate(phrases))
    assert max(phrases) == LONGEST_PHRASE
    assert (
        phrase_bars([set()] * 8) == 4
    )  # music that repeats after four bars is a phrase of four bars


def test_frequent_tokens_have_a_larger_bias_and_strength_is_a_factor():
    least = []
    for bars in (1, 2, 4, 8):
        ids = loop(bars + 1)
        read = ids[: np.flatnonzero(ids == BAR)[bars] + 1]
        at = ids[: len(read) + 2]  # after a Position and a Program
        whole, half = Recall.after(FAMILIES, at), Recall.after(FAMILIES, at, 0.5)
        full, halved = whole.logits(), half.logits()
        assert full is not None
        assert halved is not None
        np.testing.assert_allclose(halved, full / 2)
        least.append(full.max())
    assert least == sorted(least)
    assert 0 < least[0] < least[-1] < MOST


@settings(max_examples=50, deadline=None)
@given(score=strategies.scores(programs=(0, 33, 48)), at=st.integers(1, 200))
def test_the_place_is_that_of_all_tokens_at_once_and_the_bias_finite(score, at):
    ids = REMI.encode(score).ids
    at = min(at, len(ids) - 1)
    recall = Recall.after(FAMILIES, ids[:at])
    for token in ids[at:].tolist():
        bias = recall.logits()
        if bias is not None:
            assert (bias >= 0).all()
            assert bias.sum() <= MOST
            bias[:] = np.nan  # callers may change it
        recall = recall.advance(token)
    assert recall.place == Recall.after(FAMILIES, ids).place


def test_without_an_earlier_place_there_is_no_bias():
    ids = loop(2)
    recall = Recall.after(FAMILIES, ids[:-1])
    for token in (BAR, 21 + 5):  # a position without notes so far
        recall = recall.advance(token)
    assert recall.logits() is None
