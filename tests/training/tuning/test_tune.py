from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from relpe.models.checkpoint import load_model, save_model
from relpe.models.decoder import DecoderConfig
from tests.support.runs import band
from tokenization.midi import write_midi
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score
from training.cli import main
from training.data.prepare import prepare
from training.errors import TrainingError
from training.tuning import tune as tuning
from training.tuning.measure import Measure
from training.tuning.pieces import read_own_pieces
from training.tuning.tune import TuneOptions, tune

FILES = {"model.json", "model.safetensors", "tokenizer.json", "training.json", "README.md"}


@pytest.fixture
def options(songs, tiny_model, tmp_path, ticking):
    return TuneOptions(
        model=str(tiny_model),
        corpus=(songs,),
        output=tmp_path / "mine",
        minutes=3,
        learning_rate=1e-2,
        device="cpu",
    )


@pytest.mark.parametrize("method", ["full", "low-rank"])
def test_a_tuned_model_predicts_held_back_pieces_better_and_can_be_used(options, songs, method):
    made = tune(replace(options, method=method))
    tuned = made.tuned
    assert not made.stopped
    assert tuned.after.decoder < tuned.before.decoder
    assert 0 < tuned.steps <= tuned.all_steps
    assert tuned.minutes <= options.minutes
    assert {path.name for path in options.output.iterdir()} == FILES
    # the figures are those of the files
    decoder, tokenizer = load_model(options.output), PianoRemi()
    assert load_tokenizer(options.output).vocabulary.hash == tokenizer.vocabulary.hash
    held = Measure.of(read_own_pieces((songs,), tokenizer).held_back, tokenizer, None)
    assert held(decoder, tokenizer.families).decoder == pytest.approx(tuned.after.decoder, rel=1e-5)
    history = json.loads((options.output / "training.json").read_text())["history"]
    assert [run["name"] for run in history] == ["tiny", "mine"]
    assert history[1]["steps"] == tuned.steps
    card = (options.output / "README.md").read_text()
    for part in ("# mine", "`tiny`", method, f"{tuned.after.decoder:.3f}", *tuned.held_back):
        assert part.rpartition("/")[2] in card
    assert "was not measured" in card


@pytest.mark.parametrize("preset", ["piano-2", "multitrack", "multitrack-2"])
def test_models_of_every_vocabulary_can_be_tuned(options, tmp_path, preset):
    songs, model = tmp_path / "songs", tmp_path / "model"
    songs.mkdir()
    for number in range(5):
        (songs / f"{number}.mid").write_bytes(write_midi(band(number, 8)))
    tokenizer = PRESETS[preset].build()
    size = len(tokenizer.vocabulary)
    config = DecoderConfig(vocabulary_size=size, width=16, num_layers=1, num_heads=2, hidden=16)
    save_model(config.build(), model)
    tokenizer.save(model)
    tuned = tune(replace(options, model=str(model), corpus=(songs,), minutes=1)).tuned
    assert tuned.after.decoder < tuned.before.decoder
    assert load_tokenizer(options.output).vocabulary.hash == tokenizer.vocabulary.hash


def test_the_same_command_gives_the_same_weights(options, tmp_path):
    other, options = tmp_path / "other", replace(options, minutes=1)
    assert tune(options).tuned.after == tune(replace(options, output=other)).tuned.after
    weights = "model.safetensors"
    assert (other / weights).read_bytes() == (options.output / weights).read_bytes()


def test_what_is_forgotten_is_measured_on_the_original_music(options, data):
    made = tune(replace(options, original=data)).tuned
    assert made.original_before is not None
    assert made.original_after is not None
    assert "validation music of `tiny`" in (options.output / "README.md").read_text()


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


@pytest.mark.parametrize(("steps", "kept"), [(20, True), (1, False)])
def test_ctrl_c_keeps_the_best_weights_so_far_or_nothing(options, monkeypatch, steps, kept):
    take = tuning._Tuning._take_step

    def interrupted(self):
        if self.step == steps:
            raise KeyboardInterrupt
        take(self)

    monkeypatch.setattr(tuning._Tuning, "_take_step", interrupted)
    if kept:
        assert tune(options).stopped
        load_model(options.output)
    else:
        with pytest.raises(KeyboardInterrupt):
            tune(options)
        assert [*options.output.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("four files", "found 4 MIDI files, expected at least 5"),
        ("broken", "6 files, of which 4 can be used"),
        ("copies", "the same music as"),
        ("empty", "no notes"),
        ("nothing", "no such file"),
        ("no model", "no model 'missing'"),
        ("minutes", "--minutes"),
        ("output", "expected a new or an empty folder"),
        ("file", "found a file"),
        ("original", "found no prepared corpus"),
    ],
)
def test_unusable_input_is_one_sentence(songs, tiny_model, tmp_path, capsys, change, message):
    given = shutil.copytree(songs, tmp_path / "given")
    output, model, more = tmp_path / "mine", str(tiny_model), []
    names = sorted(given.iterdir())
    if change == "four files":
        names = names[:4]
    elif change in ("broken", "copies", "empty"):
        contents = {"broken": b"no MIDI", "copies": names[2].read_bytes()}
        contents["empty"] = write_midi(Score(480, ()))
        for path in names[:2]:
            path.write_bytes(contents[change])
    elif change == "nothing":
        names = [tmp_path / "nothing.mid"]
    elif change == "no model":
        model = "missing"
    elif change == "minutes":
        more = ["--minutes", "0"]
    elif change == "original":
        more = ["--original", str(given)]
    elif change == "output":
        output.mkdir()
        (output / "mine.txt").touch()
    elif change == "file":
        output.touch()
    before = sorted(tmp_path.rglob("*"))
    command = ["tune", "--model", model, "--output", str(output), *more, "--corpus"]
    assert main([*command, *map(str, names)]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert error[-1].startswith("relpe-train: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_with_another_vocabulary_than_the_original_corpus_is_refused(
    options, midi_folder, tmp_path
):
    prepare(midi_folder, tmp_path / "band", MultitrackRemi())
    with pytest.raises(TrainingError, match="another vocabulary"):
        tune(replace(options, original=tmp_path / "band"))


def test_a_measure_takes_the_beginnings_of_long_pieces(songs, tiny_model, monkeypatch):
    tokenizer, decoder = PianoRemi(), load_model(tiny_model)
    corpus = read_own_pieces((songs,), tokenizer).train
    whole = Measure.of(corpus, tokenizer, None)
    monkeypatch.setattr("training.tuning.measure.MOST_TOKENS", 5 * 64)
    monkeypatch.setattr("training.tuning.measure._FEWEST_TOKENS", 1)
    cut = Measure.of(corpus, tokenizer, None)
    assert {len(piece) for piece in cut.pieces} == {64}
    assert all(
        np.array_equal(piece, long[:64])
        for piece, long in zip(cut.pieces, whole.pieces, strict=True)
    )
    assert cut(decoder, tokenizer.families).decoder > 0
