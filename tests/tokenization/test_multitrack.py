from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import TRACK_KINDS, any_track_ids, canonical_ids, scores
from tokenization.errors import MidiError
from tokenization.multitrack import MultitrackRemi, track_ranks
from tokenization.score import Note, Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import load_tokenizer
from tokenization.vocabulary import (
    BAR,
    BOS,
    DRUM_PITCH,
    DRUMS,
    DURATIONS,
    EOS,
    MULTITRACK_VOCABULARY,
    PAD,
    PROGRAM,
    PROGRAM_ORDER,
)

REMI = MultitrackRemi()
NAMES = MULTITRACK_VOCABULARY.ids
SCORES = scores(programs=(0, 0, 0, 33, 48, 65))
IDS = canonical_ids(remi=REMI, first_of_kinds=TRACK_KINDS)


def ids_of(text: str) -> list[int]:
    return [NAMES[name] for name in text.split()]


def named(ids: np.ndarray) -> str:
    return " ".join(MULTITRACK_VOCABULARY.names[token] for token in ids)


def accepts(ids: list[int]) -> bool:
    try:
        REMI.grammar().resume(ids)
    except ValueError:
        return False
    return True


def is_canonical(ids: list[int]) -> bool:
    return np.array_equal(REMI.encode(REMI.decode(ids)).ids, ids)


def notes_by_place(score: Score) -> dict[int, list[Note]]:
    """Notes of each rank that has any."""
    found: dict[int, list[Note]] = {}
    for rank, track in zip(track_ranks(score.tracks), score.tracks, strict=True):
        if len(track):
            found.setdefault(rank, []).extend(Note(*row) for row in track.notes.tolist())
    return {rank: sorted(notes) for rank, notes in found.items()}


