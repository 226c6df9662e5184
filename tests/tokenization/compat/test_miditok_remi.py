"""Expected values come from the installed MidiTok."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import miditok
import numpy as np
import pytest
import symusic
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import strategies
from tests.support.midi_files import END, meta, midi_file, quantity
from tokenization.compat.miditok_remi import MIDITOK_VOCABULARY, MidiTokRemi
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Tempo, TimeSignature, Track

REMI = MidiTokRemi()
NAMES = MIDITOK_VOCABULARY.ids
METRES = (
    *((4, 4), (3, 4), (2, 4), (1, 4), (5, 4), (7, 4), (3, 8), (6, 8), (7, 8), (12, 8)),
    *((2, 2), (8, 4), (4, 8), (5, 16)),
)
"""Metres inside and outside the vocabulary."""
CORPORA = os.environ.get("RELPE_CORPORA", "")
"""Folder that contains pop909.zip and groove.zip at any depth."""


def theirs() -> miditok.REMI:
    """The configuration that the docstring of `MidiTokRemi` states."""
    every_program = list(range(-1, 128))
    return miditok.REMI(
        miditok.TokenizerConfig(
            pitch_range=(21, 109),
            use_pitchdrum_tokens=True,
            drums_pitch_range=(27, 88),
            use_velocities=True,
            num_velocities=32,
            remove_duplicated_notes=False,
            beat_res={(0, 4): 12, (4, 16): 4, (16, 64): 1},
            use_note_duration_programs=every_program,
            use_pitch_intervals=False,
            special_tokens=["PAD", "BOS", "EOS", "MASK"],
            encode_ids_split="bar",
            use_programs=True,
            programs=every_program,
            one_token_stream_for_programs=True,
            program_changes=False,
            use_tempos=True,
            num_tempos=211,
            tempo_range=(30, 240),
            log_tempos=False,
            delete_equal_successive_tempo_changes=False,
            use_time_signatures=True,
            delete_equal_successive_time_sig_changes=False,
            time_signature_range={4: [1, 2, 3, 4, 5, 6, 7], 8: [3, 5, 6, 7, 9, 12]},
            use_chords=False,
            use_rests=False,
            use_key_signatures=False,
            use_sustain_pedals=False,
            sustain_pedal_duration=False,
            use_pitch_bends=False,
            use_control_changes=False,
            ac_polyphony_track=False,
            ac_polyphony_bar=False,
            ac_pitch_class_bar=False,
            ac_note_density_track=False,
            ac_note_density_bar=False,
            ac_note_duration_bar=False,
            ac_note_duration_track=False,
            ac_repetition_track=False,
            max_bar_embedding=None,
            use_bar_end_tokens=False,
            add_trailing_bars=False,
        )
    )


THEIRS = theirs()


def their_ids(source: bytes | symusic.core.ScoreTick) -> list[int]:
    score = symusic.Score.from_midi(source) if isinstance(source, bytes) else source
    sequence = THEIRS.encode(score)
    assert isinstance(sequence, miditok.TokSequence)
    return np.array(sequence.ids).tolist()


def our_ids(data: bytes) -> list[int]:
    return REMI.encode(read_midi(data)).ids.tolist()


def named(ids: Iterable[int]) -> str:
    return " ".join(MIDITOK_VOCABULARY.names[token] for token in ids)


def ids_of(text: str) -> list[int]:
    return [NAMES[name] for name in text.split()]


@st.composite
def scores(draw: st.DrawFn) -> Score:
    """Scores with notes and metres inside and outside the vocabulary, one per tick."""
    score = draw(strategies.scores(programs=(0, 0, 0, 33, 65)))
    assume(score.num_notes)
    ticks = st.integers(0, 40 * score.ticks_per_beat)
    changes = draw(st.dictionaries(ticks, st.sampled_from(METRES), max_size=5))
    signatures = tuple(TimeSignature(tick, *metre) for tick, metre in changes.items())
    return replace(score, time_signatures=signatures)


def any_ids() -> st.SearchStrategy[list[int]]:
    """Sequences of ids, some in a plausible order."""
    firsts = (
        *("Bar_None", "Pitch_21", "Velocity_3", "Duration_0.1.12", "Position_0", "PitchDrum_27"),
        *("Tempo_30.0", "Program_0", "Program_-1", "TimeSig_1/4", "TimeSig_6/8"),
    )
    token = st.sampled_from([NAMES[name] for name in firsts])
    token |= st.integers(0, len(MIDITOK_VOCABULARY) - 1)
    note = st.tuples(
        st.integers(NAMES["Pitch_60"], NAMES["Pitch_62"]) | st.just(NAMES["PitchDrum_36"]),
        st.integers(NAMES["Velocity_3"], NAMES["Velocity_127"]),
        st.integers(NAMES["Duration_0.1.12"], NAMES["Duration_64.0.1"]),
    )
    position = st.tuples(st.integers(NAMES["Position_0"], NAMES["Position_11"]))
    metre = st.tuples(
        st.just(NAMES["Bar_None"]), st.integers(NAMES["TimeSig_1/4"], NAMES["TimeSig_12/8"])
    )
    rows = st.lists(st.tuples(token) | note | position | metre, min_size=1, max_size=40)
    return rows.map(lambda pieces: [token for piece in pieces for token in piece])


def ours_decoded(score: Score) -> tuple[object, ...]:
    """Notes of each track, tempos and metres by tick."""
    return (
        [(t.is_drum, t.program, sorted(map(tuple, t.notes.tolist()))) for t in score.tracks],
        {0: 120.0} | {tempo.tick: tempo.bpm for tempo in score.tempos},
        {change.tick: change[1:] for change in score.time_signatures},
    )


def theirs_decoded(ids: list[int]) -> tuple[object, ...]:
    """The same for MidiTok's score, with only the last of several changes at one tick."""
    score = THEIRS.decode(np.array(ids))
    return (
        [
            (
                t.is_drum,
                t.program,
                sorted((n.time, n.duration, n.pitch, n.velocity) for n in t.notes),
            )
            for t in score.tracks
        ],
        {tempo.time: round(tempo.tempo, 2) for tempo in score.tempos},
        {change.time: (change.numerator, change.denominator) for change in score.time_signatures},
    )


