"""Version 2: documents of five kinds, with and without plans, and what a caller may fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.strategies import (
    MULTITRACK,
    MULTITRACK_CASE,
    PIANO_CASE,
    Case,
    any_ids,
    canonical_ids,
)
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.plan import analyse
from tokenization.document import Document, Header, Selection
from tokenization.errors import TokenizerError
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.plan_text import fixed_bars, parse_chart, parse_form
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, BOS, PAD
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import FixedBar

BOTH = pytest.mark.parametrize("case", [PIANO_CASE, MULTITRACK_CASE], ids=lambda c: c.name)
CHORDS = st.none() | st.builds(
    lambda root, quality, up: Chord(root, quality, (root + up) % 12 if up else None),
    *(st.integers(0, 11), st.integers(0, 10), st.sampled_from([0, 0, 4])),
)


@st.composite
def documents(draw: st.DrawFn, case: Case) -> Document:
    """Documents of scores with every kind of selection, plans and headers."""
    remi = case.remi
    score = remi.decode(remi.encode(draw(case.scores)).ids)
    signatures = score.time_signatures
    num_bars = int(np.count_nonzero(remi.encode(score).ids == BAR))
    plan = None
    if draw(st.booleans()):
        bars = [draw(bar_plans(bar)) for bar in range(num_bars)]
        starts = np.cumsum([0, *lengths_of(remi, score)])
        at = np.searchsorted([s.tick for s in signatures], starts[:-1], side="right") - 1
        halves = [-(-signatures[index].numerator // 2) for index in at.tolist()]
        bars = [with_half(bar, half) for bar, half in zip(bars, halves, strict=True)]
        key = draw(st.none() | st.builds(Key, st.integers(0, 11), st.booleans()))
        plan = Plan(tuple(bars), key)
    header = Header(draw(st.none() | st.integers(0, 63)))
    if case is MULTITRACK_CASE and draw(st.booleans()):
        ranks = st.sampled_from([0, 4, 5, 7, 36, 37, 515])
        header = header._replace(players=tuple(sorted(draw(st.sets(ranks)))))
    selection = None
    if draw(st.booleans()):
        first = draw(st.integers(0, num_bars - 1))
        stops = st.none() | st.integers(first + 1, min(num_bars, first + 64))
        tracks = range(len(score.tracks)) if case is MULTITRACK_CASE else ()
        given = draw(st.sets(st.sampled_from(tracks))) if tracks else ()
        selection = Selection(first, draw(stops), tuple(sorted(given)))
    ends = draw(st.booleans()) if selection and selection.stop else True
    return Document(score, plan, header, selection, draw(st.booleans()), ends)


def bar_plans(bar: int) -> st.SearchStrategy[BarPlan]:
    """Plans of a bar; sources are earlier bars."""
    chords = st.lists(CHORDS, max_size=2).map(lambda found: tuple(map(PlannedChord, (0, 1), found)))
    return st.builds(BarPlan, st.integers(0, min(bar, 64)), chords)


def with_half(bar: BarPlan, half: int) -> BarPlan:
    first, second = bar.chords[:1], bar.chords[1:]
    return BarPlan(bar.source, (*first, *(PlannedChord(half, c) for _, c in second)))


def lengths_of(remi: Remi, score: Score) -> list[int]:
    """Lengths of the bars of a decoded score."""
    names = [remi.vocabulary.names[token] for token in remi.encode(score).ids]
    lengths, now = [], 48
    for name, after in zip(names, [*names[1:], ""], strict=True):
        if name == "Bar":
            now = int(after.split("_")[1]) if after.startswith("TimeSignature") else now
            lengths.append(now)
    return lengths


def text(ids: Any, remi: Remi = MULTITRACK) -> str:
    return " ".join(remi.vocabulary.names[token] for token in ids)


def walk(remi: Remi, ids: np.ndarray, **rules: Any) -> Any:
    state = remi.grammar(**rules)
    for token in ids.tolist():
        state = state.advance(token)
    return state


# ---- laws


@BOTH
@given(data=st.data())
def test_a_document_is_encoded_accepted_and_decoded(case, data):
    document = data.draw(documents(case))
    remi = case.remi
    sequence = remi.encode(*document)
    found = remi.decode_document(sequence.ids, sequence.signatures, sequence.tracks)
    assert found.header == document.header
    assert (found.begins, found.ends) == (document.begins, document.ends)
    if document.plan is not None and document.selection is None:
        assert found.plan == document.plan
    elif document.plan is None:
        assert found.plan is None
    if document.selection is None:
        assert found.selection is None
        assert found.score == document.score
    elif found.selection is not None:
        assert found.selection.first == document.selection.first
    if document.selection is None or document.selection.stop is None:
        assert notes_of(found.score) == notes_of(document.score)
    np.testing.assert_array_equal(remi.encode(*found).ids, sequence.ids)
    assert np.flatnonzero(walk(remi, sequence.ids).allowed).tolist() == [PAD]


def notes_of(score: Score) -> list[Any]:
    return [track.notes.tolist() for track in score.tracks if len(track)]


@BOTH
@given(data=st.data())
def test_what_the_grammar_allows_is_canonical(case, data):
    ids = data.draw(canonical_ids(case.remi, write=True))
    found = case.remi.decode_document(ids)
    np.testing.assert_array_equal(case.remi.encode(*found).ids, ids)


@BOTH
@given(data=st.data())
def test_resuming_a_document_gives_the_state_that_walking_does(case, data):
    remi, ids = case.remi, data.draw(canonical_ids(case.remi, write=True))
    prompt = ids[: data.draw(st.integers(1, len(ids)))]
    resumed, walked = remi.grammar().resume(prompt), walk(remi, prompt)
    np.testing.assert_array_equal(resumed.allowed, walked.allowed)
    for state in (resumed, walked):
        assert state.beat == walked.beat
    ringing = {*walked.document.ringing}
    assert {*resumed.document.ringing} == ringing
    documents = [state.document._replace(ringing=()) for state in (resumed, walked)]
    assert documents[0] == documents[1]
    assert resumed.sounds_until == walked.sounds_until


@BOTH
@given(data=st.data())
def test_any_ids_are_decoded_to_a_document(case, data):
    ids = data.draw(any_ids(case.remi))
    document = case.remi.decode_document(ids)
    assert document.score == case.remi.decode(ids)
    try:
        again = case.remi.encode(*document)
    except TokenizerError:  # a plan of bars that do not exist, or a gap without bars
        return
    walk(case.remi, again.ids)


@BOTH
@given(data=st.data(), bars=st.integers(1, 9))
def test_the_ids_of_a_bar_do_not_depend_on_later_bars(case, data, bars):
    document = data.draw(documents(case))
    assume(document.selection is None)
    remi, whole = case.remi, case.remi.encode(*document).ids
    starts = np.flatnonzero(whole == BAR)
    assume(bars < len(starts))
    end = int(np.cumsum(lengths_of(remi, document.score))[bars - 1])
    earlier = document.score.with_tracks(
        replace(track, notes=track.notes[track.notes[:, 0] < end])
        for track in document.score.tracks
    )
    plan = document.plan
    if plan is not None:
        plan = Plan((*plan.bars[:bars], *(BarPlan() for _ in plan.bars[bars:])), plan.key)
    ids = remi.encode(*document._replace(score=earlier, plan=plan)).ids
    np.testing.assert_array_equal(ids[: starts[bars]], whole[: starts[bars]])


@given(document=documents(MULTITRACK_CASE), semitones=st.integers(-12, 12))
def test_chords_basses_and_keys_move_with_the_notes(document, semitones):
    ids = MULTITRACK.encode(*document).ids
    moved = MULTITRACK.transpose(ids, semitones)
    assume(moved is not None and document.plan is not None)
    assert moved is not None
    before, after = (MULTITRACK.decode_document(row).plan for row in (ids, moved))
    assert before is not None
    assert after is not None
    up = semitones % 12
    if before.key:
        assert after.key is not None
        assert after.key == Key((before.key.tonic + up) % 12, before.key.minor)
    for one, other in zip(before.bars, after.bars, strict=True):
        assert other.source == one.source
        for (beat, chord), changed in zip(one.chords, other.chords, strict=True):
            if chord is not None:
                bass = None if chord.bass is None else (chord.bass + up) % 12
                chord = Chord((chord.root + up) % 12, chord.quality, bass)
            assert changed == PlannedChord(beat, chord)
    walk(MULTITRACK, moved)


@BOTH
@given(data=st.data(), first=st.integers(0, 9), bars=st.integers(1, 9))
def test_a_part_of_a_piece_keeps_its_bars(case, data, first, bars):
    document = data.draw(documents(case))
    assume(document.selection is None)
    remi, whole = case.remi, case.remi.encode(*document).ids
    starts = np.flatnonzero(whole == BAR)
    assume(first + bars < len(starts))  # without the end
    part = remi.crop(whole, first, bars)
    found = remi.decode_document(part)
    assert found.num_bars == bars
    np.testing.assert_array_equal(remi.encode(*found).ids, part)
    # the first bars of the score are those of the ids
    cut = remi.encode(*document._replace(ends=False, num_bars=bars)).ids
    np.testing.assert_array_equal(cut, whole[: starts[bars]])
    # with a gap, the last notes may sound after the last Later bar
    middle = data.draw(st.integers(0, bars - 1))
    ids = remi.encode(*found._replace(selection=Selection(middle, middle + 1))).ids
    assert np.flatnonzero(walk(remi, ids).allowed).tolist() == [PAD]
    np.testing.assert_array_equal(remi.encode(*remi.decode_document(ids)).ids, ids)


@BOTH
@given(data=st.data())
def test_the_plan_of_any_score_is_encoded_with_it(case, data):
    score = data.draw(case.scores)
    plan = analyse(score)
    sequence = case.remi.encode(score, plan)
    walk(case.remi, sequence.ids)
    found = case.remi.decode_document(sequence.ids, sequence.signatures, sequence.tracks).plan
    assert found is not None
    assert found.key == plan.key
    assert len(found.bars) == np.count_nonzero(sequence.ids == BAR)
    if not sequence.tempos_scaled:  # otherwise the bars may be split differently
        lines = np.cumsum([0, *lengths_of(case.remi, score)])
        bars = ScoreBars.of(score)
        common = min(bars.num_bars, len(lines) - 1)
        np.testing.assert_array_equal(bars.sizes[:common], np.diff(lines)[:common])
        assert found.bars[:common] == plan.bars[:common]
    assert all(bar == BarPlan() for bar in found.bars[len(plan.bars) :])


# ---- examples


def band() -> Score:
    """Four bars: a tune of quarters with a bass note and a drum in every bar."""
    tune = [(12 * beat, 12, 60 + beat, 64) for beat in range(16)]
    bass = [(48 * bar, 48, 36, 100) for bar in range(4)]
    drums = [(48 * bar, 1, 36, 100) for bar in range(4)]
    return Score(
        12,
        (Track.of(tune), Track.of(bass, program=33), Track.of(drums, is_drum=True)),
        (Tempo(0, 120),),
        (TimeSignature(0, 4, 4),),
    )


PLAN = Plan(
    (
        BarPlan(0, (PlannedChord(0, Chord(0, 0)), PlannedChord(2, Chord(7, 0, 11)))),
        BarPlan(1, (PlannedChord(0, None),)),
        BarPlan(-1),
        BarPlan(3),
    ),
    Key(0, minor=False),
)


def test_the_plan_is_in_the_head_of_each_bar():
    ids = MULTITRACK.encode(band(), PLAN, Header(3, (0, 36))).ids
    heads = [bar.split(" Position")[0] for bar in text(ids).split("Bar ")]
    assert heads == [
        "BOS Style_3 Key_0_major Program_Drums Plays Program_0 Plays ",
        "TimeSignature_48 Tempo_120.0 Return_New Chord_C_M Chord_G_M Bass_11",
        "Return_1 Chord_N_N",
        "Return_New",  # there is no gap
        "Return_3 Last",
    ]


def test_bars_after_the_gap_come_first():
    document = Document(band(), PLAN, Header(), Selection(2, 3))
    ids = MULTITRACK.encode(*document).ids
    heads = [bar.split(" Position")[0] for bar in text(ids).split("Bar ")]
    assert heads == [
        "BOS Key_0_major Gap_1 ",
        "Later TimeSignature_48 Tempo_120.0 Return_New Last",  # its source is not there yet
        "TimeSignature_48 Tempo_120.0 Return_New Chord_C_M Chord_G_M Bass_11",
        "Return_1 Chord_N_N",
        "Return_-1 Write",
    ]
    assert text(ids).endswith("Duration_12 EOS")
    assert MULTITRACK.decode(ids) == MULTITRACK.decode(MULTITRACK.encode(band()).ids)


def test_given_tracks_come_before_written_ones_in_every_bar():
    ids = MULTITRACK.encode(band(), selection=Selection(0, None, (0, 2))).ids
    for bar in text(ids).split("Bar ")[1:]:
        given, written = bar.split("Write ")
        assert "Program_0" in given
        assert "Program_Drums" in given
        assert "Program_33" not in given
        assert written.startswith("Position_0 Program_33 Pitch_36 Velocity_25 Duration_48")
    prompt, given = MULTITRACK.split_at_written(ids)
    assert prompt.tolist() == [BOS]
    assert [text(bar).split()[:2] for bar in given] == [["Position_0", "Program_Drums"]] * 4


def test_a_note_ends_with_the_gap_at_the_latest():
    score = band().with_tracks([Track.of([(0, 96, 60, 64)])])
    score = replace(score, end_ticks=192)
    ids = MULTITRACK.encode(score, selection=Selection(0, 1)).ids
    assert "Pitch_60 Velocity_16 Duration_48" in text(ids)
    state = walk(MULTITRACK, ids[:-2])
    assert np.flatnonzero(state.allowed).max() == MULTITRACK.vocabulary.ids["Duration_48"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"plan": Plan((BarPlan(65), *PLAN.bars[1:]))}, "source of a bar is 65, expected -64 to"),
        (
            {"plan": Plan((BarPlan(0, (PlannedChord(2, None),)), *PLAN.bars[1:]))},
            "chords at the beats 2; expected one at beat 0",
        ),
        (
            {"plan": Plan((BarPlan(0, (PlannedChord(0, Chord(12, 0)),)), *PLAN.bars[1:]))},
            "a chord has root 12, quality 0 and bass None",
        ),
        ({"header": Header(64)}, "style is 64, expected 0 to 63"),
        ({"header": Header(None, (516,))}, "there is no track of rank 516"),
        ({"selection": Selection(3, 3)}, "bars to be written are 3 to 3, expected at least one"),
        ({"selection": Selection(0, 5)}, "of the 4 bars of the piece"),
    ],
)
def test_what_has_no_tokens_is_refused(arguments, message):
    with pytest.raises(TokenizerError, match=message):
        MULTITRACK.encode(band(), **arguments)


# ---- what the caller fixes


def first_allowed(state: Any, preferred: tuple[int, ...]) -> int:
    allowed = state.allowed
    return next((t for t in preferred if allowed[t]), int(np.flatnonzero(allowed)[0]))


def test_form_chords_and_given_tracks_can_be_fixed_bar_by_bar():
    remi = MULTITRACK
    prompt = remi.encode(band(), PLAN, ends=False).ids
    given = remi.split_at_written(remi.encode(band(), selection=Selection(0, None, (2,))).ids)[1]
    given = (*given[:2], (), ())
    bars = fixed_bars(5, parse_form("A2 B1 A1", "AAAA"), parse_chart("C | G/B | Am F | N"), given)
    rules = {"tempo": "never", "time_signature": False, "write": False}
    state = remi.grammar(bars=bars, **rules).resume(prompt)
    made: list[int] = []
    while state.bar < 9:
        made.append(first_allowed(state, (BAR,)))
        state = state.advance(made[-1])
    heads = text(made[:-1]).split("Bar ")[1:]
    drum = "Position_0 Program_Drums Drum_36 DrumVelocity_25 Write"
    assert heads == [
        f"Return_4 Chord_C_M {drum} ",
        f"Return_4 Chord_G_M Bass_11 {drum} ",
        "Return_New Chord_A_m Chord_F_M Write ",
        "Return_3 Chord_N_N Write",
    ]


@given(data=st.data())
def test_fixed_bars_never_leave_nothing(data):
    remi = MULTITRACK
    document = data.draw(documents(MULTITRACK_CASE))
    ids = remi.encode(*document).ids
    prompt, given = remi.split_at_written(ids)
    bars = int(np.count_nonzero(prompt == BAR))
    chords = st.lists(CHORDS, max_size=2).map(lambda found: tuple(map(PlannedChord, (0, 1), found)))
    fixed = {
        bars + 1 + index: FixedBar(
            data.draw(st.none() | st.lists(st.integers(-64, 64), max_size=3).map(tuple)),
            data.draw(st.none() | chords),
            part,
        )
        for index, part in enumerate(given[:4])
    }
    state = remi.grammar(bars=fixed, tempo="never").resume(prompt)
    for which in data.draw(st.lists(st.integers(0, 2000), max_size=40)):
        allowed = np.flatnonzero(state.allowed)
        assert len(allowed)
        state = state.advance(int(allowed[which % len(allowed)]))
        if state.allowed[PAD] or state.bar > bars + 4:
            break
