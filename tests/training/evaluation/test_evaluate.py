from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import training.evaluation.evaluate as evaluation
from relpe.models.checkpoint import load_model
from tokenization.errors import TokenizerError
from tokenization.tokenizer import Vocabulary
from training.cli import main
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.evaluation import subject
from training.evaluation.evaluate import EvaluateOptions, evaluate, summary
from training.evaluation.generated_music import GenerationOptions
from training.release import export
from training.runs.weights import Origin, load_decoder


def test_a_run_is_evaluated_exported_and_loaded(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(evaluation, "draw_by_position", lambda *given: drawn.append(given[2]))
    options = EvaluateOptions(
        model=str(run),
        data=data,
        length=32,
        chunk=20,
        reach=100,
        ngram=3,
        batch_size=2,
        map_length=24,
        threads=1,
    )
    results = evaluate(options)
    assert json.loads((run / "evaluation" / "results.json").read_text()) == results
    assert results["pieces"] == results["by_position"]["pieces"] == 2
    for name in ("windows_32", "streaming"):
        ratio = results[name]["nats_per_note"] / results[name]["nats_per_token"]
        assert ratio == pytest.approx(results["tokens"] / results["notes"])
        ratio = results[name]["nats_per_bar"] / results[name]["nats_per_token"]
        assert ratio == pytest.approx(results["tokens"] / results["bars"])
    corpus = Corpus.load(data, "test")
    assert results["bars"] == sum(len(corpus.piece_bars(index)) for index in range(2))
    beyond = results["beyond_training"]
    assert beyond["pieces"] == 2
    bins = results["by_position"]["bins"]
    assert beyond["within"] * 32 + beyond["beyond"] * 68 == pytest.approx(
        sum(b["nats_per_token"] * (b["last"] - b["first"] + 1) for b in bins)
    )
    assert results["relativity"]["length"] == 24
    assert 0 <= results["relativity"]["translation_invariance"]["mean"] <= 1
    (goal,) = results["goals"]
    assert goal["holds"] == (beyond["difference"] <= 0.05)
    assert "| nats per bar, whole pieces |" in (run / "evaluation" / "evaluation.md").read_text()
    assert len(results["3-gram"]) == 4
    assert results["pointer"] is None
    assert not {"streaming_pointer", "by_position_pointer"} & results.keys()
    trained, origin = load_decoder(run)
    assert results["weights"] == origin._asdict()
    assert results["weights"]["file"] == "best.ckpt"

    folder = export(run, Path("models/released"), licence="MIT, by nobody")
    readme = (folder / "README.md").read_text()
    assert "MIT, by nobody" in readme
    assert "weights rounded to bfloat16 as they are released" in readme
    assert f"{results['streaming']['nats_per_token']:.4f}" in readme
    assert f"`best.ckpt`, step {origin.step}, {origin.tokens:,} tokens" in readme
    released = load_model(folder)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(released.state_dict()[name], tensor.bfloat16().float()), name

    measured = evaluate(replace(options, model="models/released", ngram=None))
    assert measured["weights"]["file"] == "model.safetensors"
    # a run is evaluated with the weights that are released
    assert measured["weights"]["digest"] == results["weights"]["digest"]
    assert measured["windows_32"] == results["windows_32"]
    assert drawn == [32, None]  # curves end with training
    names = ("evaluation.md", "evaluation.png", "nll_by_position.csv", "results.json")
    assert sorted(path.name for path in Path("evaluation/released").iterdir()) == [*names]

    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        evaluate(EvaluateOptions(model="models/released", data=data))


def test_a_model_is_evaluated_on_its_own_vocabulary(run, data, monkeypatch):
    load, options = subject.load_tokenizer, EvaluateOptions(model=str(run), data=data)
    other = SimpleNamespace(vocabulary=Vocabulary(tuple(map(str, range(5000)))))
    for others, message in (
        ([run], "the model has another vocabulary than [^\n]* --tokenizer of the model$"),
        ([run, data], "token ids, expected the 5000 of its tokenizer"),
    ):
        monkeypatch.setattr(
            subject, "load_tokenizer", lambda x, of=others: other if x in of else load(x)
        )
        with pytest.raises(TrainingError, match=message):
            evaluate(options)


def test_options_out_of_range_are_refused(data):
    twice = (GenerationOptions(seed=1), GenerationOptions(seed=2))
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({name: 0}, "is 0") for name in ("chunk", "reach", "batch_size", "draws", "threads")),
        *(({name: 0}, "is 0") for name in ("ngram", "trained_length")),
        ({"length": -3}, "--length is -3"),
        ({"map_length": 1}, "--map-length is 1"),
        ({"music_only": True}, "--music-only needs --continuations"),
        ({"music": twice}, "the same pair twice"),
    ]
    for changes, message in wrong:
        with pytest.raises(TrainingError, match=message):
            EvaluateOptions(model="x", data=data, **changes)
    # before anything is read
    with pytest.raises(TrainingError, match="--ngram is 9, expected 1 to"):
        evaluate(EvaluateOptions(model="none", data=data, ngram=9))


def test_an_empty_split_is_reported_with_the_others(run, emptied):
    empty = emptied("test")
    with pytest.raises(TrainingError, match=r"'test' is empty; .*--split \(train has 5, val"):
        evaluate(EvaluateOptions(model=str(run), data=empty))


