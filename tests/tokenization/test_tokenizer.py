from __future__ import annotations

import json

import pytest

from tokenization.presets import load_tokenizer
from tokenization.remi.remi import PianoRemi
from tokenization.tokenizer import Vocabulary


def test_saving_a_loaded_tokenizer_writes_the_same_file(tmp_path):
    PianoRemi().save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()
    load_tokenizer(tmp_path).save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    assert json.loads(before) == {
        "format_version": 1,
        "config": {"kind": "piano_remi", "version": 2, "styles": []},
        "vocabulary_hash": PianoRemi().vocabulary.hash,
    }


def test_the_hash_depends_on_order_and_on_where_names_end():
    hashes = {Vocabulary(names).hash for names in [("a", "b"), ("b", "a"), ("ab",), ("a", "b", "")]}
    assert len(hashes) == 4


def test_names_are_unique():
    with pytest.raises(ValueError, match="same name"):
        Vocabulary(("Bar", "Bar"))
