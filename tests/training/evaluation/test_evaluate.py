from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import training.evaluation.evaluate as evaluation
from relpe.models.checkpoint import load_model
from tokenization.errors import TokenizerError
from tokenization.remi.multitrack import MultitrackRemi
from training.cli import main
from training.data.corpus import Corpus
from training.data.prepare import prepare
from training.errors import TrainingError
from training.evaluation.evaluate import EvaluateOptions, evaluate, summary
from training.evaluation.generated_music import GenerationOptions
from training.experiment import build_experiment
from training.release import export
from training.runs.fit import fit
from training.runs.weights import load_decoder


def test_a_run_is_evaluated_exported_and_loaded(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    options = EvaluateOptions(
        model=str(run),
        data=data,
        length=32,
        chunk=20,
        reach=100,
        ngram=3,
        batch_size=2,
        map_length=24,
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
    _, origin = load_decoder(run)
    assert results["weights"] == origin._asdict()
    assert results["weights"]["file"] == "best.ckpt"
    assert (run / "evaluation" / "nll_by_position.png").exists()

    folder = export(run, tmp_path / "piano", licence="MIT, by nobody")
    readme = (folder / "README.md").read_text()
    assert "MIT, by nobody" in readme
    assert f"{results['streaming']['nats_per_token']:.4f}" in readme
    assert f"`best.ckpt`, step {origin.step}, {origin.tokens:,} tokens" in readme
    released, (trained, _) = load_model(folder), load_decoder(run)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(released.state_dict()[name], tensor.bfloat16().float()), name

    again = EvaluateOptions(
        model=str(folder),
        data=data,
        length=32,
        output=tmp_path / "out",
        reach=100,
        batch_size=2,
        map_length=24,
    )
    measured = evaluate(again)
    assert measured["weights"]["file"] == "model.safetensors"
    # a run is evaluated with the weights that are released
    assert measured["weights"]["digest"] == results["weights"]["digest"]
    assert measured["windows_32"] == results["windows_32"]
    assert "weights rounded to bfloat16 as they are released" in readme


def test_released_models_are_evaluated_with_runs_and_curves_end_with_training(
    experiment, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    lengths = {}
    draw = evaluation.draw_by_position

    def drawn(curves, path, trained_length):
        lengths.update(dict.fromkeys(curves, trained_length))
        draw(curves, path, trained_length)

    monkeypatch.setattr(evaluation, "draw_by_position", drawn)
    fit(build_experiment(experiment), Path("runs/tiny"), show=False)
    export(Path("runs/tiny"), Path("models/released"))
    Path("runs/released").mkdir()
    for model in ("runs/tiny", "models/released"):
        options = EvaluateOptions(
            model=model, data=data, length=50, reach=100, threads=1, map_length=8
        )
        evaluate(options)
    assert lengths == {"tiny": 32, "released": None}
    assert sorted(path.name for path in Path("evaluation/released").iterdir()) == [
        "evaluation.md",
        "evaluation.png",
        "nll_by_position.csv",
        "nll_by_position.png",
        "results.json",
    ]
    assert list(Path("runs/released").iterdir()) == []

    (tmp_path / "models/released/tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        evaluate(EvaluateOptions(model="models/released", data=data))


def test_a_model_is_evaluated_on_its_own_vocabulary(experiment, data, midi_folder, tmp_path):
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    model = export(tmp_path / "run", tmp_path / "model")
    other = tmp_path / "multitrack"
    prepare(midi_folder, other, MultitrackRemi())
    for folder in (model, tmp_path / "run"):
        with pytest.raises(TrainingError, match=r"vocabulary than [^\n]* --tokenizer piano$"):
            evaluate(EvaluateOptions(model=str(folder), data=other))
    tokenizer = (other / "tokenizer.json").read_bytes()
    (model / "tokenizer.json").write_bytes(tokenizer)
    with pytest.raises(TrainingError, match="has 512 token ids, expected the"):
        evaluate(EvaluateOptions(model=str(model), data=other))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0}, "--length is 0, expected at least 1"),
        ({"length": -3}, "--length is -3"),
        ({"chunk": 0}, "--chunk is 0"),
        ({"reach": 0}, "--reach is 0"),
        ({"batch_size": 0}, "--batch-size is 0"),
        ({"draws": 0}, "--draws is 0"),
        ({"threads": 0}, "--threads is 0"),
        ({"ngram": 0}, "--ngram is 0"),
        ({"trained_length": 0}, "--trained-length is 0"),
        ({"map_length": 1}, "--map-length is 1"),
        ({"music_only": True}, "--music-only needs --continuations"),
    ],
)
def test_options_out_of_range_are_refused(data, changes, message):
    with pytest.raises(TrainingError, match=message):
        EvaluateOptions(model="x", data=data, **changes)


