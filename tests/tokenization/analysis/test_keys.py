from __future__ import annotations

import pytest

from app.compose.options import MusicOptions
from tokenization.analysis.keys import SCALES, estimate_key, key_at_end, pitch_classes
from tokenization.plan import Key
from tokenization.score import Score, Track


def test_a_key_has_its_notes() -> None:
    for key, notes in (
        ("C", {0, 2, 4, 5, 7, 9, 11}),
        ("F#m", {6, 8, 9, 11, 1, 2, 4}),
        ("Bb", {10, 0, 2, 3, 5, 7, 9}),
        ("D dorian", {2, 4, 5, 7, 9, 11, 0}),
        ("A minor pentatonic", {9, 0, 2, 4, 7}),
        ("E harmonic minor", {4, 6, 7, 9, 11, 0, 3}),
    ):
        assert pitch_classes(key) == notes


def test_a_key_may_be_written_in_other_ways() -> None:
    for key, same in (
        (" A  MINOR ", "Amin"),
        ("Am pentatonic", "A minor pentatonic"),
        ("CM", "C"),
        ("C Maj", "C major"),
        ("E-flat minor", "E♭m"),
        ("D# minor", "Ebm"),
        ("b", "B major"),
        ("bb", "B flat"),
        ("C sharp", "C#"),
        ("A minor", "C"),
        ("Cb", "B"),
        ("F Sharp minor", "F#m"),
        ("Bflat MAJOR", "Bb"),
        ("C Ionian", "C"),
        ("A aeolian", "Am"),
        ("A natural minor", "Am"),
    ):
        assert pitch_classes(key) == pitch_classes(same), key


def test_a_scale_moves_with_its_note() -> None:
    for scale in SCALES:
        of_c = pitch_classes(f"C {scale}")
        assert 0 in of_c
        for note, up in (("C#", 1), ("Db", 1), ("G", 7), ("A#", 10), ("Bb", 10)):
            assert pitch_classes(f"{note} {scale}") == {(pitch + up) % 12 for pitch in of_c}


def test_an_invalid_key_is_reported_in_one_sentence_with_the_valid_ones() -> None:
    for key in ("", "H", "C foo", "1", "Cmaj7", "C##", "dorian", "C" * 1000):
        with pytest.raises(ValueError, match=r"^key is '.*expected a note from A to G") as caught:
            MusicOptions(key=key)
        assert all(scale in str(caught.value) for scale in SCALES)
        assert len(str(caught.value)) < 400


def test_a_piece_closes_in_the_key_of_its_beginning_unless_it_has_modulated() -> None:
    def piece(*tonics: int) -> Score:
        """Four bars of I IV V I in each of some major keys."""
        chords = [tonic + above for tonic in tonics for above in (0, 5, 7, 0)]
        rows = [
            (1920 * bar, 1900, 60 + (chord + tone) % 12, 80)
            for bar, chord in enumerate(chords)
            for tone in (0, 4, 7)
        ]
        return Score(480, (Track.of(rows),))

    for tonic in range(12):
        fifth, second = (tonic + 7) % 12, (tonic + 2) % 12
        for others in ((), (tonic,) * 5, (tonic, fifth), (second, tonic)):
            assert key_at_end(piece(tonic, tonic, *others)) == Key(tonic, minor=False)
        modulated = piece(*[tonic] * 4, *[second] * 2)
        assert key_at_end(modulated) == Key(second, minor=False)
    assert key_at_end(Score(480, ())) is None


@pytest.mark.parametrize("length", [0, 1, 480])
def test_notes_have_a_key_however_short_they_are(length: int) -> None:
    rows = [(480 * at, length, 60 + step, 80) for at, step in enumerate((0, 2, 4, 5, 7, 9, 11, 12))]
    assert estimate_key(Score(480, (Track.of(rows),))) == Key(0, False)
