"""Texts become ids and the same texts again, whatever the vocabulary has learned."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.parallel_files import number_pairs
from training.errors import TrainingError
from training.tasks.transduction.bpe import END, LEAST, NAME, Bpe
from training.tasks.transduction.pair_task import START

pytest.importorskip("tokenizers")
TEXTS = [text for pair in number_pairs() for text in pair]
LEARNED = Bpe.train(TEXTS, 300)


@given(text=st.text() | st.sampled_from(["<s>", "[UNK]", " two  spaces ", "été\u0301", "𝄞\u00a0«"]))
def test_decoding_returns_the_text(text):
    for tokenizer in (LEARNED, Bpe.train([], LEAST)):
        [ids] = tokenizer.encode([text])
        assert ids[0] == START
        assert ids[-1] == END
        assert not {START, END} & {*ids[1:-1].tolist()}
        assert ids.max() < tokenizer.num_tokens
        assert tokenizer.decode(ids.tolist()) == text


def test_frequent_words_become_few_ids():
    [ids] = LEARNED.encode(["seven three"])
    assert len(ids) - 2 < len("seven three") / 2
    assert LEAST < LEARNED.num_tokens <= 300
    assert Bpe.train(TEXTS, LEAST).num_tokens == LEAST


def test_the_same_texts_give_the_same_vocabulary_which_can_be_stored(tmp_path):
    LEARNED.save(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    assert len(Bpe.load(tmp_path).encode(["five"])[0]) == len(LEARNED.encode(["five"])[0])
    Bpe.train(TEXTS, 300).save(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_ids_without_a_meaning_are_left_out():
    assert LEARNED.decode([START, 299 + 1000, END]) == ""
    [ids] = LEARNED.encode(["é"])
    assert LEARNED.decode(ids[:2].tolist()) == "\ufffd"


def test_small_vocabularies_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="expected at least 258"):
        Bpe.train(TEXTS, LEAST - 1)
    with pytest.raises(TrainingError, match="no such file"):
        Bpe.load(tmp_path)
    (tmp_path / NAME).write_text("{}")
    with pytest.raises(TrainingError, match="the file is damaged"):
        Bpe.load(tmp_path)


def test_a_missing_package_is_named_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TrainingError, match=r"needs the package tokenizers; run pip .*translation"):
        Bpe.train(TEXTS, 300)