def test_an_order_too_large_is_refused_before_anything_is_read(data):
    with pytest.raises(TrainingError, match="--ngram is 9, expected 1 to 7"):
        evaluate(EvaluateOptions(model="none", data=data, ngram=9))


def test_an_empty_split_is_reported_with_the_others(experiment, emptied, tmp_path):
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    empty = emptied("test")
    with pytest.raises(TrainingError, match=r"'test' is empty; .*--split \(train has 5, val"):
        evaluate(EvaluateOptions(model=str(tmp_path / "run"), data=empty))


def test_draws_of_the_noise_are_averaged_and_their_spread_is_reported(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)

    def measured(draws):
        options = EvaluateOptions(
            model=str(run),
            data=data,
            length=32,
            device="cpu",
            draws=draws,
            batch_size=64,
            map_length=8,
        )
        results = evaluate(options)
        del results["seconds"]
        for name in ("seconds_per_token", "peak_memory_gib"):
            del results["costs"][name]
        return results

    one, three = measured(1), measured(3)
    assert measured(3) == three
    assert (one["draws"], three["draws"]) == (1, 3)
    for name in ("windows_32", "streaming"):
        assert set(one[name]) == {"nats_per_token", "nats_per_note", "nats_per_bar"}
        for unit in ("nats_per_token", "nats_per_note"):
            spread = three[name][f"{unit}_deviation"]
            assert 0 < spread < 1
            # none of three values is further than this from their mean
            assert abs(three[name][unit] - one[name][unit]) < 1.2 * spread
    export(run, tmp_path / "model")
    readme = (tmp_path / "model" / "README.md").read_text()
    token = three["streaming"]["nats_per_token"]
    deviation = three["streaming"]["nats_per_token_deviation"]
    assert f"{token:.4f} ± {deviation:.4f}" in readme
    assert "over 3 draws" in readme


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


