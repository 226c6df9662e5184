from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import example, given

from tests.support.notation import scores, strikes
from tests.support.paths import ROOT
from tokenization.grid import STEPS_PER_BEAT
from tokenization.midi import read_midi
from tokenization.midi.musicxml import TICKS, as_midi
from tokenization.notation.staves import Notation
from tokenization.score import Score, Tempo, Track

pytest.importorskip("music21")
from tokenization.notation.musicxml import as_musicxml

LOWEST_PITCH = 12
"""C0, the lowest pitch of MusicXML's octaves."""


def read(data: bytes) -> Score:
    return read_midi(as_midi(data, "piece.musicxml"))


def notes(score: Score) -> list[tuple[int, int, int]]:
    """Onset and end in grid steps, and pitch."""
    step = TICKS // STEPS_PER_BEAT
    found: list[tuple[int, int, int]] = []
    for track in score.tracks:
        for onset, length, pitch, _ in track.notes.tolist():
            assert onset % step == length % step == 0
            found.append((onset // step, (onset + length) // step, pitch))
    return sorted(found)


@given(scores())
@example(Score(STEPS_PER_BEAT, (Track.of([(0, 6, 0, 80), (0, 6, 1, 80)]),)))  # B# and C#
def test_what_is_read_again_is_what_was_written(score: Score) -> None:
    """Pitches below 12, whose octave MusicXML cannot name, come back an octave higher."""
    written = {
        (onset, end, pitch + 12 * (pitch < LOWEST_PITCH))
        for onset, end, pitch in strikes(Notation.of(score))
    }
    assert set(notes(read(as_musicxml(score, "Piece")))) == written


@pytest.mark.parametrize("name", ["ballad", "waltz.continued", "waltz"])
def test_examples_keep_all_notes_bars_and_tempo(name: str) -> None:
    score = read_midi((ROOT / "examples" / f"{name}.mid").read_bytes())
    found = read(as_musicxml(score, name))
    step = score.ticks_per_beat // STEPS_PER_BEAT
    onsets = [(on // step, pitch) for t in score.tracks for on, _, pitch, _ in t.notes.tolist()]
    assert sorted(onsets) == sorted((onset, pitch) for onset, _, pitch in notes(found))
    assert [metre[1:] for metre in found.time_signatures] == [
        metre[1:] for metre in score.time_signatures
    ]
    assert [round(tempo.bpm) for tempo in found.tempos] == [round(score.tempos[0].bpm)]


@pytest.mark.parametrize("name", ["ballad.continued", "pop.continued"])
def test_beats_with_triplets_and_sixteenths_move_notes_by_at_most_a_step(name: str) -> None:
    """The new bars of these examples have such beats, which are written with one division."""
    score = read_midi((ROOT / "examples" / f"{name}.mid").read_bytes())
    step = score.ticks_per_beat // STEPS_PER_BEAT
    exact = sorted(
        (pitch, on // step) for t in score.tracks for on, _, pitch, _ in t.notes.tolist()
    )
    found = sorted((pitch, onset) for onset, _, pitch in notes(read(as_musicxml(score, name))))
    assert [pitch for pitch, _ in found] == [pitch for pitch, _ in exact]
    moved = [abs(here - there) for (_, here), (_, there) in zip(found, exact, strict=True)]
    assert max(moved) == 1
    assert sum(moved) < len(moved) / 10


def scale(*pitches: int) -> Score:
    rows = [(12 * place, 12, pitch, 80) for place, pitch in enumerate(pitches)]
    return Score(STEPS_PER_BEAT, (Track.of(rows),))


def written(score: Score) -> ElementTree.Element:
    return ElementTree.fromstring(as_musicxml(score, "Piece"))


@pytest.mark.parametrize(
    ("tonic", "fifths"), [(60, "0"), (62, "2"), (63, "-3"), (65, "-1"), (66, "6"), (68, "-4")]
)
def test_the_key_signature_is_that_of_the_key(tonic: int, fifths: str) -> None:
    major = [tonic + above for above in (0, 4, 7, 12, 11, 9, 7, 5, 4, 2, 0, 0)]
    root = written(scale(*major))
    assert root.findtext("part/measure/attributes/key/fifths") == fifths
    assert root.findall(".//accidental") == []  # all notes are in the key


def test_two_staves_of_one_part_with_clefs_and_a_title() -> None:
    root = written(scale(48, 72))
    assert root.findtext("part/measure/attributes/staves") == "2"
    assert [sign.text for sign in root.iterfind(".//clef/sign")] == ["G", "F"]
    assert root.findtext(".//movement-title") == "Piece"
    assert len(root.findall("part")) == 1


def test_the_same_score_gives_the_same_file_without_names_of_music21s_own() -> None:
    one, other = as_musicxml(scale(60, 64), ""), as_musicxml(scale(60, 64), "")
    assert one == other
    assert b"creator" not in one
    assert b"title" not in one


def test_small_changes_of_tempo_are_left_out() -> None:
    tempos = (Tempo(0, 100), Tempo(48, 101), Tempo(96, 140))
    score = Score(STEPS_PER_BEAT, scale(*range(60, 72)).tracks, tempos)
    marks = [mark.text for mark in written(score).iterfind(".//per-minute")]
    assert marks == ["100", "140"]
