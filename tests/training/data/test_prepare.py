from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import training.data.prepare as preparation
from tests.support.midi_files import END, midi_file, note, tempo
from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Track
from training.cli import main
from training.data.corpus import Corpus, read_facts
from training.data.prepare import prepare
from training.errors import TrainingError

ids = PianoRemi().vocabulary.ids


def test_prepare_counts_and_lists_refused_files(data):
    facts = read_facts(data)
    assert [facts["splits"][split]["files"] for split in ("train", "validation", "test")] == [
        5,
        1,
        2,
    ]
    assert list(facts["refused"]) == ["songs/broken.mid"]
    train = Corpus.load(data, "train")
    tokens = np.concatenate([train.piece(index) for index in range(len(train))])
    assert facts["splits"]["train"]["tokens"] == len(tokens) == train.lengths.sum()
    assert facts["splits"]["train"]["bars"] == (tokens == ids["Bar"]).sum()
    for index in range(len(train)):
        whole = train.piece(index)
        assert whole[0] == ids["BOS"]
        assert whole[-1] == ids["EOS"]
        assert (whole[train.piece_bars(index)] == ids["Bar"]).all()


def test_a_zip_gives_the_same_tokens_as_its_folder(data, midi_folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "midi.zip", "w") as archive:
        for path in sorted(midi_folder.rglob("*.*")):
            archive.write(path, path.relative_to(midi_folder))
    facts = prepare(tmp_path / "midi.zip", tmp_path / "out", PianoRemi())
    assert facts["hash"] == read_facts(data)["hash"]


def test_what_cannot_be_prepared_is_refused_and_nothing_is_written(midi_folder, tmp_path):
    splits, songs = tmp_path / "s.json", midi_folder / "songs"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (midi_folder, {"include": "*.xyz"}, r"no \.mid, \.midi or \.kar"),
        (midi_folder, {"include": "*/broken.mid"}, "no music"),
        (tmp_path / "none", {}, "found no such file or folder"),
        (midi_folder, {"workers": 0}, "--workers is 0"),
        ([midi_folder, midi_folder], {}, "--corpus: found corpora named .* different names"),
        ([midi_folder, songs], {"include": ["*.mid"] * 3}, "--include: found 3 patterns for 2"),
        (midi_folder, {"splits": splits}, "split -> names"),
    ]
    for source, changes, message in cases:
        splits.write_text('{"train": 1}')
        with pytest.raises(TrainingError, match=message):
            prepare(source, tmp_path / "out", PianoRemi(), **changes)
        assert list(tmp_path.iterdir()) == [splits]
    for content in ("[1]", "{"):
        splits.write_text(content)
        with pytest.raises(TrainingError, match="split -> names"):
            prepare(midi_folder, tmp_path / "out", PianoRemi(), splits=splits)
    with pytest.raises(TrainingError, match="not a prepared corpus"):
        prepare(midi_folder, tmp_path, PianoRemi())


