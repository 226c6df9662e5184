from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.accidents import KINDS, accidents, twins
from tokenization.score import Score, Track

PROMPT, BARS = 8, 24
BAR, BEAT = 48, 12
C_MAJOR = (0, 2, 4, 5, 7, 9, 11)


def bar(number, scale=C_MAJOR, start=60, *, is_even=False):
    """A melody over a bass, other notes for each number; the rhythm differs unless it is even."""
    steps = (number % 7, number // 7, (number + 2) % 7, (number + 4) % 7)
    places = (0, BEAT if is_even else 1 + number, 2 * BEAT + 1, 3 * BEAT)
    melody = [(x, BEAT, start + scale[step], 80) for x, step in zip(places, steps, strict=True)]
    return [(0, BAR, start - 24 + scale[number * 3 % 7], 70), *melody]


def piece(bars, drums=()):
    """A piano with these bars, and drums in the bars of these numbers."""
    notes = [(BAR * at + onset, *rest) for at, row in enumerate(bars) for onset, *rest in row]
    beats = [(BAR * at + BEAT * beat, 1, 99, 90) for at in drums for beat in range(4)]
    tracks = (Track.of(notes), Track.of(beats, is_drum=True))
    return Score(12, tracks, end_ticks=BAR * len(bars))


GOOD = [bar(number) for number in range(BARS)]
EVEN = [bar(number, is_even=True) for number in range(BARS)]


def good(first, *bars):
    """The good piece with other bars from `first` on, counted from 1."""
    return [*GOOD[: first - 1], *bars, *GOOD[first - 1 + len(bars) :]]


def often(bars, times):
    """The bars with each note struck several times."""
    return [[(x + 2 * n, 1, *pitch) for x, _, *pitch in row for n in range(times)] for row in bars]


def basses(first, stop):
    """The basses of bars `first` up to but not including `stop`, from 0."""
    return [notes[:1] for notes in GOOD[first:stop]]


CLUSTERS = [
    [(place, BEAT, *rest) for place, _, *rest in bar(number, scale=range(7))]
    for number in range(12, 16)
]
FEW = [notes[1:2] for notes in GOOD[20:]]
HELD = [(0, 2 * BAR, 36, 80), *GOOD[11]]
STRAY, BETWEEN = (24, 12, 95, 80), [(0, 12, 79, 80), (24, 12, 86, 80)]
BELOW = [[*GOOD[9], (9, 2, 22, 80)], [(0, 2, 21, 80), *GOOD[10]]]
COPY = "nearly every bar is a copy of an earlier one"
FAR = "a note far from all others of its track"

FOUND = {
    "copies": ("all_copy", f"{COPY} (bars 9 to 24)", [*GOOD[:11], *GOOD[:8], *GOOD[:5]]),
    "copies of a loop": ("all_copy", f"{COPY} (bars 9 to 24)", GOOD[:8] * 3),
    "copies of patterns": ("all_copy", f"{COPY} (bars 9 to 24)", EVEN[:8] * 3),
    "an empty bar": ("hole", "a bar without a note (bar 13)", good(13, [])),
    "a nearly empty bar": ("hole", "a nearly empty bar (bar 13)", good(13, GOOD[12][1:2])),
    "a silent end": ("hole", "bars without a note (bars 23 to 24)", good(23, [], [])),
    "more rests than before": (
        "hole",
        "bars without a note (bars 13 to 14)",
        [*GOOD[:2], [], *good(13, [], [])[3:]],
    ),
    "basses": ("hole", "nothing but low notes (bars 13 to 16)", good(13, *basses(12, 16))),
    "a stray note": ("range", f"{FAR} (bar 16)", good(16, [*GOOD[15], STRAY])),
    "stray notes below": ("range", f"{FAR} (bar 10)", good(10, *BELOW)),
    "clusters": ("key", "in no key (bars 13 to 16)", good(13, *CLUSTERS)),
    "few notes": (
        "thinning",
        "far fewer notes than in the prompt (bars 21 to 24)",
        good(21, *FEW),
    ),
    "many notes": (
        "thinning",
        "far more notes than in the prompt (bars 21 to 24)",
        good(21, *often(GOOD[20:], 4)),
    ),
}
ALLOWED = {
    "a good piece": GOOD,
    "even rhythms": EVEN,
    "a loop continues": GOOD[:2] * 12,
    "patterns return": [*EVEN[:11], *EVEN[:8], *EVEN[:5]],
    "half of it returns": [*GOOD[:16], *GOOD[:8]],
    "a section returns": [*GOOD[:11], *GOOD[8:11], *GOOD[8:10], *GOOD[:8]],
    "a held bass": good(12, HELD, []),
    "a held note": good(12, [(0, BAR, 60, 80)]),
    "two notes of five": good(12, GOOD[11][1:3]),
    "a note as in the prompt": [*GOOD[:2], GOOD[2][1:2], *good(12, GOOD[11][1:2])[3:]],
    "a last note": good(24, GOOD[23][1:2]),
    "a rest as in the prompt": [*GOOD[:2], [], *good(13, [])[3:]],
    "rests before the first note": [[], [], *GOOD[2:]],
    "three bars of basses": good(13, *basses(12, 15)),
    "a bass alone in the prompt": [*GOOD[:4], *basses(4, 5), *good(13, *basses(12, 16))[5:]],
    "a high note and those between": good(16, [*GOOD[15], *BETWEEN, STRAY]),
    "three bars of clusters": good(13, *CLUSTERS[:3]),
    "a sudden modulation": good(15, *(bar(number, start=61) for number in range(14, 24))),
    "a prompt in no key": [*CLUSTERS, *good(13, *CLUSTERS)[4:]],
    "few notes, as in a phrase before": [*good(13, *FEW)[:20], *FEW],
    "ever more notes": [*GOOD[:12], *often(GOOD[12:20], 3), *often(GOOD[20:], 4)],
}


@pytest.mark.parametrize(("kind", "line", "bars"), FOUND.values(), ids=FOUND)
def test_an_accident_is_found_where_it_is_and_no_other(kind, line, bars):
    found = accidents(piece(bars), PROMPT, BARS)
    assert found.line() == line
    assert found.kinds == [kind]
    assert found.any
    number = re.findall(r"\d+", line)[0]
    assert f" {int(number) + 100}" in found.line(bars_before=100)
    asked = accidents(piece(bars), PROMPT, BARS, range(12, BARS))  # bars that were asked to return
    assert asked.kinds == ([] if kind == "all_copy" else [kind])


@pytest.mark.parametrize("bars", ALLOWED.values(), ids=ALLOWED)
def test_what_real_music_does_is_no_accident(bars):
    assert accidents(piece(bars), PROMPT, BARS) == (*[False] * len(KINDS), ())


PIECES = st.sampled_from([bars for *_, bars in FOUND.values()])
DRUMMED = st.lists(st.booleans(), min_size=BARS, max_size=BARS)


@given(PIECES, DRUMMED, st.integers(-9, 9), st.integers(1, 40), st.integers(1, 8))
def test_accidents_do_not_depend_on_key_resolution_order_of_tracks_or_later_bars(
    bars, drummed, up, factor, more
):
    score = piece(bars, [at for at, plays in enumerate(drummed) if plays])
    expected = accidents(score, PROMPT, BARS)
    piano, drums = score.tracks
    moved = replace(piano, notes=np.add(piano.notes, [0, 0, up, 0]))
    longer = replace(moved, notes=[*moved.notes, (BAR * (BARS + more), 9, 90, 80)])
    other = Score(12, (drums, longer)).refined(factor)
    assert accidents(other, PROMPT, BARS) == expected


@given(PIECES, st.integers(0, PROMPT - 1), st.integers(1, 3))
def test_short_prompts_and_few_new_bars_have_holes_alone(bars, first, count):
    for where in ((first, BARS), (PROMPT, PROMPT + count), (BARS, BARS)):
        found = accidents(piece(bars), *where)
        assert found[:5] == (False, found.hole, False, False, False)
        assert found.hole == found.any
    assert accidents(piece(good(13, [])), first, BARS).line() == "a bar without a note (bar 13)"


def test_drums_and_short_parts_have_no_range():
    beats = [(BAR * at, 1, 36, 90) for at in range(BARS)] + [(BAR * 20, 1, 81, 90)]
    bells = [(BAR * at, 9, 60, 80) for at in range(7)] + [(BAR * 20, 9, 90, 80)]
    score = piece(GOOD)
    both = (Track.of(beats, is_drum=True), Track.of(bells, program=14))
    assert not accidents(score.with_tracks([*score.tracks, *both]), PROMPT, BARS).any
    bells.append((BAR * 7, 9, 60, 80))
    played = score.with_tracks([*score.tracks, Track.of(bells, program=14)])
    assert accidents(played, PROMPT, BARS).range


def test_drums_alone_have_no_key_and_no_melody():
    assert not accidents(piece([], range(BARS)), PROMPT, BARS).any
    found = accidents(Score(12), PROMPT, BARS)
    assert found.line() == "bars without a note (bars 9 to 24)"


def test_twins_have_over_60_percent_of_their_bars_in_common():
    other = [bar(number) for number in range(24, 48)]
    nine, ten = ([*GOOD[: PROMPT + same], *other[PROMPT + same :]] for same in (9, 10))
    scores = [*map(piece, (GOOD, other, ten, nine, GOOD))]
    assert twins(scores, PROMPT, BARS) == [(0, 2), (0, 4), (2, 3), (2, 4)]
    assert twins(scores[:1], PROMPT, BARS) == twins([], PROMPT, BARS) == []
    assert not twins([piece([])] * 2, PROMPT, BARS)
    # of bars that were not asked to return, nine of 14 are equal, or eight, or all of three
    assert twins(scores, PROMPT, BARS, range(BARS - 2, BARS))[1] == (0, 3)
    assert twins(scores[:4], PROMPT, BARS, range(PROMPT, PROMPT + 2)) == [(2, 3)]
    assert not twins(scores, PROMPT, BARS, range(PROMPT + 3, BARS))
