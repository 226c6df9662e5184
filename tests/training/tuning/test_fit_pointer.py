from __future__ import annotations

import itertools
import json
import logging
import shutil

import numpy as np
import pytest

import training.continuations as samples
from relpe.decoding.generate import Request
from relpe.models.checkpoint import load_model
from relpe.models.config import to_plain
from relpe.models.pointer.config import BalanceConfig
from relpe.models.pointer.pointer import Pointer
from tests.support.paths import ROOT
from tokenization.analysis.plan import analyse
from tokenization.presets import PRESETS, load_tokenizer
from tokenization.remi.vocabulary import (
    BAR,
    Families,
)
from tokenization.score import Score, Tempo, TimeSignature, Track
from training.cli import main
from training.continuations import continuations
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.evaluation.evaluate import EvaluateOptions, evaluate
from training.evaluation.likelihood import pointer_nats, streaming_nats
from training.evaluation.report import nats_line
from training.experiment import build_experiment
from training.release import export
from training.runs.pointer import read_pointer
from training.runs.weights import load_decoder, round_as_released
from training.tuning.fit_pointer import (
    FitPointerOptions,
    changed_balance,
    changed_temperature,
    fit_pointer,
    music_pointer,
)


def options(folder, data, **changes):
    return FitPointerOptions(model=str(folder), data=data, device="cpu", **changes)


def test_the_pointer_of_music_has_bars_as_units_and_the_families_of_released_models():
    found = music_pointer(PRESETS["piano-2"].build().vocabulary)
    assert found.unit == BAR
    description = json.loads((ROOT / "checkpoints" / "piano" / "model.json").read_text())
    released, plain = description["decoder"]["pointer"], to_plain(found)
    for name in ("unit", "ignored", "names", "families"):
        assert plain[name] == released[name]


def test_returns_name_the_bar_that_comes_back():
    remi = PRESETS["piano-2"].build()
    tune = Track.of([(48 * bar, 12, 60 + bar % 4, 64) for bar in range(12)])
    score = Score(12, (tune,), (Tempo(0, 120),), (TimeSignature(0, 4, 4),), 12 * 48)
    ids = remi.encode(score, analyse(score)).ids
    pointer = Pointer(music_pointer(remi.vocabulary))
    bars, distances = np.flatnonzero(ids == BAR), []
    for first, stop in itertools.pairwise([*bars, len(ids)]):
        pointer.extend(ids[first : first + 1])
        assert not pointer.sources().named.any()
        named = remi.families.return_
        end = first + 1 + int(np.flatnonzero(ids[first:] >= named)[0])
        pointer.extend(ids[first + 1 : end])
        distance = int(ids[end - 1]) - named
        distances.append(distance)
        sources = pointer.sources()
        assert (sources.named == 2).nonzero()[0].tolist() == [distance][: distance > 0]
        if distance:  # that bar is a source from its first event on
            assert sources.similar[distance] > 0
        pointer.extend(ids[end:stop])
    assert distances[0] == 0
    assert distances[-1] == 4


def test_a_run_keeps_its_pointer_and_reports_its_gain(fitted_run, run, data):
    found = read_pointer(fitted_run)
    assert found is not None
    decoder, origin = load_decoder(fitted_run)
    assert decoder.config.pointer == found.pointer
    assert found.fit.weights == origin.digest
    assert found.fit.data == json.loads((data / "data.json").read_text())["hash"]
    round_as_released(decoder)
    corpus = Corpus.load(data, "test")
    pieces = [np.asarray(corpus.piece(index), np.int64) for index in range(len(corpus))]
    nats = streaming_nats(decoder.eval(), pieces, 1024, 8)
    mixed = pointer_nats(found.pointer, pieces, nats)
    test = found.fit.test
    assert test.decoder == pytest.approx(np.concatenate(nats).mean())
    assert test.mixture == pytest.approx(np.concatenate(mixed).mean())
    assert test.mixture < test.decoder
    assert sum(one.tokens for one in test.families) == test.tokens
    total = sum(one.tokens * one.mixture for one in test.families)
    assert total == pytest.approx(test.tokens * test.mixture)
    assert found.fit.fitted.mixture < found.fit.fitted.decoder
    again = fit_pointer(options(run, data))[1]
    assert again.pointer == found.pointer
    assert again.fit.test == found.fit.test


