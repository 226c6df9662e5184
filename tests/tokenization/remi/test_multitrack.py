"""Examples with several tracks; properties are in `test_remi.py` and `test_grammar.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenization.presets import load_tokenizer
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.vocabulary import DRUMS, VOCABULARY
from tokenization.score import Score, Tempo, TimeSignature, Track

REMI = MultitrackRemi()
NAMES = VOCABULARY.ids


def ids_of(text: str) -> list[int]:
    return [NAMES[name] for name in text.split()]


def named(ids: np.ndarray) -> str:
    return " ".join(VOCABULARY.names[token] for token in ids)


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
        "BOS Bar TimeSignature_48 Tempo_100.9 Last "
        "Position_0 Program_Drums Drum_36 DrumVelocity_25 "
        "Program_0 Pitch_60 Velocity_20 Duration_12 Pitch_64 Velocity_20 Duration_12 "
        "Program_0 Part_1 Pitch_67 Velocity_15 Duration_6 "
        "Position_6 Program_Drums Drum_42 DrumVelocity_22 "
        "Position_12 Program_33 Pitch_36 Velocity_25 Duration_24 EOS"
    )


def test_names_programs_and_channels_are_restored():
    sequence = REMI.encode(groove())
    decoded = REMI.decode(sequence.ids, sequence.signatures, sequence.tracks)

    def labels(score: Score) -> set[tuple[object, ...]]:
        return {(t.name, t.program, t.channel, t.is_drum, t.chunk) for t in score.tracks}

    assert labels(decoded) == labels(groove())
    assert [track.name for track in decoded.tracks] == ["Drums", "Bass", "Keys", "Keys 2"]


def test_tracks_beyond_the_fourth_of_a_program_are_merged():
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


def test_ranks_are_places_among_the_runs():
    tracks = [
        *(Track.of([], program=p) for p in (0, 33, 0, 127, 32)),
        *(Track.of([], program=8, is_drum=True),) * 2,
    ]
    assert REMI.track_ranks(tracks) == [36, 8, 37, 512, 4, 0, 0]


def test_misplaced_tokens_are_ignored():
    ids = ids_of(
        "Velocity_9 Duration_3 Bar Position_0 Pitch_60 Velocity_9 Duration_3 "
        "Drum_36 DrumVelocity_9 Program_Drums Part_1 Drum_40 DrumVelocity_9 "
        "Pitch_61 Velocity_9 Duration_3 "
        "Program_0 Pitch_62 Part_1 Pitch_63 Velocity_9 Duration_3 Pitch_64 Velocity_9 Drum_41"
    )
    rows = {
        (track.is_drum, track.program): track.notes[:, 2].tolist()
        for track in REMI.decode(ids).tracks
    }
    assert rows == {(True, 0): [36, 40], (False, 0): [60, 63]}


def test_a_tokenizer_is_loaded_again(tmp_path):
    REMI.save(tmp_path)
    assert isinstance(load_tokenizer(tmp_path), MultitrackRemi)
