from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import GOLDEN_FOLDER
from tests.support.strategies import scores
from tokenization.compat.spe_pop import (
    BAR,
    BEAT,
    CHORD,
    DURATION,
    EOS,
    PAD,
    PITCH,
    ROOTS,
    SPE_POP_VOCABULARY,
    TEMPO,
    TEMPOS,
    VELOCITY,
    SpePop,
    SpePopConfig,
)
from tokenization.errors import MidiError
from tokenization.score import Note, Score, Tempo, TimeSignature, Track

GOLDEN = np.load(GOLDEN_FOLDER / "spe.npz", allow_pickle=False)
POP = SpePop()
IDS = SPE_POP_VOCABULARY.ids
NAMES = SPE_POP_VOCABULARY.names
FAMILIES = (BAR, BEAT, CHORD, EOS, DURATION, PITCH, VELOCITY, TEMPO)


def ids_of(text: str) -> np.ndarray:
    """Ids of short names, such as `Bar Beat_0 Pitch_60`."""
    full = {"Bar": "Bar_None", "EOS": "EOS_None", "PAD": "PAD"}
    kinds = ("Beat", "Chord", "Tempo")
    names = [full.get(n) or (n if n.startswith(kinds) else f"Note_{n}") for n in text.split()]
    return np.array([IDS[name] for name in names], dtype=np.int32)


def encode_again(ids) -> np.ndarray:
    return POP.encode(POP.decode(ids), POP.chords(ids)).ids


def accepts(ids) -> bool:
    try:
        POP.grammar().resume(ids)
    except ValueError:
        return False
    return True


@st.composite
def chords(draw: st.DrawFn) -> list[str] | list[tuple[float, str]]:
    names = st.sampled_from([name.removeprefix("Chord_") for name in NAMES[CHORD:EOS]])
    beats = st.integers(0, 160).map(lambda eighth: eighth / 8)
    return draw(st.lists(names, max_size=8) | st.lists(st.tuples(beats, names), max_size=8))


@st.composite
def canonical_ids(draw: st.DrawFn, max_tokens: int = 60) -> np.ndarray:
    """Whole pieces drawn from the grammar: first a family, then one of its tokens."""
    state = POP.grammar().advance(BAR)
    ids = [BAR]
    choices = st.tuples(st.integers(0, len(FAMILIES) - 1), st.integers(0, 255))
    for family, which in draw(st.lists(choices, max_size=max_tokens)):
        allowed = np.flatnonzero(state.allowed)
        allowed = allowed[allowed != EOS]
        families = np.searchsorted(FAMILIES, allowed, side="right")
        there = np.unique(families)
        of_family = allowed[families == there[family % len(there)]]
        ids.append(int(of_family[which % len(of_family)]))
        state = state.advance(ids[-1])
    while not state.allowed[EOS]:
        allowed = np.flatnonzero(state.allowed)
        notes = allowed[(allowed >= DURATION) & (allowed < TEMPO)]
        if state.last != BAR and state.has_note and allowed[0] == BAR:
            ids.append(BAR)
        else:
            ids.append(int((notes if len(notes) else allowed[allowed != BAR])[0]))
        state = state.advance(ids[-1])
    return np.array([*ids, EOS], dtype=np.int32)


def any_ids(max_tokens: int = 60) -> st.SearchStrategy[list[int]]:
    token = st.integers(0, PAD) | st.sampled_from(FAMILIES) | st.integers(-3, PAD + 3)
    note = st.tuples(
        st.integers(PITCH, PITCH + 3),
        st.integers(VELOCITY, TEMPO - 1),
        st.integers(DURATION, PITCH - 1),
    )
    pieces = st.lists(st.tuples(token) | note, max_size=max_tokens)
    return pieces.map(lambda rows: [token for row in rows for token in row])


