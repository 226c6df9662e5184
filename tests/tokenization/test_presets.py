from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenization.errors import TokenizerError
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    PianoRemi().save(tmp_path)
    return tmp_path / "tokenizer.json"


def change(path: Path, **content: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **content}), "utf-8")


def test_a_saved_tokenizer_is_loaded_again(saved):
    loaded = load_tokenizer(saved.parent)
    assert loaded.config == PianoRemi().config
    assert loaded.vocabulary == PianoRemi().vocabulary
    score = Score(480, (Track.of([(0, 480, 60, 64)]),))
    assert loaded.encode(score).ids.tolist() == PianoRemi().encode(score).ids.tolist()
    assert [path.name for path in saved.parent.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"vocabulary_hash": "0" * 64}, "which assigns ids differently; install the release"),
        ({"format_version": 2}, "has format 2, expected 1"),
        ({"config": {"kind": "words"}}, "has the tokenizer 'words', expected one of piano_remi"),
        ({"config": {"kind": ["words"]}}, "expected one of piano_remi"),
        ({"config": {"kind": "piano_remi", "steps": 4}}, "unknown options: steps"),
        ({"config": {"kind": "piano_remi", "version": 3}}, "version is 3, expected 2"),
        ({"config": {}}, "is damaged"),
        ({"config": 3}, "is damaged"),
    ],
)
def test_an_incompatible_file_is_rejected(saved, content, message):
    change(saved, **content)
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(saved.parent)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_damaged_file_is_rejected(saved, content):
    saved.write_bytes(content)
    with pytest.raises(TokenizerError, match="is damaged: expected JSON"):
        load_tokenizer(saved.parent)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read \(No such file"):
        load_tokenizer(tmp_path)