def test_draws_of_the_noise_are_averaged_and_their_spread_is_reported(run, data, tmp_path):
    options = EvaluateOptions(
        model=str(run), data=data, length=32, device="cpu", batch_size=64, map_length=8
    )
    one, three = (evaluate(replace(options, draws=draws)) for draws in (1, 3))
    assert (one["draws"], three["draws"]) == (1, 3)
    for name in ("windows_32", "streaming"):
        assert set(one[name]) == {"nats_per_token", "nats_per_note", "nats_per_bar"}
        for unit in ("nats_per_token", "nats_per_note"):
            spread = three[name][f"{unit}_deviation"]
            assert 0 < spread < 1
            # none of three values is further than this from their mean
            assert abs(three[name][unit] - one[name][unit]) < 1.2 * spread
    export(run, tmp_path / "model")
    token = three["streaming"]["nats_per_token"]
    deviation = three["streaming"]["nats_per_token_deviation"]
    assert f"{token:.4f} ± {deviation:.4f}" in (tmp_path / "model" / "README.md").read_text()


def test_a_summary_is_the_mean_over_draws():
    draws = [[np.array([1.0, 2.0]), np.array([3.0])], [np.array([2.0, 2.0]), np.array([4.0])]]
    units = {"nats_per_note": 2, "nats_per_bar": 0}
    assert summary(draws[:1], units) == {
        "nats_per_token": 2.0,
        "nats_per_note": 3.0,
        "nats_per_bar": 6.0,
    }
    both = summary(draws, units)
    assert both["nats_per_token"] == pytest.approx(7 / 3)
    assert both["nats_per_note_deviation"] == pytest.approx(2**0.5 / 2)


def test_measuring_music_keeps_other_results_of_the_same_weights(run, data, monkeypatch):
    def refused(*_, **__):
        raise ValueError("no map of it")

    monkeypatch.setattr(evaluation, "relativity", refused)
    options = EvaluateOptions(model=str(run), data=data, length=64, reach=100, batch_size=64)
    before = evaluate(replace(options, draws=2, trained_length=16))
    assert before["relativity"] == {"length": 512, "why_not": "no map of it"}

    def measured(*given, **_):
        return {"of": given[4].key}

    monkeypatch.setattr(evaluation, "measure_music", measured)
    for name in ("goals", "write_table", "draw_results"):
        monkeypatch.setattr(evaluation, name, lambda *_: [])
    alone = replace(options, music=(GenerationOptions(),), music_only=True)
    after = evaluate(alone)
    assert after["music_8_32"] == {"of": "music_8_32"}
    assert {n: after[n] for n in before if n != "goals"} == {
        n: before[n] for n in before if n != "goals"
    }
    # and it is kept when the rest, or other music, is measured again
    again = evaluate(options)
    assert again["music_8_32"] == {"of": "music_8_32"}
    assert (again["draws"], again["trained_length"]) == (1, 32)
    longer = GenerationOptions(prompt_bars=40, bars=16)
    both = evaluate(replace(alone, music=(longer,)))
    assert both["music_8_32"] == again["music_8_32"]
    assert both["music_40_16"] == {"of": "music_40_16"}
    # results of other data are not kept
    other = evaluate(replace(alone, split="validation"))
    assert "streaming" not in other
    assert "music_40_16" not in other


RESULTS = {
    "model": "gone",
    "weights": Origin("best.ckpt", "0", tokens=5)._asdict(),
    "parameters": 7,
    "split": "test",
    "data": "abc",
}


def test_the_command_passes_its_options_on(monkeypatch, capsys, tmp_path):
    given = []
    monkeypatch.setattr(evaluation, "evaluate", lambda options: given.append(options) or RESULTS)
    command = ["evaluate", "--run", "x", "--data", str(tmp_path), "--trained-length", "64"]
    assert main(command) == 0
    assert "| parameters | 7 |" in capsys.readouterr().out
    words = "--continuations 9 --per-prompt 3 --prompt-bars 2 --bars 5 --seed 4 --temperature 0.5"
    words += f" --top-p 0.7 --music-only --memory 0.25 --samples-output {tmp_path}"
    assert main([*command, *words.split()]) == 0
    assert main([*command, "--continuations", "200", "--corpora", "pop909", "chopin"]) == 0
    assert [options.corpora for options in given] == [(), (), ("pop909", "chopin")]
    asked = GenerationOptions(
        **{"continuations": 9, "per_prompt": 3, "prompt_bars": 2, "bars": 5, "seed": 4},
        **{"temperature": 0.5, "top_p": 0.7, "memory": 0.25, "samples_output": tmp_path},
    )
    assert [options.music for options in given] == [(), (asked,), (GenerationOptions(),)]
    assert [options.music_only for options in given] == [False, True, False]
    assert given[0].trained_length == 64


def test_each_length_of_prompt_has_its_own_folder(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(evaluation, "evaluate", lambda options: given.append(options) or RESULTS)
    command = ["evaluate", "--run", "x", "--data", str(tmp_path), "--continuations", "2"]
    command += ["--samples-output", str(tmp_path), "--prompt-bars"]
    assert main([*command, "40", "--bars", "16"]) == 0
    assert main([*command, "8", "40", "--bars", "32", "16"]) == 0
    assert main([*command, "8", "40", "--bars", "4"]) == 0
    pairs = [[(music.prompt_bars, music.bars) for music in options.music] for options in given]
    assert pairs == [[(40, 16)], [(8, 32), (40, 16)], [(8, 4), (40, 4)]]
    folders = [[music.samples_output for music in options.music] for options in given[:2]]
    assert folders == [[tmp_path], [tmp_path / "music_8_32", tmp_path / "music_40_16"]]
    assert main([*command, "8", "40", "--bars", "1", "2", "3"]) == 2
