"""Classification: laws of generated data and of batches, training, resuming and evaluation."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.runs import assert_resumes, metrics, short_experiment
from training.cli import main
from training.errors import TrainingError
from training.learning.seeding import generator
from training.runs.fit import fit
from training.tasks.classification.examples import Example, batch_of, in_memory
from training.tasks.lra.listops import IDS, draw_expression, generated, value_of
from training.tasks.task import Batches

MODEL: dict[str, Any] = {
    "input": {"kind": "tokens", "vocabulary_size": 16},
    **{"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "rope"}, "dropout": 0.2},
}
LISTOPS = {"kind": "listops", "shortest": 3, "max_length": 20, "batch_size": 8, "model": MODEL}
LISTOPS |= {"validation_examples": 20, "test_examples": 30}


def experiment_of(task: dict[str, Any] = LISTOPS, **trainer: Any) -> Any:
    return short_experiment(task, **trainer)


def ids(text: str) -> list[int]:
    return [IDS[word] for word in text.split()]


def test_values_of_expressions():
    for text, value in {
        "7": 7,
        "[MAX 2 9 4 ]": 9,
        "[MIN 2 [MAX 1 3 ] 4 ]": 2,
        "[SM 7 8 9 ]": 4,
        "[MED 1 2 9 ]": 2,
        "[MED 4 1 8 3 ]": 3,
        "[SM 9 [MED 5 [MIN 8 6 ] ] [MAX 0 ] ]": 4,
    }.items():
        assert value_of(ids(text)) == value
    for text in ("", "1 2", "[MAX 1", "1 ]", "[MAX ]"):
        with pytest.raises(ValueError, match=r"bracket|values"):
            value_of(ids(text))


def test_drawn_expressions_have_the_distribution_of_the_generator():
    draws, digits, arguments = generator(1, 0, "data"), 0, []
    for _ in range(600):
        tokens = draw_expression(draws, 10_000)
        if tokens is None:
            continue
        assert 0 <= value_of(tokens) <= 9
        digits += len(tokens) == 1
        counts, depth = [], 0
        for token in tokens:
            if token <= 4:
                if counts:
                    counts[-1] += 1
                counts.append(0)
                depth = max(depth, len(counts))
            elif token == IDS["]"]:
                arguments.append(counts.pop())
            elif counts:
                counts[-1] += 1
        assert depth <= 9
    assert abs(digits / 600 - 0.75) < 0.06  # 3 standard deviations
    assert (min(arguments), max(arguments)) == (2, 10)
    assert abs(np.mean(arguments) - 6) < 0.4


def test_generated_splits_have_nothing_in_common_and_are_the_same_each_time():
    found = {}
    for name in ("train", "validation", "test"):
        examples = generated(name, 8, 30)
        rows = [examples[index] for index in range(50)]
        assert all(8 <= len(row.inputs[0]) <= 30 for row in rows)
        assert all(value_of(row.inputs[0].tolist()) == row.label for row in rows)
        assert examples[3].inputs[0].tobytes() == rows[3].inputs[0].tobytes()
        found[name] = {row.inputs[0].tobytes() for row in rows}
    assert not found["train"] & found["test"]
    assert not found["train"] & found["validation"]
    assert not found["validation"] & found["test"]
    assert len(generated("train", 8, 30)) == 96_000


def test_padding_is_masked_unless_it_is_compatible():
    rows = [Example((np.array(row),), 1) for row in ([1, 2, 3], [4])]
    batch = batch_of(rows)
    assert batch.inputs.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
    compatible = batch_of(rows, 5)
    assert compatible.mask is None
    assert compatible.inputs.shape == (2, 5)
    pair = batch_of([Example((np.array([1, 2]), np.array([3])), 0)])
    assert pair.inputs.tolist() == [[[1, 2], [3, 0]]]
    assert pair.mask is not None
    assert pair.mask.shape == (1, 2, 2)
    parts = batch_of(rows * 3).chunk(3)
    assert [len(part) for part in parts] == [2, 2, 2]


def test_every_pass_reads_every_example_once_in_another_order():
    task = experiment_of().task
    examples = in_memory([Example((np.array([i + 1]),), i % 10) for i in range(16)])
    batches = Batches(task, examples, 0, range(8))
    first, second = ([batches[step].inputs[:, 0] for step in pair] for pair in ((0, 1), (2, 3)))
    assert sorted(torch.cat(first).tolist()) == list(range(1, 17))
    assert sorted(torch.cat(second).tolist()) == list(range(1, 17))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    halves = [Batches(task, examples, 0, rows)[1] for rows in (range(4), range(4, 8))]
    assert torch.cat([half.inputs for half in halves]).equal(batches[1].inputs)
    some = [example.label for example in examples.some(5)]
    assert len(some) == 5
    assert some == [example.label for example in examples.some(5)]


def test_a_run_is_trained_resumed_evaluated_and_reported(tmp_path, capsys):
    whole = assert_resumes(experiment_of(log_every=2), tmp_path, Batches)
    assert not metrics(tmp_path / "whole", "train/nats_per_token")
    assert metrics(tmp_path / "whole", "train/nats_per_example")
    *_, last = metrics(tmp_path / "whole", "validation/nats_per_example")
    assert float(last["validation/accuracy"]) == pytest.approx(whole.accuracy, abs=1e-5)
    assert float(last["validation/nats_per_example"]) == pytest.approx(whole.validation, abs=1e-4)
    assert whole.step == 4
    fit(experiment_of(seed=1), tmp_path / "other", show=False)
    for name in ("whole", "other"):
        assert main(["evaluate", "--run", str(tmp_path / name), "--threads", "1"]) == 0
    assert "of 30 examples right" in capsys.readouterr().out
    kept = shutil.copy(tmp_path / "other" / "last.ckpt", tmp_path / "kept.ckpt")
    words = ["evaluate", "--run", str(tmp_path / "other"), "--output", str(tmp_path / "of_kept")]
    assert main([*words, "--weights", str(kept)]) == 0
    found = json.loads((tmp_path / "of_kept" / "results.json").read_text())
    assert found["weights"]["file"] == "kept.ckpt"
    assert found["costs"]["parameters"] == found["parameters"]
    assert main([*words, "--weights", "none.ckpt"]) == 2
    assert "none.ckpt: no such file" in capsys.readouterr().err
    report = ["report", str(tmp_path / "whole"), str(tmp_path / "other")]
    assert main([*report, "--output", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    paths = (tmp_path / name / "evaluation" / "results.json" for name in ("whole", "other"))
    shares = [100 * json.loads(path.read_text())["accuracy"] for path in paths]
    assert f"{np.mean(shares):.2f} ± {np.std(shares, ddof=1):.2f} %" in text
    assert "| 30 | 0, 1 | whole, other |" in text
    assert main(["export", "--run", str(tmp_path / "whole"), "--output", str(tmp_path / "x")]) == 2
    assert "only music is released" in capsys.readouterr().err


def test_a_model_whose_blocks_end_with_a_norm_is_measured(tmp_path):
    task = experiment_of(LISTOPS | {"model": MODEL | {"norm": "post"}, "test_examples": 4}).task
    measured = task.evaluate(task.model.build().eval(), tmp_path, "test", 4)
    assert measured.results["examples"] == 4


def test_settings_that_do_not_fit_are_refused():
    small = {"input": {"kind": "tokens", "vocabulary_size": 5}}
    for changes, message in (
        ({"model": MODEL | {"num_classes": 4}}, "num_classes is 4"),
        ({"model": MODEL | {"towers": 2}}, "towers is 2"),
        ({"model": MODEL | {"input": {"kind": "values"}}}, "input.kind is values"),
        ({"model": MODEL | small}, "vocabulary_size is 5"),
        ({"shortest": 50}, "shortest is 50"),
    ):
        with pytest.raises(TrainingError, match=message):
            experiment_of(LISTOPS | changes)