def test_a_corpus_of_another_source_or_tokenizer_is_not_overwritten(midi_folder, tmp_path):
    output = tmp_path / "corpus"
    prepare(midi_folder, output, PianoRemi())
    prepare(midi_folder, output, PianoRemi())  # allowed again, since files may have changed
    other = shutil.copytree(midi_folder, tmp_path / "other")
    with pytest.raises(TrainingError, match=r"made from .*, not from other; choose a new folder"):
        prepare(other, output, PianoRemi())
    with pytest.raises(TrainingError, match="corpus of another tokenizer; choose a new folder"):
        prepare(midi_folder, output, MultitrackRemi())
    stored = output / "tokenizer.json"
    stored.write_text(stored.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(TrainingError, match="corpus of another tokenizer; choose a new folder"):
        prepare(midi_folder, output, PianoRemi())
    assert read_facts(output)["vocabulary"] == PianoRemi().vocabulary.hash


def test_a_stopped_run_resumes_and_workers_change_nothing(data, midi_folder, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        before = stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            prepare(midi_folder, tmp_path / "out", PianoRemi(), workers=1)
    assert not (tmp_path / "out").exists()
    with monkeypatch.context() as patch:
        read = stop_after(patch, 100)
        facts = prepare(midi_folder, tmp_path / "out", PianoRemi(), workers=1)
    assert before
    assert not set(before) & set(read)
    assert facts == read_facts(data)
    assert prepare(midi_folder, tmp_path / "two", PianoRemi(), workers=2) == facts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "two"]


def stop_after(monkeypatch, batches):
    """Make a run stop after some batches; return the list to which it adds the files it reads."""
    monkeypatch.setattr(preparation, "BATCH_FILES", 2)
    read: list[str] = []
    encode = preparation._encode

    def stopped(batch):
        if len(read) >= 2 * batches:
            raise KeyboardInterrupt
        read.extend(batch.source.names)
        return encode(batch)

    monkeypatch.setattr(preparation, "_encode", stopped)
    return read


@pytest.mark.parametrize("what", ["file", "archive", "format", "tokenizer"])
def test_a_stopped_run_is_not_resumed_if_the_result_would_differ(
    midi_folder, tmp_path, monkeypatch, what
):
    source, tokenizer = shutil.copytree(midi_folder, tmp_path / "midi"), PianoRemi()
    if what == "archive":
        source = Path(shutil.make_archive(str(tmp_path / "midi"), "zip", source))
    with monkeypatch.context() as patch:
        before = stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, tmp_path / "out", tokenizer, workers=1)
    if what == "file":
        shutil.copy(source / "songs" / "7.mid", source / "songs" / "0.mid")
    elif what == "archive":
        (tmp_path / "midi" / "songs" / "0.mid").write_bytes(write_midi(Score(480, ())))
        shutil.make_archive(str(tmp_path / "midi"), "zip", tmp_path / "midi")
    elif what == "format":
        monkeypatch.setattr(preparation, "BATCH_FORMAT", 99)
    else:
        tokenizer = MultitrackRemi()
    read = stop_after(monkeypatch, 100)
    facts = prepare(source, tmp_path / "out", tokenizer, workers=1)
    assert set(before) <= set(read)
    assert facts == prepare(source, tmp_path / "new", tokenizer, workers=1)


def test_names_need_not_be_utf8(midi_folder, tmp_path):
    for number, name in enumerate((b"caf\xe9", b"na\xefve", b"two\nlines", b"\xe2\x80\xa8")):
        split = tmp_path / "midi" / ("train", "train", "train", "test")[number]
        split.mkdir(parents=True, exist_ok=True)
        path = split / os.fsdecode(name + b".mid")
        shutil.copy(midi_folder / "songs" / f"{number}.mid", path)
    broken = tmp_path / "midi" / "train" / os.fsdecode(b"\xff.mid")
    broken.write_bytes(b"no MIDI")
    out = tmp_path / "out"
    facts = prepare(tmp_path / "midi", out, PianoRemi(), workers=1)
    assert facts == read_facts(out)
    assert list(facts["refused"]) == [os.fsdecode(b"train/\xff.mid")]
    assert r"train/\udcff.mid" in (out / "README.md").read_text("utf-8")
    assert b"caf\xe9.mid\n" in (out / "train" / "names.txt").read_bytes()
    assert len(Corpus.load(out, "train")) == 3
    dealt = prepare(tmp_path / "midi" / "train", tmp_path / "dealt", PianoRemi())
    assert sum(split["files"] for split in dealt["splits"].values()) == 3


def test_several_corpora_are_split_separately(midi_folder, tmp_path):
    archive = tmp_path / "songs.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for number in range(8):
            stream.writestr(f"{number}.mid", write_midi(piece(100 + number)))
    alone = [
        prepare(path, tmp_path / path.name[:3], PianoRemi(), include=name)
        for path, name in ((archive, "*.mid"), (midi_folder, "*/[0-4].mid"))
    ]
    words = ["prepare", "--output", str(tmp_path / "out"), "--workers", "1"]
    words += ["--corpus", str(archive), "--include", "*.mid"]
    assert main([*words, "--corpus", str(midi_folder), "--include", "*/[0-4].mid"]) == 0
    facts = read_facts(tmp_path / "out")
    assert facts["source"] == f"songs.zip, {midi_folder.name}"
    for split in ("train", "validation", "test"):
        both = [
            f"{name}/{line}"
            for name, out in (("songs.zip", "son"), (midi_folder.name, midi_folder.name[:3]))
            for line in (tmp_path / out / split / "names.txt").read_text().split()
        ]
        assert (tmp_path / "out" / split / "names.txt").read_text().split() == both
        for key in ("tokens", "notes", "files"):
            parts = [some["splits"][split][key] for some in alone]
            assert facts["splits"][split][key] == sum(parts)


