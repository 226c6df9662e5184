"""Frames of the player: notes, names, colours, bar lines and times."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.player import frames as player
from app.player.assets import MODULES, STYLE
from app.player.frames import (
    MOST_BARS,
    UNITS_PER_BEAT,
    pack_notes,
    pack_tracks,
    timeline,
    track_ids,
)
from tokenization.grid import notated_lines
from tokenization.score import Score, Tempo, TimeSignature, Track

FACTOR = UNITS_PER_BEAT // 12
NOTES = MODULES.sources["roll/notes.js"].decode()


def parse(text):
    return [tuple(map(int, row.split(","))) for row in text.split(";") if row]


def looks(frames):
    return [(frame["name"], frame["hue"]) for frame in frames]


def track(program=0, *, onset=0, **others):
    return replace(Track.of([(onset, 6, 60, 80)], program), **others)


def drums(**others):
    return track(is_drum=True, channel=9, **others)


metres = st.dictionaries(
    st.integers(0, 400), st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 4, 8, 16])), max_size=5
).map(lambda changes: tuple(TimeSignature(tick, *metre) for tick, metre in changes.items()))


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 5000), st.integers(1, 800), st.integers(0, 127), st.integers(1, 127)
        ),
        max_size=30,
    ),
    count=st.integers(0, 30),
)
def test_packed_notes_parse_back_and_grow_only_at_the_end(rows, count):
    rows = sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))
    whole, part = pack_notes(Track.of(rows), 12), pack_notes(Track.of(rows[:count]), 12)
    assert whole.startswith(part)
    assert parse(whole) == [(on * FACTOR, n * FACTOR, *rest) for on, n, *rest in rows]


@given(changes=metres, end=st.integers(1, 600), most=st.integers(1, 30))
def test_bar_lines_are_those_that_the_app_counts_up_to_a_limit(changes, end, most):
    score = Score(12, time_signatures=changes, end_ticks=end)
    whole = [unit for (unit,) in parse(timeline(score)["bars"])]
    assert whole == [line * FACTOR for line in notated_lines(score, end).tolist()]
    with mock.patch.object(player, "MOST_BARS", most):
        part = timeline(score)
    bars = [unit for (unit,) in parse(part["bars"])]
    assert bars == whole[: len(bars)]
    assert len(bars) == min(most + 1, len(whole))
    assert part["end"] >= end / 12


@given(bpms=st.lists(st.integers(20, 300), min_size=1, max_size=5))
def test_the_timeline_maps_beats_to_seconds(bpms):
    score = Score(12, tempos=tuple(Tempo(96 * i, float(bpm)) for i, bpm in enumerate(bpms)))
    score = Score(12, tempos=score.tempos, end_ticks=96 * len(bpms))
    frame = timeline(score)
    points = parse(frame["tempos"])
    for unit, millis in points:
        seconds = float(score.seconds_at(unit * 12 // UNITS_PER_BEAT))
        assert millis / 1000 == pytest.approx(seconds, abs=0.001)
    assert points[-1][0] == 8 * len(bpms) * UNITS_PER_BEAT


@given(onsets=st.lists(st.integers(0, 90), min_size=1, max_size=6), count=st.integers(1, 6))
def test_music_that_grows_keeps_its_colours(onsets, count):
    whole = [track(program, onset=onset) for program, onset in enumerate(onsets)]
    now = sorted(onsets)[min(count, len(onsets)) - 1]
    part = [t if t.notes[0, 0] <= now else t.without_events() for t in whole]
    some, all_ = pack_tracks(Score(12, tuple(part))), pack_tracks(Score(12, tuple(whole)))
    assert some == all_[: len(some)]
    assert [frame["hue"] for frame in all_] == list(range(len(whole)))


def test_a_hostile_length_has_a_limited_number_of_bars():
    for metre in ((1, 32), (1, 128)):
        score = Score(480, time_signatures=(TimeSignature(0, *metre),), end_ticks=10**11)
        assert len(parse(timeline(score)["bars"])) == MOST_BARS + 1


def test_bar_lines_can_be_given():
    score = Score(480, time_signatures=(TimeSignature(0, 3, 4),), end_ticks=4000)
    frame = timeline(score, lines=np.array([100, 2020, 3900, 5850, 7800]))
    assert [unit for (unit,) in parse(frame["bars"])] == [20, 404, 780, 1170]
    assert frame["end"] == 5850 / 480
    assert not frame["beats"]
    assert timeline(score)["beats"]
    assert timeline(score, 9600, np.array([0, 1920]))["end"] == 20
    assert timeline(score, lines=np.array([], np.int64))["bars"] == ""


def test_tracks_have_the_name_in_the_file_or_that_of_their_instrument():
    strings = track(48, name="  Strings ")
    tracks = (drums(), track(33), Track.of([]), track(), strings, track(48), strings)
    frames = pack_tracks(Score(12, tracks))
    names = ["Drums", "Electric Bass (finger)", "Piano", "Strings 1", "String Ensemble 1"]
    assert looks(frames) == [(name, hue) for hue, name in enumerate([*names, "Strings 2"])]
    assert [frame["drums"] for frame in frames] == [True] + [False] * 5
    assert [frame.get("program") for frame in frames] == [None, 33, 0, 48, 48, 48]
    instruments = [frame.get("instrument") for frame in frames]
    assert instruments == [None] * 3 + ["String Ensemble 1", None, "String Ensemble 1"]


def test_new_music_looks_like_the_tracks_it_continues():
    tracks = [track(name="Right", chunk=1), track(name="Left", chunk=2), drums(chunk=3)]
    upload = Score(480, (*tracks, track(33, chunk=3, channel=1)))
    known = looks(pack_tracks(upload))
    assert looks(pack_tracks(Score(480, upload.tracks[::-1]), upload)) == known[::-1]
    renamed = Score(480, (replace(upload.tracks[1], program=5, name="else"),))
    assert looks(pack_tracks(renamed, upload)) == known[1:2]
    # or like its instrument, if it is in no file, or is new
    upload = Score(480, (track(name="Grand", chunk=0), drums(chunk=1)))
    new = Score(12, (track(40), drums(), track()))
    assert looks(pack_tracks(new, upload)) == [("Violin", 2), ("Drums", 1), ("Grand", 0)]
    assert looks(pack_tracks(new)) == [("Violin", 0), ("Drums", 1), ("Piano", 2)]


def test_a_track_has_one_id_in_prompt_and_new_music_and_none_without_notes():
    upload = Score(480, (track(name="Left", chunk=0), Track.of([]), drums(chunk=1)))
    assert track_ids(upload) == [0, -1, 1]
    new = Score(480, (track(40, onset=9), drums(chunk=1), upload.tracks[0]))
    assert track_ids(new, upload) == [2, 1, 0]
    frames = pack_tracks(new, upload)
    assert sorted(frame.get("id", -1) for frame in frames) == [0, 1, 2]
    assert [frame.get("instrument") for frame in frames if frame["name"] == "Left"] == ["Piano"]


# Normal vision and full protanopia, deuteranopia and tritanopia, each as a matrix row by row for
# linear RGB, rounded (Machado, Oliveira and Fernandes, 2009).
EYES = np.reshape(
    [
        [1, 0, 0, 0, 1, 0, 0, 0, 1],
        [0.1523, 1.0526, -0.2049, 0.1145, 0.7863, 0.0992, -0.0039, -0.0481, 1.0520],
        [0.3673, 0.8607, -0.2280, 0.2801, 0.6725, 0.0474, -0.0118, 0.0429, 0.9689],
        [1.2555, -0.0767, -0.1788, -0.0784, 0.9308, 0.1476, 0.0047, 0.6914, 0.3039],
    ],
    (4, 3, 3),
)
# To Oklab, by Ottosson (2020).
TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def colours(theme):
    """The roll's colours in one theme as linear RGB."""
    css = STYLE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)}}$", css, re.DOTALL | re.MULTILINE)
    texts = dict(re.findall(r"--roll-([\w-]+): #(\w{6});", block))
    rgb = {name: np.array(list(bytes.fromhex(text))) / 255 for name, text in texts.items()}
    return {name: ((value + 0.055) / 1.055) ** 2.4 for name, value in rgb.items()}


