from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import GOLDEN_FOLDER
from tests.support.strategies import scores
from tokenization.compat.spe_groove import (
    BASS,
    BOS,
    DRUMS,
    EOS,
    HARMONY,
    MAX_SOUNDING,
    NOTE_OFF,
    PAD,
    SHIFT,
    SPE_GROOVE_VOCABULARY,
    SpeGroove,
    SpeGrooveConfig,
    track_roles,
)
from tokenization.errors import MidiError
from tokenization.score import Score, TimeSignature, Track

GOLDEN = np.load(GOLDEN_FOLDER / "spe.npz", allow_pickle=False)
COMPACT = SpeGroove()
COMPATIBLE = SpeGrooveConfig(mode="compatible").build()
MODES = (COMPACT, COMPATIBLE)
IDS = SPE_GROOVE_VOCABULARY.ids
NAMES = SPE_GROOVE_VOCABULARY.names
KINDS = (0, NOTE_OFF, SHIFT, SHIFT + 23)
PROGRAMS = (0, 33, 33, 35, 48)
SCORES = scores(programs=PROGRAMS)
both_modes = pytest.mark.parametrize("groove", MODES, ids=["compact", "compatible"])


def ids_of(text: str) -> list[int]:
    full = {"On": "NoteOn", "Off": "NoteOff", "Shift": "TimeShift"}
    names = [full.get(name.split("_")[0], name.split("_")[0]) for name in text.split()]
    rest = [name.partition("_")[1] + name.partition("_")[2] for name in text.split()]
    return [IDS[name + number] for name, number in zip(names, rest, strict=True)]


def accepts(groove: SpeGroove, ids) -> bool:
    try:
        groove.grammar().resume(ids)
    except ValueError:
        return False
    return True


@st.composite
def canonical_ids(draw: st.DrawFn, groove: SpeGroove, max_tokens: int = 60) -> np.ndarray:
    """Whole pieces drawn from the grammar: a kind of token, then a token of it, often the first."""
    state = groove.grammar().advance(BOS)
    ids = [BOS]
    some = st.integers(0, 1) | st.integers(0, 400)
    for kind, which in draw(st.lists(st.tuples(st.integers(0, 3), some), max_size=max_tokens)):
        allowed = np.flatnonzero(state.allowed)
        allowed = allowed[allowed < EOS]
        kinds = np.searchsorted(KINDS, allowed, side="right")
        of_kind = allowed[kinds == np.unique(kinds)[kind % len(np.unique(kinds))]]
        ids.append(int(of_kind[(which * 64 if which < 2 else which) % len(of_kind)]))
        state = state.advance(ids[-1])
    while not state.allowed[EOS]:
        allowed = np.flatnonzero(state.allowed)
        ends = allowed[(allowed >= NOTE_OFF) & (allowed < SHIFT)]
        shifts = allowed[(allowed >= SHIFT) & (allowed < EOS) & bool(state.sounding)]
        ids.append(int((ends if len(ends) else shifts if len(shifts) else allowed[:1])[-1]))
        state = state.advance(ids[-1])
    return np.array([*ids, EOS], dtype=np.int32)


def any_ids(max_tokens: int = 60) -> st.SearchStrategy[list[int]]:
    """Sequences of integers, mostly ids; a few pitches are frequent, so that notes end."""
    events = st.sampled_from([60, 61, 188, 316, 60 + 384, 61 + 384, 188 + 384, 316 + 384])
    shifts = st.sampled_from([SHIFT, SHIFT + 5, SHIFT + 12, SHIFT + 23])
    return st.lists(events | shifts | events | st.integers(-3, PAD + 3), max_size=max_tokens)


def first_in_first_out(notes) -> list[tuple[int, int, int, int, int]]:
    """(onset, pitch, length, velocity, track); notes of a pitch end in order of onset."""
    paired = []
    for track, pitch in {(track, pitch) for _, pitch, _, _, track in notes}:
        own = sorted(n for n in notes if (n[4], n[1]) == (track, pitch))
        ends = sorted(n[0] + n[2] for n in own)
        for (onset, _, _, velocity, _), end in zip(own, ends, strict=True):
            paired.append((onset, pitch, end - onset, velocity, track))
    return sorted(paired)