def test_damaged_files_are_read_unless_reading_is_strict(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in "abcd":
        (corpus / f"{name}.mid").write_bytes(midi_file(note(60) + note(62, length=100) + END))
    (corpus / "e.mid").write_bytes(midi_file(note(60) + b"\x00\x90\xc8\x40" + END))
    (corpus / "splits.json").write_text(json.dumps({"train": list("abcde")}))
    for strict, listed in ((False, "damaged"), (True, "refused")):
        data = prepare(corpus, tmp_path / listed, PianoRemi(), workers=1, strict=strict)
        assert data["listed"][listed] == 1
        assert "1 data byte over 127" in data[listed]["e.mid"]


def test_what_the_tokens_do_not_contain_is_counted_on_the_card(tmp_path):
    events = b"\x00\xb0\x40\x7f\x00\xb0\x07\x50\x00\xe0\x00\x50"
    music = events + note(60, delta=13) + note(36, channel=9)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.mid").write_bytes(midi_file(tempo(590_000) + music + END))
    (corpus / "splits.json").write_text(json.dumps({"train": ["a"]}))
    data = prepare(corpus, tmp_path / "data", PianoRemi(), workers=1)
    lost = data["splits"]["train"]["losses"]
    assert list(lost.values())[:5] == [1, 1, 1, 1, 1]
    assert lost["onset_microseconds"] == pytest.approx(13 / 480 * 590_000, abs=2)
    card = (tmp_path / "data" / "README.md").read_text()
    assert "| train | 1 | 1 | 1 | 1 | 1 | 16.0 ms | 0.00 s |" in card


def test_copies_of_held_out_pieces_are_left_out_of_other_splits(midi_folder, tmp_path, capsys):
    midi, out = tmp_path / "midi", tmp_path / "out"
    for split, numbers in {"train": (0, 1, 2, 3), "validation": (4,), "test": (5,)}.items():
        (midi / split).mkdir(parents=True)
        for number in numbers:
            shutil.copy(midi_folder / "songs" / f"{number}.mid", midi / split)
    prepare(midi, tmp_path / "without", PianoRemi())
    for copied in ("train/as_test.mid", "validation/as_test.mid"):
        shutil.copy(midi_folder / "songs" / "5.mid", midi / copied)
    shutil.copy(midi_folder / "songs" / "4.mid", midi / "train" / "as_validation.mid")
    assert main(["prepare", "--corpus", str(midi), "--output", str(out), "--workers", "1"]) == 0
    said = "the same tokens as"
    assert f"copies: train/as_test.mid: {said} test/5.mid" in capsys.readouterr().err
    facts, before = read_facts(out), read_facts(tmp_path / "without")
    assert facts["copies"] == {
        "train/as_test.mid": f"{said} test/5.mid in the split test",
        "train/as_validation.mid": f"{said} validation/4.mid in the split validation",
        "validation/as_test.mid": f"{said} test/5.mid in the split test",
    }
    # all counts and tokens are those without the copies
    assert (facts["splits"], facts["hash"]) == (before["splits"], before["hash"])
    assert "3 copies of other pieces left out" in (out / "README.md").read_text()


def test_a_piece_of_drums_only_is_not_music_for_a_piano(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "train").mkdir(parents=True)
    drums = Score(480, (Track.of([(0, 60, 36, 90)], is_drum=True),))
    (corpus / "train" / "drums.mid").write_bytes(write_midi(drums))
    with pytest.raises(TrainingError, match="drums only"):
        prepare(corpus, tmp_path / "out", PianoRemi(), workers=1)
