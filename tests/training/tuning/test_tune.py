from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from relpe.models.checkpoint import load_model
from tests.support.runs import band
from tokenization.midi import write_midi
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.score import Score
from training.cli import main
from training.data.prepare import prepare
from training.errors import TrainingError
from training.tasks.music import MusicModule
from training.tuning import measure
from training.tuning.measure import Measure
from training.tuning.pieces import read_own_pieces
from training.tuning.tune import TuneOptions, tune

REMI = PRESETS["piano-2"].build()
FILES = {"model.json", "model.safetensors", "tokenizer.json", "training.json", "README.md"}


@pytest.fixture
def options(songs, tiny_model, tmp_path, ticking):
    return TuneOptions(
        model=str(tiny_model),
        corpus=(songs,),
        output=tmp_path / "mine",
        minutes=1,
        learning_rate=1e-2,
        device="cpu",
    )


@pytest.mark.parametrize("method", ["full", "low-rank"])
def test_a_tuned_model_predicts_held_back_pieces_better_and_can_be_used(
    options, songs, midi_folder, tmp_path, method
):
    options = replace(options, method=method)
    if method == "full":  # what is forgotten is measured too
        prepare(midi_folder, tmp_path / "data", REMI, workers=1)
        options = replace(options, original=tmp_path / "data")
    made = tune(options)
    tuned = made.tuned
    assert not made.stopped
    assert tuned.after.decoder < tuned.before.decoder
    assert 0 < tuned.steps <= tuned.all_steps
    assert tuned.minutes <= options.minutes
    assert {path.name for path in options.output.iterdir()} == FILES
    # the figures are those of the files
    decoder = load_model(options.output)
    assert load_tokenizer(options.output).vocabulary.hash == REMI.vocabulary.hash
    held = Measure.of(read_own_pieces((songs,), REMI).held_back, REMI, None)
    assert held(decoder, REMI.families).decoder == pytest.approx(tuned.after.decoder, rel=1e-5)
    history = json.loads((options.output / "training.json").read_text())["history"]
    assert [run["name"] for run in history] == ["tiny", "mine"]
    assert history[1]["steps"] == tuned.steps
    card = (options.output / "README.md").read_text()
    for part in ("# mine", "`tiny`", method, f"{tuned.after.decoder:.3f}", *tuned.held_back):
        assert part.rpartition("/")[2] in card
    if method == "full":
        assert tuned.original_before is not None
        assert tuned.original_after is not None
        assert "validation music of `tiny`" in card
        return
    assert "was not measured" in card
    # the same command gives the same weights
    other = tmp_path / "other"
    assert tune(replace(options, output=other)).tuned.after == tuned.after
    weights = "model.safetensors"
    assert (other / weights).read_bytes() == (options.output / weights).read_bytes()


def test_a_model_of_several_instruments_can_be_tuned(options, tiny_model, tmp_path):
    songs, model = tmp_path / "songs", shutil.copytree(tiny_model, tmp_path / "model")
    songs.mkdir()
    for number in range(5):
        (songs / f"{number}.mid").write_bytes(write_midi(band(number, 8)))
    tokenizer = PRESETS["multitrack-2"].build()
    tokenizer.save(model)
    tuned = tune(replace(options, model=str(model), corpus=(songs,))).tuned
    assert tuned.after.decoder < tuned.before.decoder
    assert load_tokenizer(options.output).config == tokenizer.config


def test_tuning_ends_when_results_get_no_better(options, monkeypatch):
    least = iter([5.0, 4.0, *[4.5] * 100])
    monkeypatch.setattr(Measure, "decoder_only", lambda *_: next(least))
    made = tune(options).tuned
    assert made.steps < made.all_steps
    assert made.all_steps < 40


def test_a_tuning_that_gains_nothing_writes_nothing(options, monkeypatch):
    monkeypatch.setattr(Measure, "decoder_only", lambda *_: 1e9)
    with pytest.raises(TrainingError, match="nothing was written"):
        tune(options)
    assert not options.output.exists()


def test_ctrl_c_keeps_the_best_weights_so_far_or_nothing(options, monkeypatch):
    take, last = MusicModule.train_step, 1

    def interrupted(self, batch):
        if self.step == last:
            raise KeyboardInterrupt
        return take(self, batch)

    monkeypatch.setattr(MusicModule, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(options)
    assert [*options.output.parent.iterdir()] == []
    last = 4
    assert tune(options).stopped
    load_model(options.output)


def test_unusable_input_is_one_sentence(songs, tiny_model, tmp_path, capsys):
    given, output = shutil.copytree(songs, tmp_path / "given"), tmp_path / "mine"
    names = sorted(given.iterdir())
    for name in ("folder", "broken", "copies", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "mine.txt").touch()
    (tmp_path / "file").touch()
    unusable = {"broken": b"no MIDI", "copies": names[2].read_bytes()}
    for name, content in (unusable | {"empty": write_midi(Score(480, ()))}).items():
        for path in names:
            (tmp_path / name / path.name).write_bytes(
                content if path in names[:2] else path.read_bytes()
            )
    before = sorted(tmp_path.rglob("*"))
    for corpus, changes, message in (
        (names[:4], [], "found 4 MIDI files, expected at least 5"),
        ([tmp_path / "broken"], [], "6 files, of which 4 can be used"),
        ([tmp_path / "copies"], [], "the same music as"),
        ([tmp_path / "empty"], [], "no notes"),
        ([tmp_path / "nothing.mid"], [], "no such file"),
        (names, ["--model", "missing"], "no model 'missing'"),
        (names, ["--minutes", "0"], "--minutes"),
        (names, ["--output", tmp_path / "folder"], "expected a new or an empty folder"),
        (names, ["--output", tmp_path / "file"], "found a file"),
        (names, ["--original", given], "found no prepared corpus"),
    ):
        words = ["tune", "--model", tiny_model, "--output", output, *changes, "--corpus", *corpus]
        assert main([*map(str, words)]) == 2
        error = capsys.readouterr().err.strip().splitlines()
        assert message in error[-1]
        assert error[-1].startswith("relpe-train: ")
        assert sorted(tmp_path.rglob("*")) == before


def test_a_model_with_another_vocabulary_than_the_original_corpus_is_refused(
    options, tmp_path, monkeypatch
):
    monkeypatch.setattr(measure, "read_facts", lambda folder: {"vocabulary": "0"})
    with pytest.raises(TrainingError, match="another vocabulary"):
        tune(replace(options, original=tmp_path))


def test_a_measure_takes_the_beginnings_of_long_pieces(songs, tiny_model, monkeypatch):
    tokenizer, decoder = REMI, load_model(tiny_model)
    corpus = read_own_pieces((songs,), tokenizer).train
    whole = Measure.of(corpus, tokenizer, None)
    monkeypatch.setattr(measure, "MOST_TOKENS", 5 * 64)
    monkeypatch.setattr(measure, "_FEWEST_TOKENS", 1)
    cut = Measure.of(corpus, tokenizer, None)
    assert {len(piece) for piece in cut.pieces.ids} == {64}
    assert all(
        np.array_equal(piece, long[:64])
        for piece, long in zip(cut.pieces.ids, whole.pieces.ids, strict=True)
    )
    assert cut(decoder, tokenizer.families).decoder > 0
