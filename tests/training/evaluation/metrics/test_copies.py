from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization.presets import load_tokenizer
from tokenization.score import Score, Track
from training.data.corpus import Corpus
from training.evaluation.metrics.copies import NoteIndex, copies

few = settings(max_examples=20)


def random_score(seed: int, notes: int = 60, *, is_drum: bool = False) -> Score:
    draw = np.random.default_rng(seed)
    onsets = np.cumsum(draw.integers(0, 12, notes))
    columns = (draw.integers(1, 12, notes), draw.integers(40, 80, notes), np.full(notes, 80))
    return Score(12, (Track(np.stack([onsets, *columns], 1), is_drum=is_drum),))


def moved(score: Score, semitones: int = 0, ticks: int = 0) -> Score:
    tracks = [
        t.with_tables(notes=t.notes + np.array((ticks, 0, semitones, 0))) for t in score.tracks
    ]
    return Score(12, tuple(tracks))


def joined(*scores: Score) -> Score:
    """The notes of several scores in sequence, as one score."""
    tables, start = [], 0
    for score in scores:
        tables.append(score.tracks[0].notes + np.array((start, 0, 0, 0)))
        start += score.end_ticks + 48
    return Score(12, (Track(np.concatenate(tables)),))


INDEX = NoteIndex.of([random_score(0), random_score(1, 40), random_score(2, 80)])


@few
@given(st.sampled_from([(0, 60), (1, 40), (2, 80)]), st.integers(-30, 30), st.integers(0, 500))
def test_a_moved_piece_of_the_corpus_is_found_in_full(piece, semitones, ticks):
    seed, notes = piece
    found = copies(INDEX, [moved(random_score(seed, notes), semitones, ticks)])
    assert found.shares == {8: 1, 16: 1, 32: 1}
    assert found.longest == found.num_notes == notes


@few
@given(start=st.integers(0, 40), length=st.integers(2, 40))
def test_the_longest_run_is_the_copied_part(start, length):
    taken = random_score(2, 80).tracks[0].notes[start : start + length]
    # the surrounding music is at other distances, so that the run cannot be longer
    part = Score(12, (Track(taken - [taken[0, 0], 0, 0, 0]),))
    found = copies(INDEX, [joined(random_score(500), part, random_score(501))], (8,))
    assert found.longest == (len(taken) if len(taken) >= 8 else 0)
    runs = 60 + 60 + len(taken) - 7
    assert found.shares[8] == pytest.approx(max(len(taken) - 7, 0) / runs)


@few
@given(seed=st.integers(0, 9))
def test_runs_match_a_naive_search(seed):
    """There are few pitches and times, so that passages of all lengths are repeated."""
    draw = np.random.default_rng(seed)

    def score(notes: int) -> Score:
        onsets = np.cumsum(draw.integers(1, 3, notes)).tolist()
        pitches = draw.integers(60, 62, notes).tolist()
        return Score(
            12, (Track.of([(at, 1, p, 80) for at, p in zip(onsets, pitches, strict=True)]),)
        )

    def steps(score: Score) -> list[tuple[int, int]]:
        notes = score.tracks[0].notes
        return [(int(a), int(b)) for a, b in np.diff(notes[:, [0, 2]], axis=0)]

    corpus, asked = [score(30), score(20)], score(25)
    held = [steps(piece) for piece in corpus]
    runs = {tuple(h[i:j]) for h in held for i in range(len(h)) for j in range(i + 1, len(h) + 1)}
    wanted = steps(asked)
    expected = []
    for i in range(len(wanted)):
        lengths = (j - i for j in range(i + 1, len(wanted) + 1) if tuple(wanted[i:j]) in runs)
        longest = max(lengths, default=0)
        expected.append(longest + 1 if longest >= 2 else 0)
    (found,) = NoteIndex.of(corpus).longest_runs([asked], 3)
    assert found.tolist() == expected


def test_runs_do_not_continue_from_one_piece_or_track_to_the_next():
    first, second = random_score(0), random_score(2, 80)
    together = Score(12, (joined(first, second).tracks[0],))
    found = copies(INDEX, [together])
    assert found.longest == 80
    # scores are counted together, and random notes are no copies
    parts = [first, random_score(700)]
    assert [copies(INDEX, [part]).shares[16] for part in parts] == [1, 0]
    both = copies(INDEX, parts)
    assert (both.shares[16], both.longest, both.num_notes) == (0.5, 60, 120)
    tracks = Score(12, (first.tracks[0], second.tracks[0]))
    assert copies(INDEX, [tracks]).longest == 80


def test_other_times_or_another_interval_are_not_a_copy():
    score = random_score(0)
    slower = score.tracks[0].notes * [2, 2, 1, 1]
    upside_down = score.tracks[0].notes * [1, 1, -1, 1] + [0, 0, 120, 0]
    for notes in (slower, upside_down):
        found = copies(INDEX, [Score(12, (Track(notes),))])
        assert found.shares[8] == 0


def test_drums_are_not_transposed_and_too_short_music_has_no_share():
    for score in (Score(12), random_score(0, 1), random_score(0, 7)):
        found = copies(INDEX, [score])
        assert found.longest == 0
        assert all(math.isnan(share) for share in found.shares.values())
    assert copies(NoteIndex.of([]), [random_score(0)]).shares[8] == 0
    drums, melody = random_score(3, is_drum=True), random_score(3)
    index = NoteIndex.of([drums])
    assert copies(index, [drums]).shares[32] == 1
    assert copies(index, [moved(drums, 2)]).shares[8] == 0
    assert copies(index, [melody]).shares[8] == 0


def test_pieces_of_a_prepared_corpus_are_found_in_it(data):
    remi = load_tokenizer(data)
    train, test = (Corpus.load(data, split) for split in ("train", "test"))
    index = NoteIndex.of_corpus(train, remi)
    pieces = [remi.decode(train.piece(i)) for i in range(len(train))]
    assert copies(index, pieces).shares == {8: 1, 16: 1, 32: 1}
    for piece in pieces:
        assert copies(index, [piece]).longest == piece.num_notes
    assert copies(index, [remi.decode(test.piece(0))]).shares[8] == 0