# ---- identity


def test_the_vocabulary_matches_miditok():
    assert THEIRS.vocab == dict(NAMES)
    assert REMI.vocabulary.hash == (
        "c917f4edd52602108990a0521b4b6e7d06dd1cdb1dee70b110bd2b3b60c8a9ae"
    )


@given(score=scores())
def test_ids_match_miditok(score):
    tempos = tuple(tempo for tempo in score.tempos if 3.6 <= tempo.bpm <= 60e6)
    metres = tuple(metre for metre in score.time_signatures if metre.numerator > 0)
    data = write_midi(replace(score, tempos=tempos, time_signatures=metres))
    assert our_ids(data) == their_ids(data)


@given(ids=any_ids())
def test_decoding_any_ids_matches_miditok(ids):
    assert ours_decoded(REMI.decode(ids)) == theirs_decoded(ids)


@given(score=scores())
def test_decoding_encoded_ids_matches_miditok(score):
    ids = REMI.encode(score).ids
    assert ours_decoded(REMI.decode(ids)) == theirs_decoded(ids.tolist())


def beats(*rows: tuple[float, float, int], velocity: int = 80) -> list[tuple[int, int, int, int]]:
    """Notes in quarters at 480 ticks: onset, length, pitch."""
    return [(round(480 * on), round(480 * length), pitch, velocity) for on, length, pitch in rows]


