from __future__ import annotations

import pickle
import shutil
from itertools import pairwise

import numpy as np
import pytest

import training.data.prepare as preparation
from tests.support.runs import documents
from tokenization.remi.remi import PianoRemi
from training.data import shards
from training.data.augmentation import Augmentation
from training.data.corpus import Corpus, read_facts, windows
from training.data.prepare import prepare
from training.errors import TrainingError


def test_shards_have_a_maximum_size_and_the_hash_of_a_single_one(
    data, midi_folder, tmp_path, monkeypatch
):
    limit = 900
    monkeypatch.setattr(shards, "SHARD_TOKENS", limit)
    monkeypatch.setattr(preparation, "BATCH_FILES", 2)
    out = tmp_path / "out"
    facts = prepare(midi_folder, out, PianoRemi(), workers=1)
    assert facts["hash"] == read_facts(data)["hash"]
    parts = Corpus.load(out, "train").shards
    assert facts["splits"]["train"]["shards"] == len(parts) > 1
    assert all(len(part) == 1 or len(part.tokens) <= limit for part in parts)
    for part, following in pairwise(parts):  # shards are as large as possible
        assert len(part.tokens) + following.offsets[1] > limit
    folders = [part.folder for part in parts if part.folder is not None]
    assert len(folders) == len(parts)
    names = [line for folder in folders for line in (folder / "names.txt").read_text().split()]
    assert names == (data / "train" / "names.txt").read_text().split()
    assert sorted(path.name for path in (out / "validation").iterdir()) == sorted(
        path.name for path in (data / "validation").iterdir()
    )


@pytest.mark.parametrize("limit", [1, 500])
def test_shards_do_not_affect_what_is_read(data, midi_folder, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(shards, "SHARD_TOKENS", limit)
    prepare(midi_folder, tmp_path / "data", PianoRemi(), workers=1)
    whole, cut = (Corpus.load(folder, "train") for folder in (data, tmp_path / "data"))
    assert len(cut.shards) > 1
    assert len(cut) == len(whole)
    assert np.array_equal(cut.lengths, whole.lengths)
    for index in range(len(whole)):
        assert np.array_equal(cut.piece(index), whole.piece(index))
        assert np.array_equal(cut.piece_bars(index), whole.piece_bars(index))
        assert cut.length(index) == whole.length(index) == len(whole.piece(index))
    changed = Augmentation(drums=1, dropped=0.3, velocity=0.5)  # also draws other examples
    one, many = (
        documents(data, augmentation=changed),
        documents(tmp_path / "data", augmentation=changed),
    )
    assert all(np.array_equal(one[step], many[step]) for step in range(10))
    assert np.array_equal(windows(cut, PianoRemi(), 50), windows(whole, PianoRemi(), 50))


def test_tokens_and_bars_stay_on_disk_and_are_mapped_again_by_another_process(data):
    corpus = Corpus.load(data, "train")
    again = pickle.loads(pickle.dumps(corpus))
    assert len(pickle.dumps(corpus)) < 1000
    assert np.array_equal(again.piece(1), corpus.piece(1))
    for shard in (*corpus.shards, *again.shards):
        assert isinstance(shard.tokens.base, np.memmap)
        assert isinstance(shard.bars.base, np.memmap)


def test_damaged_tables_are_refused(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data")
    part = folder / "train"

    def refused(message: str) -> None:
        with pytest.raises(TrainingError, match=message):
            Corpus.load(folder, "train")

    for name in ("pieces.npy", "names.txt"):
        (part / name).rename(folder / name)
        refused(rf"train: damaged \(no {name}\); prepare again")
        (folder / name).rename(part / name)
    np.save(part / "pieces.npy", np.zeros(2, shards.PIECE))
    refused("found 2 rows in pieces.npy, expected 5")
    (part / "bars.npy").write_bytes(b"")
    refused(r"train: damaged .*; prepare again")
    (part / "tokens.uint16").write_bytes((part / "tokens.uint16").read_bytes()[:-2])
    shutil.copy(data / "train" / "bars.npy", part)
    refused(r"train: found \d+ tokens, expected \d+")
    (part / "offsets.npy").unlink()
    refused(r"train: damaged .*offsets.*; prepare again")


def test_overwritten_tokens_are_reported_where_they_are_drawn(data, tmp_path):
    path = shutil.copytree(data, tmp_path / "data") / "train" / "tokens.uint16"
    for value in (0, 0xFFFF):
        np.full(path.stat().st_size // 2, value, "<u2").tofile(path)
        with pytest.raises(TrainingError, match=r"tokens of .*\.mid are damaged; prepare the"):
            documents(tmp_path / "data")[0]
