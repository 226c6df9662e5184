from __future__ import annotations

import json
import resource
import shutil
import sys

import pytest
import torch

from relpe.models.checkpoint import load_model
from tests.support.paths import ROOT
from tests.support.runs import changed
from training.cli import main
from training.evaluation.evaluate import EvaluateOptions, evaluate
from training.experiment import build_experiment
from training.release import export
from training.runs.fit import fit
from training.runs.lineage import read_history
from training.runs.weights import digest, load_decoder


def readme(folder):
    return (folder / "README.md").read_text()


def test_a_model_is_exported_in_int8_and_its_card_says_so(run, tmp_path):
    sizes = []
    for precision in ("bfloat16", "int8"):
        output = tmp_path / precision
        main(["export", "--run", str(run), "--output", str(output), "--precision", precision])
        sizes.append((output / "model.safetensors").stat().st_size)
        assert read_history(output)[-1].weights == digest(load_model(output))
        assert ("in int8" in readme(output)) == (precision == "int8")
    assert sizes[1] < sizes[0]
    weights = [load_decoder(tmp_path / name)[0].project_out.weight for name in ("bfloat16", "int8")]
    assert not torch.equal(*weights)
    torch.testing.assert_close(*weights, rtol=0, atol=float(weights[0].abs().max()) / 250)


def test_only_results_of_the_same_weights_are_reported(experiment, data, run, tmp_path):
    """Weights are compared, and not their names."""
    adamw = {"optimizer": {"kind": "adamw", "learning_rate": 1e-2}}
    other = build_experiment(experiment | adamw)
    two = tmp_path / "two"
    fit(other, two, show=False)
    evaluate(EvaluateOptions(model=str(run), data=data, length=32, map_length=8))
    assert "Measured on the test split" in readme(export(run, tmp_path / "best"))
    again = "Not measured yet: run `relpe-train evaluate --weights last`"
    shutil.copytree(run / "evaluation", two / "evaluation")
    origins = [load_decoder(one)[1]._replace(digest="") for one in (run, two)]
    assert origins[0] == origins[1]
    card = readme(export(two, tmp_path / "model"))
    assert "Not measured yet: run `relpe-train evaluate --weights best`" in card
    assert "belong to other weights" in card

    # a new run in the same folder removes the files of the old one
    fit(other, run, fresh=True, show=False)
    assert not (run / "evaluation").exists()
    assert len(list((run / "tensorboard").glob("events*"))) == 1
    assert again in readme(export(run, tmp_path / "model", "last"))


def test_a_card_has_the_commands_of_all_segments(experiment, run, tmp_path, monkeypatch):
    path = run / "run.json"
    description = json.loads(path.read_text())
    description["sessions"][0]["command"] = "relpe-train fit --set 'a=6 [5, 6]'"
    path.write_text(json.dumps(description))
    monkeypatch.setattr(sys, "argv", ["relpe-train", "fit", "--set", "a=8 [5, 6]"])
    fit(build_experiment(changed(experiment, trainer={"token_budget": 8 * 64})), run, show=False)
    card = readme(export(run, tmp_path / "model"))
    assert "- Command from step 0: `relpe-train fit --set 'a=6 [5, 6]'`" in card
    assert "- Command from step 6: `relpe-train fit --set 'a=8 [5, 6]'`" in card


def test_a_card_credits_the_corpora_of_all_runs(run, tmp_path):
    path = run / "run.json"
    description = json.loads(path.read_text())
    data = description["data"]
    assert "the last, since" not in readme(export(run, tmp_path / "plain"))
    [corpus] = data["corpora"]
    credited = {"name": "jazz", "licence": "CC BY 4.0", "attribution": "Jane Doe, Jazz Piano."}
    # two corpora of the same name are both credited
    other = credited | {"attribution": "John Roe"}
    data["corpora"] = [corpus | credited | {"changes": "cut"}, corpus | other]
    data["splits"]["validation"]["files"] = 0
    path.write_text(json.dumps(description))
    model = export(run, tmp_path / "model")
    card = readme(model)
    assert "the last, since the validation split is empty" in card
    assert "- Licence of the data: CC BY 4.0 (jazz, jazz)." in card
    train = corpus["splits"]["train"]
    row = f"| jazz | 100.0% | {train['files']} | {train['tokens']:,} | CC BY 4.0 |"
    assert card.count(row) == 2
    assert "- jazz: licence CC BY 4.0. Jane Doe, Jazz Piano. Changes: cut." in card
    assert "John Roe" in card
    [past] = read_history(model)
    assert past.corpora[0].attribution == "Jane Doe, Jazz Piano."
    given = export(run, tmp_path / "given", licence="MIT")
    assert "- Licence of the data: MIT." in readme(given)


def test_the_readme_of_released_models_names_all_attributions():
    """Licences such as CC BY require it."""
    text = " ".join((ROOT / "checkpoints" / "README.md").read_text("utf-8").split())
    for path in sorted((ROOT / "checkpoints").glob("*/training.json")):
        for run in read_history(path.parent):
            for corpus in run.corpora:
                assert " ".join(corpus.attribution.split()) in text, (path, corpus.name)
                assert corpus.licence in text


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


@pytest.mark.parametrize("there", [False, True], ids=["new", "over another"])
def test_a_full_disk_is_reported_and_leaves_all_files_or_none(run, tmp_path, capsys, there):
    """Files are limited in size, as on a full disk."""
    whole = export(run, tmp_path / "made/new/model")
    expected = contents(whole)
    if there:
        (whole / "README.md").write_text("of before")
        (whole / "model-1-of-2.safetensors").write_text("of before")
        (whole / "notes.txt").write_text("mine")
        expected["notes.txt"] = b"mine"
    else:
        shutil.rmtree(tmp_path / "made")
    before = contents(tmp_path)
    if there:
        (whole.parent / "model.partial").mkdir()  # of an export that was killed
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = sorted({len(content) for content in expected.values()} - {4})
    codes = []
    for most in (0, sizes[0], sizes[-2], sizes[-1]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            codes.append(main(["export", "--run", str(run), "--output", str(whole)]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if codes[-1]:
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert said.startswith(f"relpe-train: {whole}: cannot be written (")
            assert contents(tmp_path) == before
            assert (tmp_path / "made").exists() == there
    assert codes == [2, 2, 2, 0]
    assert contents(whole) == expected
    assert not (whole.parent / "model.partial").exists()


def test_cards_of_released_models_are_short():
    for path in sorted((ROOT / "checkpoints").glob("*/README.md")):
        text = path.read_text("utf-8")
        sections = ("Data", "Runs")  # licences and commands are as long as they must be
        long = [text.partition(f"## {name}")[2].partition("\n## ")[0] for name in sections]
        assert len(text.split()) - sum(len(part.split()) for part in long) <= 800, path