MELODY = beats(*((at / 2, 0.45, 60 + at % 12) for at in range(48)))
FILES = {
    "metre changes": Score(
        480,
        (Track.of(MELODY),),
        time_signatures=(
            TimeSignature(0, 3, 4),
            TimeSignature(1440, 4, 4),
            TimeSignature(5280, 5, 4),
        ),
    ),
    "eighths alone": Score(480, (Track.of(MELODY),), time_signatures=(TimeSignature(0, 6, 8),)),
    "quarters and eighths": Score(
        480,
        (Track.of(beats(*((at / 7, 0.3, 60) for at in range(120)))),),
        time_signatures=(
            TimeSignature(0, 4, 4),
            TimeSignature(3840, 12, 8),
            TimeSignature(6720, 3, 4),
        ),
    ),
    "halves are not known": Score(
        480,
        (Track.of(MELODY),),
        time_signatures=(
            TimeSignature(0, 3, 4),
            TimeSignature(1440, 2, 2),
            TimeSignature(7200, 6, 4),
        ),
    ),
    "eighths that never begin": Score(
        480,
        (Track.of(beats(*((at / 24, 0.1, 60) for at in range(96)))),),
        time_signatures=(
            TimeSignature(0, 4, 4),
            TimeSignature(100, 6, 8),
            TimeSignature(200, 4, 4),
        ),
    ),
    "metres within bars": Score(
        480,
        (Track.of(MELODY),),
        time_signatures=(
            TimeSignature(100, 3, 4),
            TimeSignature(2000, 6, 8),
            TimeSignature(2100, 2, 4),
        ),
    ),
    "a metre after the last note": Score(
        480,
        (Track.of(MELODY[:4]),),
        time_signatures=(TimeSignature(0, 4, 4), TimeSignature(9600, 3, 4)),
    ),
    "tempos": Score(
        480,
        (Track.of(MELODY),),
        (Tempo(0, 10), Tempo(500, 500), Tempo(510, 89.6), Tempo(1000, 120), Tempo(30_000, 99.5)),
    ),
    "the first tempo late": Score(480, (Track.of(MELODY),), (Tempo(960, 90.0),)),
    "drums and others": Score(
        480,
        (
            Track.of(MELODY, program=33),
            Track.of(beats((0, 0.1, 36), (0, 0.1, 26), (1, 0.1, 88), (1, 0.1, 89)), is_drum=True),
            Track.of(MELODY[::2], program=0),
        ),
    ),
    "tracks of one program": Score(
        480,
        (
            Track.of(MELODY, program=4),
            Track.of(beats((0.01, 2, 50), (3, 1, 70)), program=8),
            Track.of(beats((0.02, 1, 50), (0, 3, 70), (0.001, 0.5, 90)), program=4),
        ),
    ),
    "duplicates": Score(
        480, (Track.of(beats((0, 1, 60), (0, 1, 60), (0, 2, 60)) + beats((0, 1, 60), velocity=1)),)
    ),
    "out of range": Score(480, (Track.of(beats(*((p / 4, 0.2, p) for p in range(128)))),)),
    "very long": Score(
        480, (Track.of(beats((0, 64, 60), (1, 64.6, 61), (2, 500, 62), (3, 17.5, 63))),)
    ),
    "every velocity": Score(480, (Track.of([(60 * v, 60, 60, v) for v in range(1, 128)]),)),
    "every length": Score(
        480, (Track.of([(960 * n, 20 * n, 21 + n % 80, 90) for n in range(1, 400)], 7),)
    ),
    "pickup": Score(
        480, (Track.of(MELODY),), time_signatures=(TimeSignature(0, 1, 4), TimeSignature(480, 4, 4))
    ),
    "12 ticks a quarter": Score(
        12, (Track.of([(0, 1, 60, 1), (7, 0, 61, 2)]), Track.of([(7, 0, 61, 1)]))
    ),
    "24 ticks a quarter": Score(
        24, (Track.of([(1, 0, 60, 64), (7, 3, 61, 64)]),), time_signatures=(TimeSignature(0, 3, 8),)
    ),
    "a quarter is 1 tick": Score(1, (Track.of([(0, 1, 60, 1), (7, 3, 61, 2)]),)),
    "silence": Score(
        96, (Track.of([(96 * 1000, 96, 60, 64)]),), time_signatures=(TimeSignature(0, 3, 8),)
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_ids_of_files_match_miditok(name):
    data = write_midi(FILES[name])
    assert our_ids(data) == their_ids(data)


def test_a_score_without_notes():
    ids = REMI.encode(Score(480)).ids.tolist()
    assert ids == their_ids(symusic.core.ScoreTick(480))
    assert named(ids) == "Bar_None TimeSig_4/4 Position_0 Tempo_120.0"


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "num_files"), [("pop909", 1728), ("groove", 5671)])
def test_ids_of_a_corpus_match_miditok(corpus, num_files):
    paths = sorted(Path(CORPORA).rglob(f"{corpus}.zip")) if CORPORA else []
    if not paths:
        pytest.skip(
            f"the variable RELPE_CORPORA is not the path of a folder that contains {corpus}.zip"
        )
    with zipfile.ZipFile(paths[0]) as archive:
        names = [name for name in archive.namelist() if name.endswith(".mid")]
        files = {name: archive.read(name) for name in names}
    other = [name for name, data in files.items() if our_ids(data) != their_ids(data)]
    assert len(files) == num_files
    assert other == []


