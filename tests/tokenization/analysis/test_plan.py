from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.strategies import MULTITRACK, scores
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.analysis.plan import analyse, analyse_document
from tokenization.document import Selection
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.score import Score, TimeSignature, Track

MANY = scores(programs=(0, 32, 48))


def until(score: Score, line: int) -> Score:
    """The music before a tick, which is all that a shorter file has."""
    tracks = [track.until(line).with_tables() for track in score.tracks]
    return replace(score, tracks=tuple(tracks), end_ticks=line)


def moved(score: Score, semitones: int) -> Score:
    return score.with_tracks(
        track if track.is_drum else replace(track, notes=np.add(track.notes, [0, 0, semitones, 0]))
        for track in score.tracks
    )


def moved_plan(plan: Plan, semitones: int) -> Plan:
    def chord(planned: PlannedChord) -> PlannedChord:
        if planned.chord is None:
            return planned
        root, quality, bass = planned.chord
        moved_bass = None if bass is None else (bass + semitones) % 12
        return planned._replace(chord=Chord((root + semitones) % 12, quality, moved_bass))

    bars = tuple(BarPlan(bar.source, tuple(map(chord, bar.chords))) for bar in plan.bars)
    key = plan.key and Key((plan.key.tonic + semitones) % 12, plan.key.minor)
    return Plan(bars, key)


def pattern(*bars: tuple[int, ...], metre: int = 4, step: int = 12) -> Score:
    """One track; each bar has notes of these pitches, one every `step` steps, 0 for a rest."""
    size = 12 * metre
    rows = [
        (size * bar + step * place, step, pitch, 64)
        for bar, pitches in enumerate(bars)
        for place, pitch in enumerate(pitches)
        if pitch
    ]
    signatures = (TimeSignature(0, metre, 4),)
    return Score(12, (Track.of(rows),), (), signatures, end_ticks=size * len(bars))


def sources(score: Score) -> list[int]:
    return [bar.source for bar in analyse(score).bars]


def symbols(score: Score) -> list[list[str]]:
    plan = analyse(score)
    return [[chord_symbol(chord) for _, chord in bar.chords] for bar in plan.bars]


# ---- properties


@given(score=MANY, share=st.floats(0, 1))
def test_the_plan_of_the_first_bars_is_the_beginning_of_the_plan(score, share):
    bars = ScoreBars.of(score)
    kept = int(share * bars.num_bars)
    assume(kept)
    whole, part = analyse(bars.score), analyse(until(bars.score, int(bars.lines[kept])))
    assert part.bars[:kept] == whole.bars[:kept]


@given(score=MANY, semitones=st.integers(-6, 6))
def test_transposed_music_has_transposed_chords_and_the_same_returns(score, semitones):
    pitched = [track for track in score.tracks if not track.is_drum]
    tracks = [replace(t, notes=np.clip(t.notes, 0, [2**40, 2**40, 121, 127])) for t in pitched]
    tracks = [replace(t, notes=np.maximum(t.notes, [0, 0, 6, 0])) for t in tracks]
    drums = [track for track in score.tracks if track.is_drum]
    score = replace(score, tracks=(*tracks, *drums))
    assert analyse(moved(score, semitones)) == moved_plan(analyse(score), semitones)


@given(score=MANY, order=st.randoms(use_true_random=False))
def test_neither_order_of_tracks_nor_velocities_nor_tempos_matter(score, order):
    tracks = [replace(t, notes=np.minimum(t.notes, [2**40, 2**40, 127, 9])) for t in score.tracks]
    order.shuffle(tracks)
    assert analyse(replace(score, tracks=tuple(tracks), tempos=())) == analyse(score)