def test_measuring_music_keeps_other_results_of_the_same_weights(
    experiment, data, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    options = EvaluateOptions(
        model=str(run), data=data, length=64, reach=100, batch_size=64, map_length=8
    )
    before = evaluate(replace(options, draws=2, trained_length=16))
    made = {"protocol": {"prompt_bars": 8, "bars": 32}}
    monkeypatch.setattr(evaluation, "measure_music", lambda *_, **__: made)
    for name in ("goals", "write_table", "draw_results"):
        monkeypatch.setattr(evaluation, name, lambda *_: [])
    alone = replace(options, music=(GenerationOptions(),), music_only=True)
    after = evaluate(alone)
    assert after["music_8_32"] == made
    assert {n: after[n] for n in before if n != "goals"} == {
        n: before[n] for n in before if n != "goals"
    }
    # and it is kept when the rest is measured again
    again = evaluate(options)
    assert again["music_8_32"] == made
    assert (again["draws"], again["trained_length"]) == (1, 32)
    # and so are results of an older version, with other prompts
    path = run / "evaluation/results.json"
    older = {"music" if name == "music_8_32" else name: of for name, of in again.items()}
    path.write_text(json.dumps(older))
    longer = GenerationOptions(prompt_bars=40, bars=16)
    both = evaluate(replace(alone, music=(longer,)))
    assert both["music_8_32"] == both["music_40_16"] == made
    assert "music" not in both
    # results of other weights are not kept
    other = evaluate(replace(alone, split="validation"))
    assert "streaming" not in other
    assert other["music_8_32"] == made


def test_an_encoding_without_maps_is_evaluated(experiment, data, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise ValueError("no map of it")

    monkeypatch.setattr(evaluation, "relativity", refused)
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    options = EvaluateOptions(model=str(tmp_path / "run"), data=data, length=64, batch_size=64)
    results = evaluate(options)
    assert results["relativity"] == {"length": 512, "why_not": "no map of it"}


def test_the_command_passes_its_options_on(monkeypatch, capsys, tmp_path):
    given = []

    def taken(options):
        given.append(options)
        return {
            "weights": {"tokens": 5},
            "parameters": 7,
            "split": "test",
            "data": "abc",
        }

    monkeypatch.setattr(evaluation, "evaluate", taken)
    command = ["evaluate", "--run", "x", "--data", str(tmp_path), "--trained-length", "64"]
    assert main(command) == 0
    assert "| parameters | 7 |" in capsys.readouterr().out
    music = ["--continuations", "9", "--per-prompt", "3", "--prompt-bars", "2", "--bars", "5"]
    sampling = ["--seed", "4", "--temperature", "0.5", "--top-p", "0.7", "--music-only"]
    assert main([*command, *music, *sampling, "--samples-output", str(tmp_path)]) == 0
    assert main([*command, "--continuations", "200", "--corpora", "pop909", "chopin"]) == 0
    assert [options.corpora for options in given] == [(), (), ("pop909", "chopin")]
    assert [options.music for options in given] == [
        (),
        (
            GenerationOptions(
                continuations=9,
                per_prompt=3,
                prompt_bars=2,
                bars=5,
                seed=4,
                temperature=0.5,
                top_p=0.7,
                samples_output=tmp_path,
            ),
        ),
        (GenerationOptions(),),
    ]
    assert [options.music_only for options in given] == [False, True, False]
    assert given[0].trained_length == 64
    assert main([*command, "--continuations", "9", "--top-p", "2"]) == 2
    assert "--top-p is 2.0, expected 0 to 1" in capsys.readouterr().err


def lengths(monkeypatch, tmp_path, *arguments):
    """Bars of prompt, new bars and folder of each kind of music that a command measures."""
    given = []

    def taken(options):
        given.extend(options.music)
        return {"weights": {"tokens": 5}, "parameters": 7, "split": "test", "data": "abc"}

    monkeypatch.setattr(evaluation, "evaluate", taken)
    command = ["evaluate", "--run", "x", "--data", str(tmp_path), "--continuations", "2"]
    code = main([*command, "--samples-output", str(tmp_path), *arguments])
    return code, [(music.prompt_bars, music.bars, music.samples_output) for music in given]


def test_each_length_of_prompt_has_its_own_folder(monkeypatch, tmp_path):
    one = lengths(monkeypatch, tmp_path, "--prompt-bars", "40", "--bars", "16")
    assert one == (0, [(40, 16, tmp_path)])
    both = [(8, 32, tmp_path / "music_8_32"), (40, 16, tmp_path / "music_40_16")]
    arguments = ("--prompt-bars", "8", "40", "--bars")
    assert lengths(monkeypatch, tmp_path, *arguments, "32", "16") == (0, both)
    alike = lengths(monkeypatch, tmp_path, *arguments, "4")[1]
    assert [bars for _, bars, _ in alike] == [4, 4]
    assert lengths(monkeypatch, tmp_path, *arguments, "1", "2", "3") == (2, [])


def test_the_same_kind_of_music_twice_is_refused(data):
    twice = (GenerationOptions(seed=1), GenerationOptions(seed=2))
    with pytest.raises(TrainingError, match="contain the same pair twice"):
        EvaluateOptions(model="x", data=data, music=twice)
