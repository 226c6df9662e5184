from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.support.corpora import as_drums, transposed
from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track
from training.data.copies import near_copies
from training.data.copies.melody import RUN, melody_runs
from training.data.copies.near_copies import (
    FEWEST_RUNS,
    MOST_PIECES,
    SHARE,
    groups_of,
    sampled,
    similar_pairs,
)
from training.data.copies.placement import Pieces, place
from training.data.prepare import prepare


def naive_pairs(sets):
    """Pairs of sets with enough common elements, without commonplaces."""
    of_element = {}
    for number, one in enumerate(sets):
        for element in one:
            of_element.setdefault(element, []).append(number)
    rare = {element for element, held in of_element.items() if len(held) <= MOST_PIECES}
    found = {}
    for first, one in enumerate(sets):
        for second in range(first + 1, len(sets)):
            common = len(one & sets[second] & rare)
            share = common / max(min(len(one), len(sets[second])), 1)
            if common >= FEWEST_RUNS and share >= SHARE:
                found[first, second] = share
    return found


@pytest.mark.parametrize("seed", range(2))
def test_pairs_are_those_of_a_naive_search(seed):
    draw = np.random.default_rng(seed)
    sets = [{*draw.integers(0, 150, draw.integers(0, 90)).tolist()} for _ in range(90)]
    sets += [set(), {7}]
    runs = np.concatenate([np.array(sorted(one), np.uint64) for one in sets])
    pairs = similar_pairs(runs, np.array([len(one) for one in sets]))
    found = zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
    expected = naive_pairs(sets)
    assert dict(zip(found, pairs.share, strict=True)) == pytest.approx(expected)
    assert expected


def test_no_pieces_have_no_pairs():
    empty = np.zeros(0, np.int64)
    assert len(similar_pairs(np.zeros(0, np.uint64), empty).first) == 0
    assert len(groups_of(0, empty, empty)) == 0


def test_a_sample_of_runs_finds_the_same_melodies(midi_folder, tmp_path, monkeypatch):
    runs = np.concatenate([np.arange(start, start + 400, dtype=np.uint64) for start in (0, 200)])
    some, counts = sampled(runs, np.array([400, 400]), 8)
    assert counts.tolist() == [50, 50]
    assert similar_pairs(some, counts, 2).share == pytest.approx([0.5])
    midi = tmp_path / "midi"
    for split, number in (("train", 0), ("train", 1), ("test", 2)):
        (midi / split).mkdir(parents=True, exist_ok=True)
        shutil.copy(midi_folder / "songs" / f"{number}.mid", midi / split)
    higher = transposed(piece(2, 10), 2)
    (midi / "train" / "again.mid").write_bytes(write_midi(higher))
    monkeypatch.setattr(near_copies, "MOST_RUNS", 100)
    data = prepare(midi, tmp_path / "out", PianoRemi(), workers=1)
    assert list(data["moved"]) == ["train/again.mid"]


def test_groups_connect_pieces_over_others():
    group = groups_of(7, np.array([5, 1, 3]), np.array([6, 5, 4]))
    assert group.tolist() == [0, 1, 2, 3, 3, 1, 1]


def test_runs_do_not_change_when_a_piece_is_transposed_slower_or_has_drums():
    score = piece(3, 20)
    runs = melody_runs(score)
    assert len(runs) > 50
    slower = Score(240, (Track(score.tracks[0].notes * [1, 1, 1, 1]),))
    beside = score.with_tracks([*score.tracks, *as_drums(piece(4)).tracks])
    for other in (transposed(score, 5), slower, beside):
        assert len(np.intersect1d(runs, melody_runs(other))) > 0.8 * len(runs)
    assert len(np.intersect1d(runs, melody_runs(piece(5, 20)))) == 0


def test_scales_repeated_notes_and_figures_have_no_runs():
    for pitches in ([60] * 60, [*range(40, 90)], [60, 64, 67, 72, 67, 64] * 12, [60] * RUN):
        rows = [(480 * at, 480, pitch, 80) for at, pitch in enumerate(pitches)]
        assert len(melody_runs(Score(480, (Track.of(rows),)))) == 0
    assert len(melody_runs(as_drums(piece(0)))) == 0


def placed(splits, edges, train_only=(), hashes=None):
    """Place pieces that share runs with others."""
    total = len(splits)
    runs = [[1000 * number + n for n in range(20)] for number in range(total)]
    for number, (first, second) in enumerate(edges):
        common = [10**6 * (number + 1) + n for n in range(40)]
        runs[first] += common
        runs[second] += common
    return place(
        Pieces(
            names=[str(number) for number in range(total)],
            splits=splits,
            corpora=[0] * total,
            train_only=[number in train_only for number in range(total)],
            hashes=hashes or [bytes([number]) for number in range(total)],
            runs=[np.array(sorted(one), np.uint64) for one in runs],
            num_runs=[np.array([len(one)]) for one in runs],
        )
    )


def test_a_group_goes_to_its_strictest_split():
    splits = ["train", "validation", "test", "train", "train", "validation", "other", "train"]
    found = placed(splits, [(0, 1), (1, 2), (4, 5), (6, 7)])
    assert found.splits == [
        *("test", "test", "test", "train", "validation", "validation", "other", "other")
    ]
    assert list(found.moved) == [0, 1, 4, 7]
    assert found.moved[1].startswith("from validation to test: 67% of its melody is also in ")
    assert found.copies == {}


def test_pieces_for_training_only_are_left_out_and_neither_move_nor_connect_others():
    for splits, edges, train_only, out in (
        ("train test train train", [(0, 1), (2, 3)], [0, 3], [0]),
        ("test train train", [(0, 1), (1, 2)], [1], [1]),
        ("train train test train", [(0, 1), (1, 2)], [0, 1, 3], [0, 1]),
    ):
        splits = splits.split()
        found = placed(splits, edges, train_only)
        assert found.splits == [None if at in out else split for at, split in enumerate(splits)]
        assert list(found.copies) == out
    # nor do copies of pieces that are for training only separate others
    found = placed(["train", "train", "test"], [], train_only=[0], hashes=[b"a", b"a", b"a"])
    assert found.splits == [None, None, "test"]


def test_of_copies_one_stays_in_the_strictest_split():
    hashes = [b"a", b"b", b"a", b"b", b"c", b"c"]
    found = placed(["train", "train", "test", "validation", "train", "train"], [], hashes=hashes)
    assert found.splits == [None, None, "test", "validation", "train", None]
    assert found.copies[0] == "the same tokens as 2 in the split test"
    assert found.moved == {}
