from __future__ import annotations

import json
import resource
import shutil
import sys

import pytest
import torch

from relpe.models.checkpoint import load_model
from tests.support.paths import ROOT
from training.cli import main
from training.errors import TrainingError
from training.evaluation.evaluate import EvaluateOptions, evaluate
from training.experiment import build_experiment
from training.release import export
from training.runs.fit import fit
from training.runs.lineage import read_history
from training.runs.weights import digest, load_decoder


def test_export_does_not_report_results_of_other_weights(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    evaluate(EvaluateOptions(model=str(run), data=data, length=32))
    export(run, tmp_path / "best")
    export(run, tmp_path / "last", "last")
    assert "Measured on the test split" in (tmp_path / "best" / "README.md").read_text()
    readme = (tmp_path / "last" / "README.md").read_text()
    assert "Not measured yet: run `relpe-train evaluate --weights last`" in readme


def test_a_model_is_exported_in_int8_and_its_card_says_so(experiment, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    sizes = []
    for precision in ("bfloat16", "int8"):
        output = tmp_path / precision
        main(["export", "--run", str(run), "--output", str(output), "--precision", precision])
        sizes.append((output / "model.safetensors").stat().st_size)
        assert read_history(output)[-1].weights == digest(load_model(output))
        assert ("in int8" in (output / "README.md").read_text()) == (precision == "int8")
    assert sizes[1] < sizes[0]
    weights = [load_decoder(tmp_path / name)[0].project_out.weight for name in ("bfloat16", "int8")]
    assert not torch.equal(*weights)
    torch.testing.assert_close(*weights, rtol=0, atol=float(weights[0].abs().max()) / 250)


def test_export_compares_weights_and_not_their_names(experiment, data, tmp_path):
    other = experiment | {"optimizer": {"kind": "adamw", "learning_rate": 1e-2}}
    for run, config in (("one", experiment), ("two", other)):
        fit(build_experiment(config), tmp_path / run, show=False)
    one, two = tmp_path / "one", tmp_path / "two"
    evaluate(EvaluateOptions(model=str(one), data=data, length=32, weights="last"))
    shutil.copytree(one / "evaluation", two / "evaluation")
    origins = [load_decoder(run, "last")[1]._replace(digest="") for run in (one, two)]
    assert origins[0] == origins[1]
    export(two, tmp_path / "model", "last")
    readme = (tmp_path / "model" / "README.md").read_text()
    assert "Not measured yet" in readme
    assert "belong to other weights" in readme

    # a new run in the same folder removes the files of the old one
    fit(build_experiment(other), one, fresh=True, show=False)
    assert not (one / "evaluation").exists()
    assert len(list((one / "tensorboard").glob("events*"))) == 1
    export(one, tmp_path / "model", "last")
    assert "Not measured yet: run" in (tmp_path / "model" / "README.md").read_text()


def test_a_card_has_the_commands_of_all_segments(experiment, data, tmp_path, monkeypatch):
    for steps in (6, 8):
        monkeypatch.setattr(sys, "argv", ["relpe-train", "fit", "--set", f"a={steps} [5, 6]"])
        longer = {"trainer": experiment["trainer"] | {"token_budget": steps * 64}}
        fit(build_experiment(experiment | longer), tmp_path / "run", show=False)
    readme = (export(tmp_path / "run", tmp_path / "model") / "README.md").read_text()
    assert "- Command from step 0: `relpe-train fit --set 'a=6 [5, 6]'`" in readme
    assert "- Command from step 6: `relpe-train fit --set 'a=8 [5, 6]'`" in readme


def test_a_card_reports_that_weights_were_not_validated(experiment, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    description = json.loads((run / "run.json").read_text())
    assert "the last, since" not in (export(run, tmp_path / "a") / "README.md").read_text()
    description["data"]["splits"]["validation"]["files"] = 0
    (run / "run.json").write_text(json.dumps(description))
    readme = (export(run, tmp_path / "b") / "README.md").read_text()
    assert "the last, since the validation split is empty" in readme


def test_an_interrupted_copy_does_not_damage_the_previous_model(experiment, tmp_path, monkeypatch):
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    model = export(tmp_path / "run", tmp_path / "model")
    (model / "README.md").write_text("of before")
    before = contents(model)

    def broken(source, target):
        target.write_text("{")
        raise OSError("disk full")

    monkeypatch.setattr(shutil, "copyfile", broken)
    with pytest.raises(TrainingError, match="full"):
        export(tmp_path / "run", model)
    assert contents(model) == before


def test_a_card_credits_the_corpora_of_all_runs(experiment, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    description = json.loads((run / "run.json").read_text())
    [corpus] = description["data"]["corpora"]
    credited = {"name": "jazz", "licence": "CC BY 4.0", "attribution": "Jane Doe, Jazz Piano."}
    description["data"]["corpora"] = [corpus | credited | {"changes": "cut"}]
    (run / "run.json").write_text(json.dumps(description))
    model = export(run, tmp_path / "model")
    readme = (model / "README.md").read_text()
    assert "- Licence of the data: CC BY 4.0 (jazz)." in readme
    assert "| jazz | 100.0% | 5 | 1,861 | CC BY 4.0 |" in readme
    assert "- jazz: licence CC BY 4.0. Jane Doe, Jazz Piano. Changes: cut." in readme
    [past] = read_history(model)
    assert past.corpora[0].attribution == "Jane Doe, Jazz Piano."
    given = export(run, tmp_path / "given", licence="MIT")
    assert "- Licence of the data: MIT." in (given / "README.md").read_text()


def test_corpora_of_the_same_name_are_all_credited(experiment, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    description = json.loads((run / "run.json").read_text())
    [corpus] = description["data"]["corpora"]
    both = [corpus | {"name": "jazz", "attribution": whom} for whom in ("Jane Doe", "John Roe")]
    description["data"]["corpora"] = both
    (run / "run.json").write_text(json.dumps(description))
    readme = (export(run, tmp_path / "model") / "README.md").read_text()
    assert "Jane Doe" in readme
    assert "John Roe" in readme


def test_the_readme_of_released_models_names_all_attributions():
    """Licences such as CC BY require it."""
    readme = " ".join((ROOT / "checkpoints" / "README.md").read_text("utf-8").split())
    for path in sorted((ROOT / "checkpoints").glob("*/training.json")):
        for run in read_history(path.parent):
            for corpus in run.corpora:
                assert " ".join(corpus.attribution.split()) in readme, (path, corpus.name)
                assert corpus.licence in readme


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="expected the folder of a run"):
        export(tmp_path, tmp_path / "out")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


@pytest.mark.parametrize("there", [False, True], ids=["new", "over another"])
def test_a_full_disk_is_reported_and_leaves_all_files_or_none(experiment, tmp_path, capsys, there):
    """Files are limited in size, as on a full disk."""
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    whole = export(tmp_path / "run", tmp_path / "made/new/model")
    expected = contents(whole)
    if there:
        (whole / "README.md").write_text("of before")
    else:
        shutil.rmtree(tmp_path / "made")
    before = contents(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    codes = []
    for most in (0, *sorted(map(len, expected.values()))):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            codes.append(main(["export", "--run", str(tmp_path / "run"), "--output", str(whole)]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if codes[-1]:
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert said.startswith(f"relpe-train: {whole}: cannot be written (")
            assert contents(tmp_path) == before
            assert (tmp_path / "made").exists() == there
    assert codes == [2] * len(expected) + [0]
    assert contents(whole) == expected
    assert not (whole.parent / "model.partial").exists()


def test_a_smaller_model_replaces_all_files_of_a_larger_one(experiment, tmp_path):
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    model = tmp_path / "model"
    model.mkdir()
    for name in ("model-1-of-2.safetensors", "model-2-of-2.safetensors", "notes.txt"):
        (model / name).write_text("old")
    (tmp_path / "model.partial").mkdir()
    (tmp_path / "model.partial" / "half").write_text("of an export that was killed")
    export(tmp_path / "run", model)
    assert sorted(path.name for path in model.iterdir()) == [
        "README.md",
        "metrics.csv",
        "model.json",
        "model.safetensors",
        "notes.txt",
        "tokenizer.json",
        "training.json",
    ]
    assert not (tmp_path / "model.partial").exists()