# ---- differences


def chord(*pitches: int) -> bytes:
    """Note-ons at one tick in the given order, all of the same length."""
    ons = b"".join(b"\x00" + bytes([0x90, pitch, 80]) for pitch in pitches)
    offs = [bytes([0x80, pitch, 0]) for pitch in pitches]
    return ons + quantity(480) + b"\x00".join(offs)


def metre(numerator: int, power: int) -> bytes:
    return meta(0x58, bytes([numerator, power, 24, 8]))


def test_notes_at_one_tick_are_sorted_by_pitch_in_any_file():
    low, high = midi_file(chord(60, 64) + END), midi_file(chord(64, 60) + END)
    assert our_ids(high) == our_ids(low) == their_ids(low)
    assert sorted(their_ids(high)) == sorted(their_ids(low)) != their_ids(high)


def test_of_several_metres_at_one_tick_the_last_applies_even_if_unknown():
    data = midi_file(metre(3, 2) + metre(5, 4) + chord(60) + END)
    assert "TimeSig_4/4" in named(our_ids(data))
    assert "TimeSig_3/4" in named(their_ids(data))


def test_a_track_of_lyrics_does_not_affect_later_tracks():
    lyrics = b"\x00\xc0\x05" + meta(5, b"la") + END
    tracks = [b"\x00\xc1\x09\x00\x91\x3c\x40\x60\x81\x3c\x00" + END]
    tracks += [b"\x00\xc0\x05" + chord(60) + END]
    with_lyrics, without = midi_file(lyrics, *tracks), midi_file(*tracks)
    assert our_ids(with_lyrics) == our_ids(without) == their_ids(without)
    assert sorted(their_ids(with_lyrics)) == sorted(their_ids(without)) != their_ids(with_lyrics)


def test_a_program_applies_to_its_channel_in_every_track():
    data = midi_file(b"\x00\xc0\x05" + END, chord(60) + END)
    assert "Program_5 " in named(our_ids(data))
    assert "Program_0 " in named(their_ids(data))


@pytest.mark.parametrize(
    "score",
    [
        Score(480, (Track.of([(480 * 65_536, 1, 60, 64)]),)),
        Score(480, tempos=(Tempo(480 * 65_536, 120.0),)),
        Score(480, time_signatures=(TimeSignature(480 * 65_536, 3, 4),)),
    ],
)
def test_events_after_the_limit_are_rejected(score):
    with pytest.raises(MidiError, match=r"at quarter note 65,536, expected all before 65,536"):
        REMI.encode(score)


# ---- other functions


def test_one_bar():
    score = Score(
        480,
        (
            Track.of(beats((0, 1, 60), (1.5, 0.5, 64)), 33),
            Track.of(beats((0, 0.25, 36)), is_drum=True),
        ),
        (Tempo(0, 96.0),),
        (TimeSignature(0, 6, 8),),
    )
    sequence = REMI.encode(score)
    assert named(sequence.ids) == (
        "Bar_None TimeSig_6/8 Position_0 Tempo_96.0 "
        "Program_33 Pitch_60 Velocity_79 Duration_2.0.12 "
        "Program_-1 PitchDrum_36 Velocity_79 Duration_0.6.12 "
        "Position_36 Program_33 Pitch_64 Velocity_79 Duration_1.0.12"
    )
    assert sequence.beats.tolist() == [0.0] * 13 + [1.5] * 4


