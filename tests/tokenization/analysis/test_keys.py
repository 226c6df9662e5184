from __future__ import annotations

import pytest

from app.compose.options import MusicOptions
from tokenization.analysis.keys import SCALES, pitch_classes


@pytest.mark.parametrize(
    ("key", "notes"),
    [
        ("C", {0, 2, 4, 5, 7, 9, 11}),
        ("F#m", {6, 8, 9, 11, 1, 2, 4}),
        ("Bb", {10, 0, 2, 3, 5, 7, 9}),
        ("D dorian", {2, 4, 5, 7, 9, 11, 0}),
        ("A minor pentatonic", {9, 0, 2, 4, 7}),
        ("E harmonic minor", {4, 6, 7, 9, 11, 0, 3}),
    ],
)
def test_a_key_has_its_notes(key: str, notes: set[int]) -> None:
    assert pitch_classes(key) == notes


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("a minor", "Am"),
        (" A  MINOR ", "Amin"),
        ("Am pentatonic", "A minor pentatonic"),
        ("CM", "C"),
        ("C major", "Cmaj"),
        ("E-flat minor", "E♭m"),
        ("D# minor", "Ebm"),
        ("b", "B major"),
        ("bb", "B flat"),
        ("C sharp", "C#"),
        ("A minor", "C"),
        ("Cb", "B"),
        ("C Maj", "C"),
        ("A Min", "Am"),
        ("F Sharp minor", "F#m"),
        ("Bflat MAJOR", "Bb"),
        ("e-Flat MIN", "Ebm"),
        ("A aeolian", "Am"),
        ("C Ionian", "C"),
        ("A natural minor", "Am"),
        ("A Min Pentatonic", "A minor pentatonic"),
    ],
)
def test_a_key_may_be_written_in_other_ways(key: str, same: str) -> None:
    assert pitch_classes(key) == pitch_classes(same)


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_moves_with_its_note(scale: str) -> None:
    of_c = pitch_classes(f"C {scale}")
    assert 0 in of_c
    for note, up in (("C#", 1), ("Db", 1), ("G", 7), ("A#", 10), ("Bb", 10)):
        assert pitch_classes(f"{note} {scale}") == {(pitch + up) % 12 for pitch in of_c}


@pytest.mark.parametrize("key", ["", "H", "C foo", "1", "Cmaj7", "C##", "dorian", "C" * 1000])
def test_an_invalid_key_is_reported_in_one_sentence_with_the_valid_ones(key: str) -> None:
    with pytest.raises(ValueError, match=r"^key is '.*expected a note from A to G") as caught:
        MusicOptions(key=key)
    assert all(scale in str(caught.value) for scale in SCALES)
    assert len(str(caught.value)) < 400
