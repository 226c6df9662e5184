"""What other people's scripts rely on: commands, their options and output, and two functions."""

from __future__ import annotations

import csv
import json

import pytest

from app.cli.main import main as relpe
from relpe.models.checkpoint import save_model
from relpe.models.decoder import DecoderConfig
from relpe.models.pointer.config import PointerConfig
from tests.support.runs import piece
from tokenization.grid import notated_lines
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi
from training.cli import main as relpe_train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three pieces, and a model with a pointer."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "songs").mkdir()
    for number, name in enumerate(("one", "two", "three")):
        (folder / "songs" / f"{name}.mid").write_bytes(write_midi(piece(number, 8)))
    splits = {"train": ["one"], "validation": ["two"], "test": ["three"]}
    (folder / "songs" / "splits.json").write_text(json.dumps(splits))
    tokenizer = MultitrackRemi()
    config = DecoderConfig(
        vocabulary_size=len(tokenizer.vocabulary),
        width=16,
        num_layers=1,
        num_heads=2,
        hidden=16,
        pointer=PointerConfig(reach=64),
    )
    save_model(config.build().eval(), folder / "model")
    tokenizer.save(folder / "model")
    return folder


def test_files_are_read_and_their_bar_lines_found(folder):
    score = read_midi((folder / "songs" / "one.mid").read_bytes())
    assert score.ticks_per_beat == 480
    assert notated_lines(score, score.end_ticks)[:3].tolist() == [0, 1920, 3840]


def test_inspect_counts_bars_of_the_file(folder, capsys):
    song = folder / "songs" / "one.mid"
    assert relpe(["inspect", str(song), "--json", "--beats", "file"]) == 0
    inspected = json.loads(capsys.readouterr().out)
    score = read_midi(song.read_bytes())
    assert inspected["bars"] == len(notated_lines(score, score.end_ticks)) - 1


def test_a_batch_writes_its_manifest(folder):
    song, output = folder / "songs" / "one.mid", folder / "batch"
    words = ["--prompts", str(song), "--count", "1", "--bars", "1", "--backend", "torch"]
    words += ["--models", str(folder / "model"), "--output", str(output), "--beats", "file"]
    assert relpe(["batch", *words]) == 0
    with (output / "manifest.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert read_midi((output / row["file"]).read_bytes()).num_notes >= 0
    assert {"file", "model", "prompt", "seed", "bars"} <= row.keys()


def test_corpora_are_prepared_and_models_evaluated(folder, capsys, caplog):
    data = folder / "data"
    songs = ["--corpus", str(folder / "songs"), "--output", str(data), "--workers", "1"]
    assert relpe_train(["prepare", *songs, "--tokenizer", "multitrack-2"]) == 0
    with caplog.at_level("INFO"):
        words = ["--run", str(folder / "model"), "--data", str(data), "--length", "64"]
        words += ["--threads", "1", "--output", str(folder / "evaluation")]
        assert relpe_train(["evaluate", *words]) == 0
    shown = caplog.text + capsys.readouterr().err
    for line in ("windows of 64: ", "whole pieces: ", "whole pieces, with pointer: "):
        assert line in shown