def test_export_includes_the_pointer_and_evaluate_measures_it(fitted_run, data, tmp_path):
    results = evaluate(
        EvaluateOptions(
            model=str(fitted_run),
            data=data,
            length=32,
            reach=100,
            map_length=8,
            draws=2,
            output=fitted_run / "evaluation",
        )
    )
    found = read_pointer(fitted_run)
    assert found is not None
    whole, mixed = results["streaming"], results["streaming_pointer"]
    assert mixed["nats_per_note"] < whole["nats_per_note"]
    assert mixed["nats_per_note_deviation"] >= 0
    families = results["by_family"].values()
    for key in ("streaming", "streaming_pointer"):
        total = sum(family["tokens"] * family[key] for family in families)
        assert total == pytest.approx(results["tokens"] * results[key]["nats_per_token"])
    assert len(results["by_position_pointer"]["bins"]) == len(results["by_position"]["bins"])
    table = (fitted_run / "evaluation" / "evaluation.md").read_text()
    assert "| nats per note, whole pieces, with pointer |" in table

    folder = export(fitted_run, tmp_path / "model")
    assert load_model(folder).config.pointer == found.pointer
    assert json.loads((folder / "training.json").read_text())["pointer"]["fitted"]
    card = (folder / "README.md").read_text()
    assert card.index("## Pointer") < card.index("## Measured on the test split")
    assert "| whole pieces, with pointer |" in card
    assert "| with pointer |" in card
    assert nats_line(found.fit.test) in card

    # results without the pointer are not those of the model that is exported
    path = fitted_run / "evaluation" / "results.json"
    path.write_text(json.dumps(results | {"pointer": None}))
    card = (export(fitted_run, tmp_path / "model") / "README.md").read_text()
    assert "belong to other weights, or to another pointer" in card


def test_a_pointer_is_not_used_with_other_weights(fitted_run, tmp_path, caplog):
    folder = shutil.copytree(fitted_run, tmp_path / "run")
    path = folder / "pointer.json"
    content = json.loads(path.read_text())
    content["fit"]["weights"] = "0" * 64
    path.write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING):
        assert load_decoder(folder)[0].config.pointer is None
    assert "was fitted to other weights than best.ckpt" in caplog.text
    path.write_text(json.dumps(content | {"format_version": 9}))
    with pytest.raises(TrainingError, match="format 9, expected 1"):
        load_decoder(folder)
    path.write_text("{}")
    with pytest.raises(TrainingError, match="run relpe-train fit-pointer again"):
        load_decoder(folder)


def test_a_released_model_gets_its_pointer_in_place_or_in_a_copy(run, data, tmp_path, capsys):
    model = export(run, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    copy = tmp_path / "new" / "copy"
    words = ["fit-pointer", str(model), "--data", str(data), "--device", "cpu"]
    assert main([*words, "--output", str(copy)]) == 0
    said = capsys.readouterr().out
    assert "| predicted tokens, test split | number |" in said
    assert "Nats per note: " in said
    assert str(copy) in said
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert main(words) == 0
    for folder in (model, copy):
        pointer = load_model(folder).config.pointer
        assert pointer is not None
        assert (folder / "model.safetensors").read_bytes() == before["model.safetensors"]
        assert "fit-pointer" not in before["README.md"].decode()
    assert load_model(model).config == load_model(copy).config
    # a second fit replaces the record of the first one, and keeps what is not fitted
    description = json.loads((model / "model.json").read_text())
    description["decoder"]["pointer"]["balance"]["most_generated"] = 1.5
    (model / "model.json").write_text(json.dumps(description))
    fit_pointer(options(model, data, pieces=1, temperature=["Pitch=0.9"]))
    fit_pointer(options(model, data, pieces=1))
    assert (model / "README.md").read_text().count("## Pointer") == 1
    again = load_model(model).config.pointer
    assert again is not None
    assert again.balance.most_generated == 1.5
    assert sorted(again.balance.temperature)[:2] == [0.9, 1.0]
    assert len(list(model.parent.glob("*.partial"))) == 0


def test_few_pieces_and_a_folder_that_is_not_empty_are_told(run, data, tmp_path, caplog):
    model = export(run, tmp_path / "model")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "song.mid").write_bytes(b"music")
    with pytest.raises(TrainingError, match=r"copy: found other files, expected a new or an empty"):
        fit_pointer(options(model, data, pieces=1, output=copy))
    assert [path.name for path in copy.iterdir()] == ["song.mid"]
    (copy / "song.mid").unlink()
    fit_pointer(options(model, data, pieces=1, output=copy))
    assert "the split 'validation' has only 1 piece, and 'test' only 1" in caplog.text
    assert "will be replaced" not in caplog.text
    fit_pointer(options(model, data, pieces=1, output=copy))
    assert f"{copy}: the model in this folder will be replaced" in caplog.text