def contrast(one, other):
    """The contrast ratio of WCAG 2."""
    darker, lighter = sorted((c @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other))
    return lighter / darker


def distance(one, other, eye):
    """A colour in Oklab, a space of perceived differences, with lightness from 0 to 1."""
    seen = np.clip(eye @ np.array([one, other]).T, 0, 1)
    first, second = (TO_OKLAB @ np.cbrt(TO_CONES @ seen)).T
    return float(np.linalg.norm(first - second))


@pytest.mark.parametrize("theme", [".player", ".dark .player"])
def test_instruments_are_distinguishable_with_any_colour_vision(theme):
    roll = colours(theme)
    for age in ("old", "new"):
        of_age = [roll[f"{age}-{hue}"] for hue in range(6)]
        assert min(contrast(colour, roll["paper"]) for colour in [*of_age, roll["accent"]]) >= 3
        # 0.076 is the smallest distance between the six bright colours of Okabe and Ito (2008)
        pairs = combinations(of_age, 2)
        assert min(distance(*pair, eye) for pair in pairs for eye in EYES) > 0.076
    for hue in range(6):
        assert distance(roll[f"old-{hue}"], roll[f"new-{hue}"], EYES[0]) > 0.07


def test_drums_have_short_names_and_both_sides_count_in_the_same_units():
    rows = re.findall(r"(\d\d) ([A-Z][a-z0-9 ]+)[,`]", NOTES)
    names = [name for _, name in rows]
    assert sorted(int(key) for key, _ in rows) == list(range(35, 82))
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 13
    assert f"const UNITS_PER_BEAT = {UNITS_PER_BEAT};" in NOTES
