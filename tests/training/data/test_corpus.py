from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import documents
from tokenization.remi.remi import PianoRemi
from training.data.corpus import Corpus, windows
from training.errors import TrainingError


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
    whole = documents(data, batch_size=6)[3]
    of_all = list(read)
    read.clear()
    for rank in range(3):
        rows = documents(data, batch_size=2, first_row=2 * rank)[3]
        assert np.array_equal(rows, whole[2 * rank : 2 * rank + 2])
    assert read == of_all


def test_a_folder_without_a_corpus_is_refused(data, tmp_path):
    with pytest.raises(TrainingError, match="relpe-train prepare"):
        Corpus.load(tmp_path, "train")
    with pytest.raises(TrainingError, match="no split 'dev'"):
        Corpus.load(data, "dev")
    for content, message in (
        ("", "damaged"),
        ('{"format": 2, "sp', "damaged"),
        ("[1]", "damaged"),
        ('{"format": 2}', "damaged"),
        ('{"format": 1}', "format 1, expected 2"),
        ('{"format": 99}', "format 99, expected 2"),
    ):
        (tmp_path / "data.json").write_text(content)
        with pytest.raises(TrainingError, match=rf"data\.json: [^\n]*{message}.*; prepare again"):
            Corpus.load(tmp_path, "train")
