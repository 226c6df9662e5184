"""Transduction of sequences and trees: laws of the pairs, training and evaluation of a run."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

from tests.support.runs import assert_resumes, short_experiment
from training.cli import main
from training.errors import TrainingError
from training.tasks.task import Batches
from training.tasks.transduction.pair_task import START, nats_of
from training.tasks.transduction.pairs import NO_TARGET, batch_of
from training.tasks.transduction.task import transduced

MODEL = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16, "vocabulary_size": 128}
SEQUENCE = {"kind": "sequence_transduction", "size": 6, "deviation": 2, "test_sizes": [6, 12]}
TREE = {"kind": "tree_transduction", "size": 3, "deviation": 1, "test_sizes": [3, 5]}
TREE_ENCODING = {"kind": "algebraic", "structure": {"kind": "tree", "start": True}}
IN_TREE = MODEL | {"encoding": TREE_ENCODING, "axes": [1]}
TASKS = {
    "copy": SEQUENCE | {"function": "copy"},
    "repeat": SEQUENCE | {"function": "repeat", "train_examples": 20},
    "reverse": SEQUENCE | {"function": "reverse"},
    "tree copy": TREE | {"function": "copy"},
    "tree rotate": TREE | {"function": "rotate", "order": "depth", "model": IN_TREE},
    "tree c3": TREE | {"function": "c3", "order": "depth"},
    "tree ops": TREE | {"function": "ops", "model": IN_TREE},
}
every_task = pytest.mark.parametrize("name", TASKS)


def experiment_of(name, **changes):
    task = {"model": MODEL, "batch_size": 4, "test_examples": 6, "validation_examples": 6}
    return short_experiment({**task, **TASKS[name], **changes})


def task_of(name, **changes):
    return experiment_of(name, **changes).task


def test_targets_of_sequences_are_functions_of_their_sources():
    images = {"copy": lambda x: x, "repeat": lambda x: x + x, "reverse": lambda x: x[::-1]}
    for name, image in images.items():
        task = task_of(name)
        for pair in task.test_set(6):
            source, target = (part[:, 0].tolist() for part in pair)
            assert source[0] == target[0] == START
            assert source[-1] == target[-1] == task.end == 21
            assert target[1:-1] == image(source[1:-1])
            assert set(source[1:-1]) <= set(range(1, 21))


@every_task
def test_generation_of_the_right_tokens_ends_with_the_target(name):
    task = task_of(name)
    for pair in (task.example("train", index) for index in range(40)):
        target = task.target_of(pair)
        for label, *node in pair.target.tolist():
            assert not target.has_ended
            axes, target = target.read(label)
            assert list(axes) == node
        assert target.has_ended


@every_task
def test_splits_have_no_source_in_common_and_examples_are_those_of_their_index(name):
    task = task_of(name)
    sources = {
        split: {task.example(split, index).source.tobytes() for index in range(60)}
        for split in ("train", "validation", "test")
    }
    for one, other in itertools.combinations(sources.values(), 2):
        assert not one & other
    again = task_of(name).example("train", 7)
    assert all(map(np.array_equal, again, task.example("train", 7)))


def test_sizes_are_normally_distributed():
    task = task_of("copy", size=100, deviation=10)
    sizes = [len(task.example("train", index).source) - 2 for index in range(300)]
    assert np.mean(sizes) == pytest.approx(99.5, abs=2)
    assert np.std(sizes) == pytest.approx(10, abs=1.5)


def test_labels_of_operations_are_no_labels_of_nodes():
    task = task_of("tree ops", size=5)
    operations = set(range(task.first_operation, task.num_tokens))
    assert len(operations) == 4
    found = set()
    for index in range(60):
        pair = task.example("train", index)
        operation, pointer, *tree = pair.source[:, 0].tolist()
        assert operation in operations
        found.add(operation)
        assert not operations & {*tree, *pair.target[:, 0].tolist()}
        assert tree.count(pointer) == 1
        assert len(set(tree)) == len(tree)
    assert found == operations


@every_task
@torch.no_grad()
def test_padding_changes_no_loss_and_targets_alone_are_counted(name):
    task = task_of(name)
    model = task.model.build().double().eval()
    pairs = [task.example("train", index) for index in range(5)]
    batch = batch_of(pairs)
    together = float(nats_of(model, batch, model.init_state(5)))
    alone = sum(float(nats_of(model, batch_of([pair]), model.init_state(1))) for pair in pairs)
    assert together == pytest.approx(alone, rel=1e-9)
    tokens = int((batch.targets != NO_TARGET).sum())
    assert tokens == sum(len(pair.target) - 1 for pair in pairs)
    assert together / tokens == pytest.approx(math.log(128), rel=0.1)
    parts = batch.chunk(2)
    assert [len(part) for part in parts] == [3, 2]
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)


@every_task
@torch.no_grad()
def test_a_target_is_exact_if_and_only_if_all_its_tokens_are_most_likely(name):
    task = task_of(name)
    torch.manual_seed(1)
    model = task.model.build().double().eval()
    pairs = task.test_set(task.size)
    if name == "copy":  # a model is right about the targets that it writes itself
        written = [pair._replace(target=_greedy(model, pair)) for pair in pairs]
        assert transduced(model, task, written, batch_size=1).exact == 1
    batch = batch_of(pairs)
    logits, _ = model(batch.inputs, batch.read_by(model), positions=batch.positions)
    right = (logits.argmax(-1) == batch.targets) | (batch.targets == NO_TARGET)
    found = transduced(model, task, pairs, batch_size=4)
    assert found.exact == float(right.all(1).double().mean())
    nats = float(nats_of(model, batch, model.init_state(len(batch))))
    tokens = int((batch.targets != NO_TARGET).sum())
    assert math.log(found.perplexity) == pytest.approx(nats / tokens)
    assert found.examples == len(pairs)


def _greedy(model, pair):
    """A target of as many tokens as that of a pair, each of which is the most likely one."""
    batch = batch_of([pair])
    state = batch.read_by(model)
    tokens = [START]
    for _ in range(len(pair.target) - 1):
        tokens.append(int(model(torch.tensor([tokens]), state)[0][0, -1].argmax()))
    return np.array(tokens)[:, None]


def test_a_resumed_run_equals_an_uninterrupted_one_and_is_evaluated(tmp_path, capsys):
    config = experiment_of("tree rotate", model=IN_TREE | {"dropout": 0.2})
    assert_resumes(config, tmp_path, Batches)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run in (whole, parts):
        assert main(["evaluate", "--run", str(run), "--threads", "1"]) == 0
    assert "beyond training | " in capsys.readouterr().out
    results = json.loads((whole / "evaluation" / "results.json").read_text())
    assert set(results["transduced"]) == set(map(str, config.task.test_sizes))
    assert main(["report", str(whole), str(parts), "--output", str(tmp_path / "report")]) == 0
    lines = (tmp_path / "report" / "report.md").read_text().splitlines()
    assert len(lines) == 6
    assert lines[2].count("± 0.0") == 2
    assert lines[2].endswith("| 0, 0 | whole, parts |")
    capsys.readouterr()
    assert main(["evaluate", "--run", str(whole), "--bars", "3"]) == 2
    assert main(["export", "--run", str(whole), "--output", str(tmp_path / "model")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_settings_that_cannot_be_are_refused():

    for name, changes, message in (
        ("copy", {"size": 0}, "size is 0"),
        ("copy", {"test_sizes": []}, "test_sizes are"),
        ("copy", {"num_symbols": 127}, "the task has 129 tokens"),
        ("copy", {"data": "somewhere"}, "data"),
        ("tree c3", {"num_labels": 8}, "c3 has 4"),
        ("tree copy", {"model": MODEL | {"encoding": TREE_ENCODING}}, r"task.model.axes=\[1\]"),
        ("tree copy", {"model": MODEL | {"encoding": {"kind": "tree_sq"}}}, r"axes=\[1\]"),
        ("tree copy", {"order": "width"}, "'width'"),
    ):
        with pytest.raises(TrainingError, match=message):
            task_of(name, **changes)
    config = experiment_of("copy", model=MODEL | {"encoding": {"kind": "selective_rope"}})
    with pytest.raises(TrainingError, match="encoding selective_rope depends"):
        config.task.build_module(config.optimizer, config.trainer)
    with pytest.raises(TrainingError, match="too few sources of size 1"):
        task_of("copy", num_symbols=2, deviation=0).example("validation", 0, 1)