@given(score=MANY)
def test_any_score_has_a_plan_of_its_bars(score):
    plan = analyse(score)
    assert len(plan.bars) == ScoreBars.of(score).num_bars
    has_pitches = any(not track.is_drum for track in score.tracks)
    for place, bar in enumerate(plan.bars):
        assert 0 <= bar.source <= min(64, place)
        assert 0 < len(bar.chords) <= 2 if has_pitches else not bar.chords
        assert [chord.beat for chord in bar.chords[:1]] == [0] * has_pitches
        for _, chord in bar.chords:
            assert chord is None or chord.bass != chord.root


@settings(max_examples=60)
@given(score=MANY)
def test_returns_are_those_of_a_slow_implementation(score):
    bars = ScoreBars.of(score)
    content: list[dict[int, set[tuple[int, int]]]] = [{} for _ in range(bars.num_bars)]
    rows = zip(bars.bars, bars.tracks, bars.places, bars.pitches, strict=True)
    for bar, track, place, pitch in rows:
        content[bar].setdefault(track, set()).add((place, pitch))

    def similarity(a: int, b: int) -> float:
        tracks = content[a].keys() | content[b].keys()
        if not content[a] or not content[b] or bars.sizes[a] != bars.sizes[b]:
            return 0
        pairs = [(content[a].get(t, set()), content[b].get(t, set())) for t in tracks]
        return sum(len(x & y) / len(x | y) for x, y in pairs) / len(tracks)

    found: list[int] = []
    for bar in range(bars.num_bars):
        by_distance = {d: similarity(bar, bar - d) for d in range(1, min(bar, 64) + 1)}
        best = max(by_distance, key=by_distance.__getitem__, default=0)
        before = found[-1] if found else 0
        if not best or by_distance[best] < 0.5 - 1e-8:
            found.append(0)
        elif by_distance.get(before, 0) >= max(0.5, by_distance[best] - 0.1) - 1e-8:
            found.append(before)
        else:
            # the nearest of equal ones, despite rounding errors
            best = min(d for d, s in by_distance.items() if s > by_distance[best] - 1e-8)
            found.append(best)
    assert sources(score) == found


# ---- where bars return


A, B, C = (60, 62, 64, 65), (67, 69, 71, 72), (48, 50, 52, 53)


def test_a_section_that_comes_back_is_read_as_a_section():
    assert sources(pattern(A, B, C, A, B, C)) == [0, 0, 0, 3, 3, 3]
    # the nearest of equal bars, unless the bar before tells the distance
    assert sources(pattern(A, B, A, A, A, B)) == [0, 0, 2, 1, 1, 4]


def test_the_distance_of_the_bar_before_wins_near_ties():
    # similar bar at the distance of the bar before, within a tenth of the best
    almost = (*range(40, 60), 90)
    exact = tuple(range(40, 61))
    other = tuple(range(70, 91))
    near = pattern(other, almost, exact, other, exact, metre=7, step=4)
    assert sources(near) == [0, 0, 1, 3, 3]


def test_drums_have_one_vote():
    beat = [Track.of([(0, 6, 36, 64), (48, 6, 36, 64)], is_drum=True) for _ in range(3)]
    tunes = [Track.of([(0, 6, p, 64), (48, 6, p + 1, 64)]) for p in (60, 70)]
    assert sources(Score(12, (*beat, *tunes[:1]))) == [0, 1]
    assert sources(Score(12, (*beat, *tunes))) == [0, 0]


def test_a_return_is_at_most_64_bars_away():
    bars = [tuple(20 + (bar * 7 + beat * bar) % 100 for beat in range(4)) for bar in range(64)]
    assert sources(pattern(*bars, bars[0]))[-1] == 64
    new = (127, 126, 125, 124)
    assert sources(pattern(*bars, new, bars[0]))[-1] == 0


# ---- chords


def block(*chords: tuple[int, int, tuple[int, ...]], **arguments: object) -> Score:
    """Chords of (onset, length, pitches) in steps."""
    rows = [(onset, length, pitch, 64) for onset, length, pitches in chords for pitch in pitches]
    return Score(STEPS_PER_BEAT, (Track.of(rows),), **arguments)  # type: ignore[arg-type]