def slow_encode(score: Score, named_chords) -> tuple[list[str], int]:
    """Token names according to the specification, and the number of bars left out."""

    def step_of(ticks: int) -> int:
        return (8 * ticks + score.ticks_per_beat) // (2 * score.ticks_per_beat)

    notes: dict[tuple[int, int], tuple[int, int]] = {}
    for track in score.tracks:
        for onset, length, pitch, velocity in track.notes.tolist():
            if not track.is_drum and 22 <= pitch <= 107:
                new = (max(1, min(16, step_of(length))), min(86, max(40, velocity // 2 * 2)))
                notes[step_of(onset), pitch] = max(notes.get((step_of(onset), pitch), new), new)
    if not notes:
        return ["Bar_None", "EOS_None"], 0
    first_bar = min(notes)[0] // 16
    last_bar = max(notes)[0] // 16
    tempos = {}
    for tick, bpm in score.tempos:
        nearest = min(TEMPOS.tolist(), key=lambda known: (abs(known - min(bpm, 500)), known))
        tempos[max(step_of(tick), first_bar * 16)] = nearest
    pairs = [c if isinstance(c, tuple) else (i, c) for i, c in enumerate(named_chords)]
    chord_at = {}
    for beat, name in sorted(pairs, key=lambda pair: pair[0]):
        chord_at[max(int(4 * beat + 0.5), first_bar * 16)] = name
    names = []
    for bar in range(first_bar, last_bar + 1):
        names.append("Bar_None")
        for position in range(16):
            step = 16 * bar + position
            found = [f"Chord_{chord_at[step]}"] if step in chord_at else []
            found += [f"Tempo_{tempos[step]}"] if step in tempos else []
            for pitch in range(107, 21, -1):
                if (step, pitch) in notes:
                    length, velocity = notes[step, pitch]
                    found += [f"Note_Pitch_{pitch}", f"Note_Velocity_{velocity}"]
                    found += [f"Note_Duration_{120 * length}"]
            names += [f"Beat_{position}", *found] if found else []
    return [*names, "Bar_None", "EOS_None"], first_bar


def slow_notes(ids) -> list[Note]:
    """Notes that any ids represent, with times in twelfths of a quarter note."""
    names = [NAMES[token] if 0 <= token < PAD else "PAD_" for token in ids]
    notes, bar, position = [], 0, 0
    for index, name in enumerate(names):
        family, value = name.rsplit("_", 1)
        if family == "EOS":
            break
        if family == "Bar":
            bar, position = bar + 1, 0
        elif family == "Beat":
            position = int(value)
        elif family == "Note_Pitch":
            after = [other.rsplit("_", 1) for other in names[index + 1 : index + 3]]
            if [kind for kind, _ in after] == ["Note_Velocity", "Note_Duration"]:
                onset = 48 * max(bar - 1, 0) + 3 * position
                length = 3 * max(1, int(after[1][1]) // 120)
                notes.append(Note(onset, length, int(value), int(after[0][1])))
    return sorted(notes, key=lambda n: (n.onset_ticks, n.pitch, n.duration_ticks, n.velocity))


def notes_of(score: Score) -> list[Note]:
    return [Note(*row) for row in score.tracks[0].notes.tolist()]


# ---- properties


@given(score=scores(), chords=chords())
def test_encoding_matches_a_slow_reference(score, chords):
    sequence = POP.encode(score, chords)
    names, first_bar = slow_encode(score, chords)
    assert [NAMES[token] for token in sequence.ids] == names
    assert sequence.first_bar == first_bar
    assert accepts(sequence.ids)


@given(score=scores(), chords=chords())
def test_decoding_gives_the_quantized_score(score, chords):
    sequence = POP.encode(score, chords)
    decoded = POP.decode(sequence.ids, first_bar=sequence.first_bar)
    assert decoded.ticks_per_beat == 12
    shifted = [
        note._replace(onset_ticks=note.onset_ticks + 48 * sequence.first_bar)
        for note in slow_notes(sequence.ids)
    ]
    assert notes_of(decoded) == shifted
    again = POP.encode(decoded, POP.chords(sequence.ids, sequence.first_bar))
    np.testing.assert_array_equal(again.ids, sequence.ids)
    assert again.first_bar == sequence.first_bar
    assert (again.dropped, again.clipped, again.merged, again.tempos_clipped) == (0, 0, 0, 0)


@given(ids=canonical_ids())
def test_canonical_ids_are_accepted_and_encoded_again(ids):
    np.testing.assert_array_equal(encode_again(ids), ids)
    assert np.flatnonzero(POP.grammar().resume(ids).allowed).tolist() == [PAD]


@given(ids=canonical_ids(), data=st.data())
def test_a_changed_sequence_is_accepted_if_and_only_if_it_is_canonical(ids, data):
    place = data.draw(st.integers(0, len(ids) - 2))
    length = data.draw(st.integers(0, 4))
    near = st.integers(max(0, ids[place] - 3), min(PAD, ids[place] + 3))
    new = data.draw(st.lists(near | st.integers(0, PAD), max_size=4))
    changed = [*ids[:place], *new, *ids[place + length : -1], EOS]
    assert accepts(changed) == np.array_equal(encode_again(changed), changed)


@given(ids=any_ids())
def test_any_ids_are_decoded(ids):
    assert notes_of(POP.decode(ids)) == slow_notes(ids)
    assert accepts(encode_again(ids))
    whole = [*ids, EOS]
    assert accepts(whole) == np.array_equal(encode_again(whole), whole)


@given(ids=canonical_ids(), end=st.booleans(), tempo=st.sampled_from(["bar_line", "never"]))
def test_rules_only_forbid_and_always_leave_a_token(ids, end, tempo):
    free = POP.grammar()
    for token in ids:
        bound = POP.grammar(tempo=tempo, end=end)
        state = replace(free, rules=bound.rules)
        assert state.allowed.any()
        assert not (state.allowed & ~free.allowed).any()
        assert end or not state.allowed[EOS]
        may_change = tempo == "bar_line" and free.step == 0
        assert may_change or not state.allowed[TEMPO:PAD].any()
        free = free.advance(int(token))


@given(ids=canonical_ids())
def test_the_beat_of_a_token_is_that_of_the_grammar_before_it(ids):
    state = POP.grammar()
    beats = []
    for token in ids:
        beats.append(state.beat)
        assert state.bar_start <= 12 * state.beat < state.bar_start + state.bar_length
        state = state.advance(int(token))
    sequence = POP.encode(POP.decode(ids), POP.chords(ids))
    np.testing.assert_array_equal(sequence.beats, beats)
    assert state.bar == np.count_nonzero(ids == BAR)


@given(ids=canonical_ids(), data=st.data())
def test_a_crop_equals_the_encoded_cut_score(ids, data):
    score, named = POP.decode(ids), POP.chords(ids)
    bars = max(1, int(np.count_nonzero(ids == BAR)) - 1)
    first = data.draw(st.integers(0, bars - 1))
    crop = POP.crop(ids, first)
    notes = score.tracks[0].notes
    cut = POP.encode(score.with_tracks([Track(notes[notes[:, 0] >= 48 * first])]), named)
    np.testing.assert_array_equal(crop, cut.ids)
    assert crop.dtype == ids.dtype
    num_bars = data.draw(st.integers(1, bars))
    short = POP.crop(ids, first, num_bars)
    assert accepts(short)
    assert np.array_equal(short, crop[: len(short)])
    assert len(short) == len(crop) or np.count_nonzero(short == BAR) == num_bars
    with pytest.raises(ValueError, match=f"of the {bars} bars of the piece"):
        POP.crop(ids, bars)


@given(ids=canonical_ids(), semitones=st.integers(-90, 90))
def test_transposing_moves_notes_and_chords(ids, semitones):
    moved = POP.transpose(ids, semitones)
    pitches = [note.pitch + semitones for note in slow_notes(ids)]
    if moved is None:
        assert min(pitches) < 22 or max(pitches) > 107
        return
    assert accepts(moved)
    assert [note.pitch for note in slow_notes(moved)] == pitches
    for (beat, before), (same, after) in zip(POP.chords(ids), POP.chords(moved), strict=True):
        assert beat == same
        root, quality = before.split("_")
        expected = "N" if root == "N" else ROOTS[(ROOTS.index(root) + semitones) % 12]
        assert after == f"{expected}_{quality}"


# ---- golden values, `spe.npz`: made by the original implementation


def test_the_vocabulary_is_that_of_the_paper():
    assert SPE_POP_VOCABULARY.hash == (
        "40fd408debcb73c86976373c68777d83d1a821a642bb1be7a8beb1dbd5825f4b"
    )
    assert len(SPE_POP_VOCABULARY) == 333
    assert list(NAMES[:-1]) == sorted(NAMES[:-1])
    assert [IDS[name] for name in GOLDEN["remi_events"].tolist()] == GOLDEN["remi_ids"].tolist()


@pytest.mark.parametrize(
    ("first", "count", "start", "family"),
    [
        (BAR, 1, "Bar_None", "Bar"),
        (BEAT, 16, "Beat_0 Beat_1 Beat_10", "Beat"),
        (CHORD, 133, "Chord_A#_+ Chord_A#_/o7 Chord_A#_7", "Chord"),
        (EOS, 1, "EOS_None", "EOS"),
        (DURATION, 17, "Note_Duration_0 Note_Duration_1080", "Note_Duration"),
        (PITCH, 86, "Note_Pitch_100 Note_Pitch_101", "Note_Pitch"),
        (VELOCITY, 24, "Note_Velocity_40 Note_Velocity_42", "Note_Velocity"),
        (TEMPO, 54, "Tempo_101 Tempo_104", "Tempo"),
        (PAD, 1, "PAD", "PAD"),
    ],
)
def test_ids_are_those_of_the_document(first, count, start, family):
    names = start.split()
    assert list(NAMES[first : first + len(names)]) == names
    assert [name for name in NAMES if name.startswith(family)] == list(NAMES[first : first + count])


def test_golden_ids_are_decoded_as_the_original_does():
    ids = GOLDEN["remi_ids"]
    score = POP.decode(ids)
    notes = score.tracks[0].notes * [40, 40, 1, 1]
    rows = [[onset, onset + length, pitch, v] for onset, length, pitch, v in notes.tolist()]
    assert sorted(rows) == sorted(GOLDEN["remi_notes"].tolist())
    assert [[40 * t, b] for t, b in score.tempos] == GOLDEN["remi_tempos"].tolist()
    named = [[int(480 * beat), f"Chord-{name}"] for beat, name in POP.chords(ids)]
    markers = zip(GOLDEN["remi_markers_time"].tolist(), GOLDEN["remi_markers_text"], strict=True)
    # the original marks each bar as well
    assert named + [[1920 * bar, f"Bar-{bar + 1}"] for bar in range(3)] == [*map(list, markers)]


# ---- examples


def test_a_bar_by_hand():
    score = Score(
        480,
        (
            Track.of(
                [(1920, 480, 60, 64), (1920, 1000, 67, 127), (3779, 5, 60, 1), (3840, 0, 21, 9)]
            ),
            Track.of([(0, 1, 40, 90)], is_drum=True),
        ),
        tempos=(Tempo(0, 100.4), Tempo(1000, 153.0)),
        time_signatures=(TimeSignature(0, 3, 4),),
    )
    sequence = POP.encode(score, [(0, "N_N"), (4.2, "C_M"), (7.5, "A#_/o7")])
    expected = ids_of(
        "Bar Beat_0 Chord_N_N Tempo_155 Pitch_67 Velocity_86 Duration_960 "
        "Pitch_60 Velocity_64 Duration_480 Beat_1 Chord_C_M Beat_14 Chord_A#_/o7 "
        "Beat_15 Pitch_60 Velocity_40 Duration_120 Bar EOS"
    )
    np.testing.assert_array_equal(sequence.ids, expected)
    assert (sequence.first_bar, sequence.dropped, sequence.clipped) == (1, 1, 0)
    decoded = POP.decode(sequence.ids, first_bar=1)
    assert decoded.time_signatures == (TimeSignature(0, 4, 4),)
    assert decoded.end_ticks == 96


def test_lost_notes_and_tempos_are_counted():
    notes = [(0, 481, 60, 64), (0, 480, 60, 90), (0, 9, 110, 64)]
    score = Score(120, (Track.of(notes),), tempos=(Tempo(0, 30), Tempo(60, 300)))
    sequence = POP.encode(score)
    counts = (sequence.dropped, sequence.clipped, sequence.merged, sequence.tempos_clipped)
    assert counts == (1, 1, 1, 2)


def test_a_note_after_the_limit_is_rejected():
    with pytest.raises(MidiError, match="remove the silence"):
        POP.encode(Score(1, (Track.of([(65_536, 1, 60, 64)]),)))
    endless = Score(1, (Track.of([(0, 1 << 40, 60, 64)]),))
    assert POP.decode(POP.encode(endless).ids).end_ticks == 48


def test_a_chord_without_a_token_is_named():
    with pytest.raises(
        ValueError, match=r"Chord_H_M.* has no token, expected N_N, or a root \(C C#"
    ):
        POP.encode(Score(1), ["H_M"])


def test_a_rejected_token_is_named():
    with pytest.raises(ValueError, match="Beat_3 is not allowed at bar 1, step 3, after Beat_3"):
        POP.grammar().resume(ids_of("Bar Beat_3 Beat_3"))
    with pytest.raises(ValueError, match="id 333 is not allowed at bar 0, step -1, after noth"):
        POP.grammar().advance(333)


def test_the_config_builds_and_is_saved(tmp_path):
    pop = SpePopConfig().build()
    pop.save(tmp_path)
    assert '"kind": "spe_pop"' in (tmp_path / "tokenizer.json").read_text("utf-8")
    assert pop.grammar().hold([(1, 60, 12)]) == pop.grammar()
    assert pop.vocabulary is SPE_POP_VOCABULARY