def test_lost_notes_are_counted():
    notes = beats((0, 1, 20), (0, 1, 110), (0, 64, 60), (0, 65, 61))
    score = Score(480, (Track.of(notes),), (Tempo(0, 29.0), Tempo(9, 241.0), Tempo(99, 240.0)))
    sequence = REMI.encode(score)
    assert (sequence.dropped, sequence.clipped, sequence.merged) == (2, 1, 0)
    assert sequence.tempos_clipped == 2


@given(ids=strategies.any_ids())
def test_integers_that_are_not_ids_are_ignored(ids):
    REMI.decode(ids)
    REMI.decode(np.array([*ids, -(2**40), 2**40]))


@given(score=scores(), first=st.integers(0, 20), count=st.integers(1, 9))
def test_a_crop_is_the_same_bars_of_the_score(score, first, count):
    ids = REMI.encode(score).ids
    starts = np.append(np.flatnonzero(ids == NAMES["Bar_None"]), len(ids))
    assume(first < len(starts) - 1)
    stop = starts[min(first + count, len(starts) - 1)]
    crop = REMI.crop(ids, first, count)
    assert crop.dtype == ids.dtype
    assert named(crop).split()[3].startswith("Tempo_")
    whole, part = REMI.decode(ids[:stop]), REMI.decode(crop)
    # the crop begins at the end of the bars before it
    begin = round(24 * float(REMI.encode(score).beats[starts[first] + 1]))
    for track in part.tracks:
        [same] = [
            t for t in whole.tracks if (t.program, t.is_drum) == (track.program, track.is_drum)
        ]
        rows = same.notes[same.notes[:, 0] >= begin] - np.array([begin, 0, 0, 0])
        np.testing.assert_array_equal(rows, track.notes)
    np.testing.assert_array_equal(REMI.crop(ids, 0), ids)


def test_a_crop_keeps_tokens_at_both_ends():
    ids = np.array(
        ids_of("BOS_None Bar_None TimeSig_3/4 Position_0 Tempo_90.0 Bar_None TimeSig_3/4 EOS_None")
    )
    assert REMI.crop(ids, 0).tolist() == ids.tolist()
    assert named(REMI.crop(ids, 0, 1)) == "BOS_None Bar_None TimeSig_3/4 Position_0 Tempo_90.0"
    assert named(REMI.crop(ids, 1)) == "Bar_None TimeSig_3/4 Position_0 Tempo_90.0 EOS_None"
    for first, count in ((2, None), (-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="of the 2 bars of the piece"):
            REMI.crop(ids, first, count)


@given(score=scores(), semitones=st.integers(-12, 12))
def test_transposing_ids_is_transposing_the_score(score, semitones):
    ids = REMI.encode(score).ids
    moved = REMI.transpose(ids, semitones)
    pitches = [p + semitones for t in score.tracks if not t.is_drum for p in t.notes[:, 2].tolist()]
    kept = [p for p in pitches if 21 <= p - semitones <= 109]
    if kept and not 21 <= min(kept) <= max(kept) <= 109:
        assert moved is None
    elif all(21 <= pitch <= 109 for pitch in pitches) and len(kept) == len(pitches):
        tracks = [
            track
            if track.is_drum
            else replace(track, notes=track.notes + np.array([0, 0, semitones, 0]))
            for track in score.tracks
        ]
        np.testing.assert_array_equal(moved, REMI.encode(score.with_tracks(tracks)).ids)


def test_there_is_no_grammar():
    with pytest.raises(NotImplementedError, match="use the tokenizer multitrack_remi"):
        REMI.grammar(tempo="never")


def test_the_config_is_saved(tmp_path):
    REMI.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert content["config"] == {"kind": "miditok_remi"}
    assert content["vocabulary_hash"] == REMI.vocabulary.hash