def slow_notes(score: Score) -> tuple[dict[int, list[Note]], int, int]:
    """What the grid makes of each track's notes; how many are merged, and clipped."""
    quantized: dict[int, list[Note]] = {}
    merged = clipped = 0
    for rank, notes in notes_by_place(score).items():
        best: dict[tuple[int, int], tuple[int, int]] = {}
        for onset, length, pitch, velocity in notes:
            begin, end = (
                (24 * tick + score.ticks_per_beat) // (2 * score.ticks_per_beat)
                for tick in (onset, onset + length)
            )
            merged += (pitch, begin) in best
            candidate = (1 if rank == 0 else max(1, end - begin), velocity // 4)
            best[pitch, begin] = max(best.get((pitch, begin), (0, 0)), candidate)
        quantized[rank] = []
        for (pitch, begin), (length, velocity) in best.items():
            room = min([10**9, *(o - begin for p, o in best if p == pitch and o > begin)])
            clipped += min(length, room) > 768
            fitting = [steps for steps in DURATIONS.tolist() if steps <= room]
            length = min(fitting, key=lambda steps: (abs(steps - min(length, room)), -steps))
            quantized[rank].append(Note(begin, length, pitch, velocity * 4 + 2))
        quantized[rank].sort()
    return quantized, merged, clipped


# ---- laws


@given(score=SCORES)
def test_decoding_gives_the_quantized_score(score):
    sequence = REMI.encode(score)
    decoded = REMI.decode(sequence.ids)
    notes, merged, clipped = slow_notes(score)
    assert notes_by_place(decoded) == notes
    assert (sequence.dropped, sequence.merged, sequence.clipped) == (0, merged, clipped)


@given(score=SCORES)
def test_encoding_what_was_decoded_gives_the_same_ids(score):
    sequence = REMI.encode(score)
    for decoded in (
        REMI.decode(sequence.ids),
        REMI.decode(sequence.ids, sequence.signatures, sequence.tracks),
    ):
        again = REMI.encode(decoded)
        np.testing.assert_array_equal(again.ids, sequence.ids)
        assert again.merged == again.clipped == again.tempos_clipped == 0


@given(ids=IDS)
def test_canonical_ids_are_accepted_and_encoded_again(ids):
    np.testing.assert_array_equal(REMI.encode(REMI.decode(ids)).ids, ids)


@given(score=SCORES)
def test_what_is_encoded_is_accepted(score):
    state = REMI.grammar().resume(REMI.encode(score).ids)
    assert np.flatnonzero(state.allowed).tolist() == [PAD]


@given(ids=IDS, data=st.data())
def test_a_changed_sequence_is_accepted_if_and_only_if_it_is_canonical(ids, data):
    place = data.draw(st.integers(1, len(ids) - 2))
    length = data.draw(st.integers(0, 4))
    near = st.integers(max(0, ids[place] - 3), min(811, ids[place] + 3))
    new = data.draw(st.lists(near | st.integers(0, 811), max_size=4))
    changed = [*ids[:place], *new, *ids[place + length : -1], EOS]
    assert accepts(changed) == is_canonical(changed)


@given(ids=any_track_ids())
def test_any_ids_are_decoded(ids):
    score = REMI.decode(ids)
    sequence = REMI.encode(score)
    assert accepts(sequence.ids.tolist())
    assert sequence.merged == 0
    whole = [BOS, *ids, EOS]
    assert accepts(whole) == is_canonical(whole)


@given(
    ids=IDS,
    tempo=st.sampled_from(["free", "bar_line", "never"]),
    time_signature=st.booleans(),
    end=st.booleans(),
    tracks=st.none() | st.lists(st.sampled_from([0, 4, 5, 36, 512]), min_size=1).map(frozenset),
)
def test_rules_only_forbid_and_never_leave_nothing(ids, tempo, time_signature, end, tracks):
    free = REMI.grammar()
    rules = REMI.grammar(tempo=tempo, time_signature=time_signature, end=end).rules
    rules = rules._replace(tracks=tracks)
    for token in ids.tolist():
        ruled = free._replace(rules=rules)
        assert not (ruled.allowed & ~free.allowed).any()
        in_a_track_of_its_own = tracks is not None and free.track not in {-1, *tracks}
        assert ruled.allowed.any() or in_a_track_of_its_own
        free = free.advance(token)


@given(ids=IDS, data=st.data())
def test_a_crop_is_canonical_and_has_the_same_notes(ids, data):
    num_bars = int(np.count_nonzero(ids == BAR))
    first = data.draw(st.integers(0, num_bars - 1))
    crop = REMI.crop(ids, first)
    assert accepts(crop.tolist())
    whole, part = REMI.decode(ids), REMI.decode(crop)
    begin = whole.end_ticks - part.end_ticks
    later = {
        rank: [Note(n[0] - begin, *n[1:]) for n in notes if n[0] >= begin]
        for rank, notes in notes_by_place(whole).items()
    }
    assert notes_by_place(part) == {rank: notes for rank, notes in later.items() if notes}


@given(ids=IDS, semitones=st.integers(-12, 12))
def test_transposing_moves_every_pitch_but_drums(ids, semitones):
    moved = REMI.transpose(ids, semitones)
    before = notes_by_place(REMI.decode(ids))
    leaves = any(
        not 0 <= note.pitch + semitones < 128
        for rank, notes in before.items()
        for note in notes
        if rank
    )
    assert (moved is None) == leaves
    if moved is not None:
        expected = {
            rank: [n if rank == 0 else n._replace(pitch=n.pitch + semitones) for n in notes]
            for rank, notes in before.items()
        }
        assert notes_by_place(REMI.decode(moved)) == expected


# ---- one after the other


def groove() -> Score:
    return Score(
        480,
        (
            replace(Track.of([(0, 480, 60, 80), (0, 480, 64, 80)], program=0), name="Keys"),
            replace(Track.of([(0, 240, 67, 60)], program=0), name="Keys 2", channel=5, chunk=3),
            replace(Track.of([(480, 960, 36, 100)], program=33), name="Bass", channel=2),
            replace(
                Track.of([(0, 60, 36, 100), (240, 60, 42, 90)], program=8, is_drum=True),
                name="Drums",
                channel=9,
            ),
        ),
        (Tempo(0, 100.0),),
        (TimeSignature(0, 4, 4),),
        1920,
    )


def test_one_bar():
    assert named(REMI.encode(groove()).ids) == (
        "BOS Bar TimeSignature_48 Position_0 Tempo_100 Program_Drums Drum_36 Velocity_25 "
        "Program_0 Pitch_60 Velocity_20 Duration_12 Pitch_64 Velocity_20 Duration_12 "
        "Program_0 Part_1 Pitch_67 Velocity_15 Duration_6 "
        "Position_6 Program_Drums Drum_42 Velocity_22 "
        "Position_12 Program_33 Pitch_36 Velocity_25 Duration_24 EOS"
    )


def test_names_programs_and_channels_are_restored():
    sequence = REMI.encode(groove())
    decoded = REMI.decode(sequence.ids, sequence.signatures, sequence.tracks)

    def labels(score: Score) -> set[tuple[object, ...]]:
        return {(t.name, t.program, t.channel, t.is_drum, t.chunk) for t in score.tracks}

    assert labels(decoded) == labels(groove())
    assert [track.name for track in decoded.tracks] == ["Drums", "Bass", "Keys", "Keys 2"]


def test_a_second_part_alone_keeps_its_number():
    ids = ids_of("BOS Bar TimeSignature_48 Position_0 Tempo_100 Program_0 Part_2 Pitch_60")
    ids += ids_of("Velocity_20 Duration_12 EOS")
    assert [len(track) for track in REMI.decode(ids).tracks] == [0, 0, 1]
    assert is_canonical(ids)


def test_tracks_beyond_the_fourth_of_a_program_are_one():
    tracks = tuple(Track.of([(0, 12, 60 + i, 64)], program=5) for i in range(6))
    decoded = REMI.decode(REMI.encode(Score(12, tracks)).ids)
    assert [track.notes[:, 2].tolist() for track in decoded.tracks] == [
        [60],
        [61],
        [62],
        [63, 64, 65],
    ]


def test_programs_are_replaced_or_dropped():
    ids = REMI.encode(groove()).ids
    without = REMI.decode(REMI.replace_program(ids, DRUMS, None))
    assert [track.program for track in without.tracks] == [33, 0, 0]
    assert without.end_ticks == REMI.decode(ids).end_ticks
    strings = REMI.decode(REMI.replace_program(ids, 0, 48))
    assert [track.program for track in strings.tracks] == [0, 33, 48, 48]


def test_the_only_tracks_that_may_play():
    state = REMI.grammar(tracks=[Track.of([], program=33), Track.of([], is_drum=True)])
    state = state.resume(ids_of("BOS Bar TimeSignature_48 Position_0 Tempo_100"))
    allowed = np.flatnonzero(state.allowed)
    assert set(allowed[allowed >= PROGRAM]) == set(ids_of("Program_Drums Program_33"))


def test_a_hostile_gap_is_refused():
    with pytest.raises(MidiError, match="quarter note"):
        REMI.encode(Score(1, (Track.of([(10**9, 1, 60, 60)]),)))


def test_the_vocabulary_of_released_weights(tmp_path):
    assert MULTITRACK_VOCABULARY.hash == (
        "38f3fa4ee814abef661bcd81b809c8bd70dd1a2f0d3ed409b1a0c2a286126d06"
    )
    assert sorted(PROGRAM_ORDER) == list(range(129))
    assert MULTITRACK_VOCABULARY.names[DRUM_PITCH + 36] == "Drum_36"
    REMI.save(tmp_path)
    assert isinstance(load_tokenizer(tmp_path), MultitrackRemi)