def test_invalid_input_of_a_fit_is_reported(run, data, emptied, tmp_path):
    with pytest.raises(TrainingError, match="--output is for released models"):
        fit_pointer(options(run, data, output=tmp_path / "model"))
    with pytest.raises(TrainingError, match="is empty; choose another one with --test-split"):
        fit_pointer(options(run, emptied("test")))
    with pytest.raises(TrainingError, match="is empty; choose another one with --split"):
        fit_pointer(options(run, emptied("validation")))
    with pytest.raises(TrainingError, match="found no split 'art'"):
        fit_pointer(options(run, data, split="art"))


@pytest.mark.usefixtures("quick_continuations")
def test_memory_is_an_option_of_sampling(experiment, data, monkeypatch):
    found = []
    monkeypatch.setattr(
        samples, "Request", lambda *x, **y: found.append(Request(*x, **y)) or found[-1]
    )
    decoder = build_experiment(experiment).task.model.build().eval()
    tokenizer = load_tokenizer(data)
    prompt = tokenizer.crop(np.asarray(Corpus.load(data, "test").piece(0), np.int64), 0, 2)
    continuations(decoder, tokenizer, [prompt], bars=1, memory=0.25)
    assert found[0].options.memory == 0.25


def test_a_balance_is_changed_field_by_field():
    vocabulary = PRESETS["piano-2"].build().vocabulary
    before = BalanceConfig(near=-1.0)
    changed = changed_balance(before, ["strength=0.5", "aligned=2"], vocabulary)
    assert changed == BalanceConfig(strength=0.5, aligned=2.0, near=-1.0)
    changes = ["notes=-1", "plan=2", "run=0.5"]
    by_family = changed_balance(changed, changes, vocabulary)
    families = list(Families(vocabulary).first_ids)
    values = dict(zip(families, zip(by_family.proposed, by_family.run, strict=True), strict=True))
    assert values["Pitch"] == values["Position"] == (-1, 0.5)
    assert values["Chord"] == values["Bar"] == (2, 0)
    with pytest.raises(TrainingError, match="NAME one of strength, most, most_generated, aligned"):
        changed_balance(changed, ["power=1"], vocabulary)
    for wrong in ("near=loud", "strength", "strength="):
        with pytest.raises(TrainingError, match=f"--balance {wrong}: .* a number, .*=0.5$"):
            changed_balance(changed, [wrong], vocabulary)


def test_the_temperature_is_changed_by_family():
    vocabulary = PRESETS["piano-2"].build().vocabulary
    names = list(Families(vocabulary).first_ids)
    first = changed_temperature(BalanceConfig(near=-1.0), ["Pitch=0.9"], vocabulary)
    second = changed_temperature(first, ["Chord=1.1", "Pitch=0.8"], vocabulary)
    assert second.near == -1.0
    assert first.temperature == tuple(0.9 if name == "Pitch" else 1.0 for name in names)
    changed = dict(zip(names, second.temperature, strict=True))
    assert {name: value for name, value in changed.items() if value != 1} == {
        "Chord": 1.1,
        "Pitch": 0.8,
    }
    assert changed_temperature(first, [], vocabulary) == first
    for wrong, expected in (
        ("Song=1", "one of Other, Bar, Time"),
        ("Pitch=low", r"such as Pitch=0\.9$"),
        ("Pitch=0", r"expected 0\.1 to 10\.0"),
    ):
        with pytest.raises(TrainingError, match=rf"--temperature {wrong}: .* {expected}"):
            changed_temperature(first, [wrong], vocabulary)
