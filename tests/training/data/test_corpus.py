from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import crops
from tokenization.remi.remi import PianoRemi
from training.data.corpus import Corpus, windows
from training.errors import TrainingError

names = PianoRemi().vocabulary.names
ids = PianoRemi().vocabulary.ids


@given(seed=st.integers(0, 2**31 - 1), step=st.integers(0, 10**6))
def test_a_batch_is_a_function_of_seed_and_step(data, seed, step):
    first, second = crops(data, seed=seed), crops(data, seed=seed)
    second[step + 1]  # an earlier draw must not affect the next one
    batch = first[step]
    assert batch.shape == (4, 65)
    assert np.array_equal(batch, second[step])
    assert not np.array_equal(batch, first[step + 1])


@given(step=st.integers(0, 10**6))
def test_crops_begin_with_the_current_metre_and_tempo(data, step):
    for row in crops(data)[step]:
        start = [names[token] for token in row[:5]]
        start = start[1:] if start[0] == "BOS" else start
        kinds = [name.split("_")[0] for name in start[:4]]
        assert kinds == ["Bar", "TimeSignature", "Position", "Tempo"]
        assert start[2] == "Position_0"


@given(step=st.integers(0, 10**6))
def test_crops_are_canonical(data, step):
    for row in crops(data)[step]:
        state = PianoRemi().grammar()
        for token in row[row != 0]:
            state = state.advance(int(token))


def test_one_crop_in_ten_is_a_beginning(data):
    drawn = crops(data, batch_size=1000)[0]
    assert 0.07 < (drawn[:, 0] == ids["BOS"]).mean() < 0.13


def test_crops_have_little_padding_and_some_end_with_eos(data):
    drawn = crops(data, batch_size=500)[0]
    assert (drawn != 0).mean() > 0.9
    assert (drawn == ids["EOS"]).any()


def test_transpositions_take_all_twelve_steps_and_stay_on_the_keyboard(data):
    low, high = ids["Pitch_21"], ids["Pitch_108"]
    source = crops(data, transposition=(0, 0), batch_size=300)
    moved = crops(data, transposition=(-5, 6), batch_size=300)
    shifts = set()
    for before, after in zip(source[3], moved[3], strict=True):
        places = (before >= low) & (before <= high)
        assert ((after[places] >= low) & (after[places] <= high)).all()
        assert np.array_equal(before[~places], after[~places])
        shifts |= set((after[places] - before[places]).tolist())
    assert shifts == set(range(-5, 7))


def test_transpositions_beyond_the_keyboard_are_drawn_again(data):
    wide = crops(data, transposition=(-60, 60), batch_size=200)[0]
    pitches = wide[(wide >= ids["Pitch_21"]) & (wide <= ids["Pitch_108"])]
    assert len(pitches)
    assert len(set(pitches.tolist())) > 60


def test_windows_contain_every_target_once(data):
    corpus = Corpus.load(data, "test")
    cut = windows(corpus, PianoRemi(), 50)
    wanted = np.concatenate([corpus.piece(index)[1:] for index in range(len(corpus))])
    assert cut.shape[1] == 51
    assert np.array_equal(cut[:, 1:][cut[:, 1:] != 0], wanted)


@given(length=st.integers(1, 200), count=st.integers(1, 40))
def test_some_windows_are_chosen_at_even_distances(data, length, count):
    corpus = Corpus.load(data, "train")
    cut = windows(corpus, PianoRemi(), length)
    chosen = np.unique(np.linspace(0, len(cut), count, endpoint=False).astype(int))
    assert np.array_equal(windows(corpus, PianoRemi(), length, count), cut[chosen])


def test_a_rank_reads_only_the_pieces_of_its_rows(data, monkeypatch):
    read = []
    piece = Corpus.piece

    def counted(self, index, start=0, stop=None):
        read.append(index)
        return piece(self, index, start, stop)

    monkeypatch.setattr(Corpus, "piece", counted)
    whole = crops(data, batch_size=6)[3]
    of_all = list(read)
    for rank in range(3):
        read.clear()
        assert np.array_equal(
            crops(data, batch_size=2, first_row=2 * rank)[3], whole[2 * rank : 2 * rank + 2]
        )
        assert read == of_all[2 * rank : 2 * rank + 2]


def test_a_folder_without_a_corpus_is_refused(data, tmp_path):
    with pytest.raises(TrainingError, match="relpe-train prepare"):
        Corpus.load(tmp_path, "train")
    with pytest.raises(TrainingError, match="no split 'dev'"):
        Corpus.load(data, "dev")
    for content in ("", '{"format": 2, "sp', "[1]", '{"format": 2}'):
        (tmp_path / "data.json").write_text(content)
        with pytest.raises(TrainingError, match=r"data\.json: damaged, [^\n]*; prepare again$"):
            Corpus.load(tmp_path, "train")
    for other in (1, 99):
        (tmp_path / "data.json").write_text(json.dumps({"format": other}))
        with pytest.raises(TrainingError, match=f"format {other}, expected 2; prepare again"):
            Corpus.load(tmp_path, "train")