def slow_quantize(score: Score) -> list[tuple[int, int, int, int, int]]:
    notes = []
    for role, track in zip(track_roles(score.tracks), score.tracks, strict=True):
        for onset, length, pitch, velocity in track.notes.tolist() if role >= 0 else []:
            begin, end = (
                (24 * tick + score.ticks_per_beat) // (2 * score.ticks_per_beat)
                for tick in (onset, onset + length)
            )
            notes.append((begin, pitch, max(1, end - begin), velocity, role))
    return first_in_first_out(notes)


def slow_encode(notes, compact: bool) -> list[int]:
    """Section 5.2 of the specification, implemented note by note."""
    notes = sorted((t, pitch, d, 0 if compact else v, track) for t, pitch, d, v, track in notes)
    events = []
    for onset, pitch, length, _, track in notes:
        events += [(onset, 128 * track + pitch), (onset + length, 384 + 128 * track + pitch)]
    ids, now = [BOS], 0
    for time, token in sorted(events, key=lambda event: event[0]):
        if time > now or not compact:
            beats = time // 12 - now // 12
            ids += [791] * (beats // 2)
            if beats % 2 or time % 12:
                ids.append(768 + 12 * (beats % 2) + time % 12 - 1)
        ids.append(token)
        now = time
    return [*ids, EOS]


def slow_decode(ids) -> list[tuple[int, int, int, int, int]]:
    """(onset, pitch, length, place among the tokens, track)."""
    notes, open_notes, beat, tick = [], [], 0, 0
    for place, token in enumerate(ids):
        if token == EOS:
            break
        if 0 <= token < 384:
            open_notes.append((token, 12 * beat + tick, place))
        elif 384 <= token < 768:
            found = next((note for note in open_notes if note[0] == token - 384), None)
            if found:
                open_notes.remove(found)
                length = max(1, 12 * beat + tick - found[1])
                notes.append((found[1], found[0] % 128, length, found[2], found[0] // 128))
        elif 768 <= token < 792:
            beat, tick = beat + (token - 767) // 12, (token - 767) % 12
    return sorted(notes)


def notes_of(score: Score) -> list[tuple[int, int, int, int]]:
    return sorted(
        (onset, pitch, length, role)
        for role, track in enumerate(score.tracks)
        for onset, length, pitch, _ in track.notes.tolist()
    )


def untied(notes) -> list[tuple[int, int, int, int]]:
    return sorted((onset, pitch, length, track) for onset, pitch, length, _, track in notes)


def is_canonical(groove: SpeGroove, ids) -> bool:
    """Whether some score has these tokens; velocities represent the order of notes."""
    notes = slow_decode(ids)
    ranks = {note[3]: rank for rank, note in enumerate(sorted(notes, key=lambda n: n[3]))}
    tracks = [
        replace(track, notes=[(t, d, p, 1 + ranks[v]) for t, p, d, v, tr in notes if tr == role])
        for role, track in enumerate(groove.decode([]).tracks)
    ]
    return np.array_equal(groove.encode(Score(12, tuple(tracks))).ids, ids)


# ---- properties


@both_modes
@given(score=SCORES)
def test_encoding_matches_a_slow_reference(groove, score):
    sequence = groove.encode(score)
    ids = slow_encode(slow_quantize(score), groove is COMPACT)
    np.testing.assert_array_equal(sequence.ids, ids)
    assert accepts(groove, ids)
    assert sequence.dropped == score.num_notes - len(slow_quantize(score))
    assert sequence.clipped == 0


@both_modes
@given(score=SCORES)
def test_decoding_gives_the_quantized_score(groove, score):
    sequence = groove.encode(score)
    decoded = groove.decode(sequence.ids, sequence.signatures, sequence.tracks, sequence.velocities)
    assert decoded.ticks_per_beat == 12
    assert notes_of(decoded) == untied(slow_quantize(score))
    if groove is COMPACT:
        np.testing.assert_array_equal(groove.encode(decoded).ids, sequence.ids)


@given(ids=canonical_ids(COMPACT))
def test_canonical_ids_are_encoded_again(ids):
    np.testing.assert_array_equal(COMPACT.encode(COMPACT.decode(ids)).ids, ids)
    assert np.flatnonzero(COMPACT.grammar().resume(ids).allowed).tolist() == [PAD]


@given(ids=canonical_ids(COMPATIBLE))
def test_compatible_ids_have_a_score(ids):
    assert is_canonical(COMPATIBLE, ids)
    assert notes_of(COMPACT.decode(ids)) == notes_of(COMPATIBLE.decode(ids))


@both_modes
@given(data=st.data())
def test_a_changed_sequence_is_accepted_if_and_only_if_it_is_canonical(groove, data):
    ids = data.draw(canonical_ids(groove))
    place = data.draw(st.integers(1, len(ids) - 1))
    length = data.draw(st.integers(0, 3))
    near = st.integers(max(0, ids[place] - 3), min(PAD, ids[place] + 3))
    new = data.draw(st.lists(near | st.sampled_from(ids) | st.integers(0, PAD), max_size=3))
    changed = [*ids[:place], *new, *ids[place + length : -1], EOS]
    assert accepts(groove, changed) == is_canonical(groove, changed)


@both_modes
@given(ids=any_ids())
def test_any_ids_are_decoded(groove, ids):
    decoded = groove.decode(ids)
    assert notes_of(decoded) == untied(slow_decode(ids))
    assert accepts(groove, groove.encode(decoded).ids)
    whole = [BOS, *ids, EOS]
    assert accepts(groove, whole) == is_canonical(groove, whole)


@both_modes
@given(data=st.data())
def test_every_state_can_continue_and_knows_its_time(groove, data):
    ids = data.draw(canonical_ids(groove))
    state, endless = groove.grammar(), groove.grammar(end=False)
    beats = []
    for token in ids:
        beats.append(state.beat)
        assert state.bar_start <= state.time < state.bar_start + state.bar_length
        assert state.bar == state.bar_start // 48 + 1
        bound = replace(state, rules=endless.rules).allowed
        assert bound.any()
        assert not bound[EOS]
        assert not (bound & ~state.allowed).any()
        state = state.advance(int(token))
    np.testing.assert_array_equal(replace(groove.encode(Score(1)), ids=ids).beats, beats)


@both_modes
@given(data=st.data())
def test_a_crop_contains_the_notes_that_begin_in_it(groove, data):
    ids = data.draw(canonical_ids(groove))
    end = max((onset + length for onset, _, length, *_ in slow_decode(ids)), default=0)
    bars = max(1, -(-end // 48))
    first = data.draw(st.integers(0, bars - 1))
    crop = groove.crop(ids, first)
    moved = [(t - 48 * first, *rest) for t, *rest in slow_decode(ids) if t >= 48 * first]
    assert notes_of(groove.decode(crop)) == untied(moved)
    assert accepts(groove, crop)
    assert first > 0 or np.array_equal(crop, ids)
    num_bars = data.draw(st.integers(1, bars))
    short = groove.crop(ids, first, num_bars)
    without_eos = short[short != EOS]
    np.testing.assert_array_equal(without_eos, crop[: len(without_eos)])
    assert (EOS in short) == (first + num_bars >= bars)
    ends = groove.grammar().resume(without_eos).time
    assert ends < 48 * num_bars or first + num_bars >= bars
    with pytest.raises(ValueError, match=f"of the {bars} bars of the piece"):
        groove.crop(ids, bars)


@both_modes
@given(data=st.data(), semitones=st.integers(-70, 70))
def test_transposing_moves_everything_but_drums(groove, data, semitones):
    ids = data.draw(canonical_ids(groove))
    moved = groove.transpose(ids, semitones)
    notes = [
        (t, pitch + (semitones if track != DRUMS else 0), *rest, track)
        for t, pitch, *rest, track in slow_decode(ids)
    ]
    if moved is None:
        assert not all(0 <= pitch < 128 for _, pitch, *_ in notes)
        return
    assert accepts(groove, moved)
    assert notes_of(groove.decode(moved)) == untied(notes)
    # compatible tokens keep the order of unisons that result from transposing
    back = groove.transpose(moved, -semitones) if groove is COMPACT else groove.transpose(ids, 0)
    np.testing.assert_array_equal(back, ids)


# ---- golden values, `spe.npz`: made by the original implementation


def golden_score(rows: np.ndarray) -> Score:
    tracks = [replace(track, notes=[]) for track in COMPACT.decode([]).tracks]
    return Score(
        12,
        tuple(
            replace(track, notes=rows[rows[:, 0] == role][:, [1, 3, 2, 4]])
            for role, track in enumerate(tracks)
        ),
    )


@pytest.mark.parametrize(
    ("notes", "tokens"),
    [("style_notes_a", "groove_tokens_a"), ("groove_notes_sparse", "groove_tokens_sparse")],
)
def test_compatible_tokens_are_those_of_the_original(notes, tokens):
    score = golden_score(GOLDEN[notes])
    original = GOLDEN[tokens].tolist()
    assert COMPATIBLE.encode(score).ids.tolist() == [BOS, *original]
    assert accepts(COMPATIBLE, [BOS, *original])
    # compact: the same without shifts of zero
    times = COMPATIBLE.encode(score).beats[1:]
    moves = np.append(times[1:] > times[:-1], True)
    is_shift = np.array([SHIFT <= token < EOS for token in original])
    compact = COMPACT.encode(score).ids[1:]
    assert compact.tolist() == np.array(original)[moves | ~is_shift].tolist()
    assert len(compact) < len(original)


def test_golden_tokens_are_decoded_as_the_original_does():
    decoded = COMPATIBLE.decode(GOLDEN["groove_tokens_a"])
    rows = [[role, onset, pitch, length] for onset, pitch, length, role in notes_of(decoded)]
    assert sorted(rows) == sorted(GOLDEN["groove_decoded_a"].tolist())


def test_the_vocabulary_is_that_of_the_paper():
    assert SPE_GROOVE_VOCABULARY.hash == (
        "935fa21db4dcfc19d259c4f1be76d2bcfece7f22eb98d024358c881c6552a0d1"
    )
    assert len(SPE_GROOVE_VOCABULARY) == 795
    shifts = [*(f"0_{t}" for t in range(1, 12)), *(f"1_{t}" for t in range(12)), "2_0"]
    assert list(NAMES[768:]) == [*(f"TimeShift_{s}" for s in shifts), "EOS", "BOS", "PAD"]
    for track, pitch in [(0, 0), (1, 36), (2, 127)]:
        assert IDS[f"NoteOn_{track}_{pitch}"] == 128 * track + pitch
        assert IDS[f"NoteOff_{track}_{pitch}"] == 384 + 128 * track + pitch


# ---- examples


def test_a_beat_by_hand():
    tracks = (
        Track.of([(0, 24, 40, 101), (30, 6, 43, 90)], program=33),
        Track.of([(6, 6, 42, 70)], is_drum=True),
        Track.of([(6, 30, 64, 80), (6, 30, 60, 80)], program=4),
    )
    score = Score(12, tracks, time_signatures=(TimeSignature(0, 4, 4),))
    sequence = COMPACT.encode(score)
    assert sequence.ids.tolist() == ids_of(
        "BOS On_0_40 Shift_0_6 On_1_42 On_2_60 On_2_64 Shift_1_0 Off_1_42 Shift_1_0 Off_0_40 "
        "Shift_0_6 On_0_43 Shift_1_0 Off_2_60 Off_2_64 Off_0_43 EOS"
    )
    assert sequence.velocities == (95, 70, 80)
    decoded = COMPACT.decode(
        sequence.ids, sequence.signatures, sequence.tracks, sequence.velocities
    )
    assert [track.program for track in decoded.tracks] == [33, 0, 4]
    assert [track.is_drum for track in decoded.tracks] == [False, True, False]
    assert decoded.tracks[BASS].notes.tolist() == [[0, 24, 40, 95], [30, 6, 43, 95]]
    assert decoded.time_signatures == score.time_signatures
    compatible = COMPATIBLE.encode(score)
    assert compatible.ids[3:8].tolist() == ids_of("On_1_42 Shift_0_6 On_2_60 Shift_0_6 On_2_64")


def test_the_busiest_tracks_are_encoded():
    one, two = [(0, 1, 60, 64)], [(0, 1, 60, 64), (1, 1, 60, 64)]
    tracks = (
        Track.of(one),
        Track.of(two, program=48),
        Track.of(two, is_drum=True),
        Track.of(one, is_drum=True),
        Track.of(two, program=32),
        Track.of(two, program=39),
    )
    assert track_roles(tracks) == [-1, HARMONY, DRUMS, DRUMS, BASS, -1]
    sequence = COMPACT.encode(Score(12, tracks))
    assert sequence.dropped == 3
    assert [track.program for track in sequence.tracks] == [32, 0, 48]
    chosen = COMPACT.encode(Score(12, tracks[:2]), roles=[BASS, -1])
    assert chosen.ids.tolist() == ids_of("BOS On_0_60 Shift_0_1 Off_0_60 EOS")


def test_a_note_off_ends_the_first_note_of_its_pitch():
    text = "BOS On_2_60 Shift_0_2 On_2_60 Off_2_61 Shift_0_5 Off_2_60 Shift_1_0 Off_2_60 On_0_9"
    notes = COMPACT.decode(ids_of(text)).tracks[HARMONY].notes
    assert notes[:, :2].tolist() == [[0, 5], [2, 10]]


def test_of_a_pitch_struck_by_two_tracks_the_shorter_note_comes_first():
    both = "BOS On_2_60 On_0_60 Shift_0_5"
    state = COMPACT.grammar().resume(ids_of(both))
    assert state.allowed[ids_of("Off_2_60")].all()
    assert not state.allowed[ids_of("Off_0_60")].any()
    state = state.resume(ids_of("Off_2_60"))
    assert not state.allowed[ids_of("Off_0_60")].any()
    assert state.resume(ids_of("Shift_0_6")).allowed[ids_of("Off_0_60")].all()
    compatible = COMPATIBLE.grammar().resume(ids_of(both + " Off_2_60 Shift_0_5"))
    assert compatible.allowed[ids_of("Off_0_60")].all()


def test_a_note_after_the_limit_is_rejected_and_an_endless_one_cut():
    with pytest.raises(MidiError, match="remove the silence"):
        COMPACT.encode(Score(1, (Track.of([(65_536, 1, 60, 64)]),)))
    sequence = COMPACT.encode(Score(1, (Track.of([(3, 1 << 40, 60, 64)]),)))
    assert sequence.clipped == 1
    assert COMPACT.decode(sequence.ids).end_ticks == 36 + 768


def test_a_rejected_token_is_named():
    with pytest.raises(ValueError, match="EOS is not allowed at tick 0, after NoteOn_0_7"):
        COMPACT.grammar().resume(ids_of("BOS On_0_7 EOS"))
    with pytest.raises(ValueError, match="id 795 is not allowed at tick 0, after nothing"):
        COMPACT.grammar().advance(795)


def test_the_config_builds_and_is_saved(tmp_path):
    COMPATIBLE.save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text("utf-8")
    assert '"kind": "spe_groove"' in text
    assert '"mode": "compatible"' in text
    assert COMPACT.grammar().hold([(1, 60, 12)]) == COMPACT.grammar()
    assert COMPACT.vocabulary is SPE_GROOVE_VOCABULARY


def test_simultaneous_notes_are_limited():
    """Otherwise, if a model never ended notes, each step would be slower than the last."""
    state = COMPACT.grammar().advance(BOS)
    for _ in range(MAX_SOUNDING):
        state = state.advance(0)
        state = state.advance(SHIFT + int(state.allowed[SHIFT:EOS].argmax()))
    assert len(state.sounding) == MAX_SOUNDING
    assert not state.allowed[:NOTE_OFF].any()
    assert state.allowed[NOTE_OFF]
    crowd = Track.of([(0, 480, at % 128, 80) for at in range(MAX_SOUNDING + 1)])
    with pytest.raises(MidiError, match="513 notes sound at once"):
        COMPACT.encode(Score(480, (crowd,)))