def test_a_second_chord_where_it_changes():
    c, f, g_b = (48, 64, 67), (53, 60, 69), (47, 62, 67, 74)
    score = block((0, 48, c), (48, 24, c), (72, 24, f), (96, 48, g_b))
    assert symbols(score) == [["C"], ["C", "F"], ["G/B"]]
    assert [chord.beat for chord in analyse(score).bars[1].chords] == [0, 2]


def test_the_second_half_of_a_bar_begins_after_the_odd_beat():
    metres = {(3, 4): (24, 2), (6, 8): (18, 3), (5, 4): (36, 3), (2, 2): (24, 1), (12, 8): (36, 6)}
    for metre, (step, beat) in metres.items():
        end = 48 * metre[0] // metre[1]
        score = block(
            (0, step, (48, 64, 67)),
            (step, end - step, (53, 60, 69)),
            time_signatures=(TimeSignature(0, *metre),),
        )
        assert symbols(score) == [["C", "F"]]
        assert analyse(score).bars[0].chords[1].beat == beat


def test_a_bass_that_alternates_is_no_inversion():
    rows = [(0, 24, (48,)), (24, 24, (43,)), (12, 12, (64, 67, 72)), (36, 12, (64, 67, 72))]
    assert symbols(block(*rows)) == [["C"]]


def test_silence_has_no_chord_and_drums_alone_have_none():
    score = block((0, 48, (48, 64, 67)), (96, 48, (48, 64, 67)))
    assert symbols(score) == [["C"], ["N.C."], ["C"]]
    drums = Score(12, (Track.of([(0, 12, 36, 64)], is_drum=True),))
    assert analyse(drums) == Plan((BarPlan(),))
    assert analyse(Score(480)) == Plan((BarPlan(),))
    # the pitched track enters later
    both = Score(12, (*drums.tracks, Track.of([(48, 48, p, 64) for p in (48, 64, 67)])))
    assert symbols(both) == [["N.C."], ["C"]]


# ---- documents

A, B, C, D = (60, 64, 67, 72), (62, 65, 69, 74), (59, 62, 67, 71), (57, 60, 64, 69)


def test_bars_after_a_gap_are_analysed_by_themselves_and_first():
    score = pattern(A, B, C, D, C, A, A)
    assert [bar.source for bar in analyse(score).bars] == [0, 0, 0, 0, 2, 5, 1]
    plan = analyse_document(score, Selection(2, 4))
    # bar 2 returns as bar 4, which stands before it in the document
    assert [bar.source for bar in plan.bars] == [0, 0, -2, 0, 0, 0, 1]
    assert analyse_document(score, Selection(2, 7)) == analyse(score)
    assert analyse_document(score, Selection(2, None, (0,))) == analyse(score)
    # an earlier bar has precedence
    plan = analyse_document(pattern(A, B, A, D, A), Selection(2, 3))
    assert [bar.source for bar in plan.bars] == [0, 0, 2, 0, 0]


@given(score=MANY, places=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_gap_does_not_change_the_plan_around_it(score, places):
    bars = ScoreBars.of(MULTITRACK.decode(MULTITRACK.encode(score).ids))
    first, stop = sorted(int(place * bars.num_bars) for place in places)
    assume(first < stop < bars.num_bars)
    start, end = bars.lines[[first, stop]]
    whole = bars.score
    emptied = [
        replace(t, notes=t.notes[(t.notes[:, 0] < start) | (t.notes[:, 0] >= end)])
        for t in whole.tracks
    ]
    empty = replace(whole, tracks=tuple(emptied))
    with_gap, without = (
        analyse_document(one, Selection(first, stop)).bars for one in (whole, empty)
    )
    assert with_gap[:first] == without[:first]
    assert with_gap[stop:] == without[stop:]
    for at, bar in enumerate(with_gap):
        if bar.source < 0:
            assert first <= at < stop <= at - bar.source < len(with_gap)
