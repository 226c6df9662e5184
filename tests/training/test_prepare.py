from __future__ import annotations

import zipfile

import pytest

from tokenization.remi import PianoRemi
from training.corpus import Corpus, read_facts
from training.errors import TrainingError
from training.prepare import prepare

ids = PianoRemi().vocabulary.ids


def test_prepare_counts_and_lists_what_is_refused(data):
    facts = read_facts(data)
    assert [facts["splits"][split]["files"] for split in ("train", "validation", "test")] == [
        5,
        1,
        2,
    ]
    assert list(facts["refused"]) == ["songs/broken.mid"]
    train = Corpus.load(data, "train")
    assert facts["splits"]["train"]["tokens"] == len(train.tokens)
    assert facts["splits"]["train"]["bars"] == (train.tokens == ids["Bar"]).sum()
    for index in range(len(train)):
        whole = train.piece(index)
        assert whole[0] == ids["BOS"]
        assert whole[-1] == ids["EOS"]
        assert (whole[train.piece_bars(index)] == ids["Bar"]).all()


def test_a_zip_gives_the_same_tokens_as_its_folder(data, midi_folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "midi.zip", "w") as archive:
        for path in sorted(midi_folder.rglob("*.*")):
            archive.write(path, path.relative_to(midi_folder))
    facts = prepare(tmp_path / "midi.zip", tmp_path / "out", PianoRemi(), progress=False)
    assert facts["hash"] == read_facts(data)["hash"]


def test_names_are_dealt_where_no_splits_are_given(midi_folder, tmp_path):
    facts = prepare(midi_folder / "songs", tmp_path / "out", PianoRemi(), progress=False)
    assert sum(split["files"] for split in facts["splits"].values()) == 8


@pytest.mark.parametrize("splits", ["[1]", "{", '{"train": 1}'])
def test_splits_that_are_no_table_of_names_are_refused(midi_folder, tmp_path, splits):
    (tmp_path / "s.json").write_text(splits)
    with pytest.raises(TrainingError, match="split -> names"):
        prepare(
            midi_folder, tmp_path / "out", PianoRemi(), splits=tmp_path / "s.json", progress=False
        )


def test_an_empty_corpus_is_refused_and_nothing_is_written(midi_folder, tmp_path):
    with pytest.raises(TrainingError, match=r"no \.mid or \.midi"):
        prepare(midi_folder, tmp_path / "out", PianoRemi(), include="*.xyz", progress=False)
    with pytest.raises(TrainingError, match="no music"):
        prepare(midi_folder, tmp_path / "out", PianoRemi(), include="*/broken.mid", progress=False)
    with pytest.raises(TrainingError, match="found nothing"):
        prepare(tmp_path / "none", tmp_path / "out", PianoRemi(), progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_is_not_overwritten(midi_folder, tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(TrainingError, match="no prepared corpus"):
        prepare(midi_folder, tmp_path, PianoRemi(), progress=False)
