"""Generated tasks: laws of their sequences, and training and evaluation of a run."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.pointer.config import GateConfig, PointerConfig
from tests.support.runs import assert_resumes, short_experiment
from training.cli import main
from training.errors import TrainingError
from training.learning.seeding import generator
from training.runs.fit import fit
from training.tasks.generated import NO_TARGET, GeneratedBatches, answers, split_of, with_pointer

MODEL = {
    "vocabulary_size": 192,
    "width": 16,
    "num_layers": 1,
    "num_heads": 2,
    "hidden": 16,
    "attention": {"kind": "delta"},
    "encoding": {"kind": "none"},
}
TASKS = {
    "recall": {"kind": "recall"},
    "copying": {"kind": "copying"},
    "parity": {"kind": "permutations", "objects": 2},
    "s3": {"kind": "permutations", "objects": 3},
    "s5": {"kind": "permutations", "objects": 5},
}
every_task = pytest.mark.parametrize("name", TASKS)


def experiment_of(name, **changes):
    task = {"model": MODEL, "size": 12, "batch_size": 8, "test_sizes": [8, 24]}
    return short_experiment(task | {"test_examples": 16, **TASKS[name], **changes})


def task_of(name, **changes):
    return experiment_of(name, **changes).task


def drawn(name, size, count=20, split="train", seed=0):
    rows = task_of(name).draw(generator(seed, 0, "data"), count, size, split)
    assert rows.shape[0] == count
    return rows[..., 0], rows[..., 1]


def recalled(row, task):
    """Target of each position by a dictionary of the pairs before it."""
    known, found = {}, [NO_TARGET] * len(row)
    for place in range(0, len(row), 2):
        key, value = row[place], row[place + 1]
        if key in known:
            found[place] = known[key]
        known[key] = value
    return found


def copied(row, task):
    """Target of each position by reading the string again after the separator."""
    place = row.index(task.num_symbols)
    text = row[:place]
    assert row[place + 1 :] == text[:-1]
    return [NO_TARGET] * len(text) + text


def tracked(row, task):
    """Target of each position by moving a deck of objects."""
    every = list(itertools.permutations(range(task.objects)))
    deck, found = tuple(range(task.objects)), []
    for one in row:
        deck = tuple(every[one][item] for item in deck)
        found.append(every.index(deck))
    return found


REFERENCES = {"recall": recalled, "copying": copied, "permutations": tracked}


@every_task
def test_targets_are_the_function_of_the_inputs_that_a_slow_reference_computes(name):
    task = task_of(name)
    for size in (8, 13, 24):
        inputs, targets = drawn(name, size)
        assert inputs.shape[1] == task.length_of(size)
        assert inputs.min() >= 0
        assert inputs.max() < task.num_tokens
        assert [REFERENCES[task.kind](row, task) for row in inputs.tolist()] == targets.tolist()


@every_task
def test_the_answer_is_not_an_input_before_it_is_asked_for(name):
    """No input equals a target more often than chance, other than by the rule of the task."""
    task = task_of(name)
    inputs, targets = drawn(name, 24, count=400)
    asked = targets != NO_TARGET
    for shift in (0, 1):
        earlier = np.roll(inputs, shift, axis=1)[:, 2:]
        share = (earlier == targets[:, 2:])[asked[:, 2:]].mean()
        assert share < task.chance + 0.03


@every_task
def test_guesses_are_right_as_often_as_chance(name):
    task = task_of(name)
    _, targets = drawn(name, 24, count=400)
    found = targets[targets != NO_TARGET]
    _, counts = np.unique(found, return_counts=True)
    assert counts.max() / len(found) == pytest.approx(task.chance, abs=0.02)
    decoder = replace(task.model, vocabulary_size=task.num_tokens).build().eval()
    measured = answers(decoder, task.test_set(24), batch_size=5)
    assert measured.tokens == pytest.approx(task.chance, abs=0.06)
    assert measured.examples == 0


@every_task
def test_splits_have_no_sequence_in_common(name):
    rows = {
        split: {
            row.tobytes() for seed in range(4) for row in drawn(name, 8, 60, split, seed)[0].copy()
        }
        for split in ("train", "validation", "test")
    }
    assert all(rows.values())
    for one, other in itertools.combinations(rows.values(), 2):
        assert not one & other
    [row] = drawn(name, 13, 1, "test")[0]
    assert split_of(row) == "test"


@every_task
def test_a_batch_depends_on_the_seed_and_the_step_only(name):
    first, second = (experiment_of(name).task for _ in range(2))
    config = experiment_of(name)
    batches = [task.build_data(config.trainer).examples for task in (first, second)]
    assert torch.equal(batches[0][7], batches[1][7])
    assert {batches[0][step].shape[1] for step in range(40)} == {
        first.length_of(size) for size in range(8, 13)
    }
    assert torch.equal(first.test_set(24), second.test_set(24))
    others = [first, second, task_of(name, smallest=7)]
    facts = [task.build_data(config.trainer).facts["hash"] for task in others]
    assert facts[0] == facts[1] != facts[2]


@pytest.mark.parametrize("name", ["copying", "s3"])
def test_a_resumed_run_equals_an_uninterrupted_one_and_is_evaluated(name, tmp_path, capsys):
    config = experiment_of(name)
    assert_resumes(config, tmp_path, GeneratedBatches)
    whole = tmp_path / "whole"
    assert not (whole / "tokenizer.json").exists()
    assert main(["evaluate", "--run", str(whole), "--threads", "1"]) == 0
    assert "| 24, beyond training |" in capsys.readouterr().out
    results = json.loads((whole / "evaluation" / "results.json").read_text())
    assert set(results["answers"]) == {"8", "24"}
    assert results["chance"] == config.task.chance


class Knowing(Decoder):
    """A decoder that knows the targets of a batch."""

    def __init__(self, config: DecoderConfig, targets: torch.Tensor) -> None:
        super().__init__(config)
        self.targets = targets.clamp(min=0)

    def forward(self, tokens, positions, state):
        return functional.one_hot(self.targets, self.config.vocabulary_size).double(), state


def test_the_measure_counts_right_answers():
    task = task_of("copying")
    examples = task.test_set(8)
    decoder = Knowing(task.model, examples[..., 1])
    assert answers(decoder, examples, len(examples)) == (1.0, 1.0)
    changed = examples.clone()
    changed[0, -1, 1] = (changed[0, -1, 1] + 1) % 32
    tokens, right = answers(decoder, changed, len(changed))
    assert right == 1 - 1 / len(examples)
    assert tokens == 1 - 1 / (8 * len(examples))


def test_a_pointer_copies_and_recalls_without_training():
    pointer = {"gates": {"similar": [-20, *range(4, 29)]}}
    few = {"model": MODEL | {"pointer": pointer}, "test_examples": 4}
    copying = task_of("copying", **few, num_symbols=160)
    found = answers(copying.model.build().eval(), copying.test_set(24), 8)
    assert 0.9 < found.tokens < 24 / 25  # the first symbol of a copy has no match
    recall = task_of("recall", **few)
    found = answers(recall.model.build().eval(), recall.test_set(24), 8)
    # sequences without units have one source; after two equal tokens and a different one, a
    # tolerant match is as long as that of a key alone, and the nearer one is used
    assert 0.4 < found.tokens < 0.65


def test_the_mixture_with_a_pointer_is_that_of_its_definition():
    """One source with the log-odds -2: its share is that of odds of e^-1 against the decoder."""
    config = PointerConfig(gates=GateConfig(similar=(-20.0, *[-2.0] * 25)))
    tokens, logits = torch.tensor([[1, 2, 3, 1, 2]]), torch.randn(1, 5, 6)
    found = with_pointer(config, tokens, logits).softmax(-1)
    wanted = logits.double().softmax(-1)
    wanted[0, 4, 3] += math.exp(-1)
    wanted /= wanted.sum(-1, keepdim=True)
    torch.testing.assert_close(found[0, [0, 1, 4]], wanted[0, [0, 1, 4]], rtol=1e-3, atol=1e-6)


def test_settings_that_cannot_be_are_refused():
    for name, changes, message in (
        ("copying", {"size": 7}, "size is 7"),
        ("copying", {"test_sizes": []}, "test_sizes are"),
        ("copying", {"num_symbols": 300}, "the task has 301 tokens"),
        ("copying", {"data": "somewhere"}, "data"),
        ("parity", {"model": MODEL | {"events": {}}}, "have no events"),
        ("recall", {"num_keys": 20}, "num_keys is 20"),
        ("s3", {"objects": 1}, "objects is 1"),
    ):
        with pytest.raises(TrainingError, match=message):
            task_of(name, **changes)
    with pytest.raises(TrainingError, match="too few sequences of size 1"):
        task_of("parity").draw(generator(0, 0, "data"), 2, 1, "validation")


def test_commands_for_music_refuse_runs_of_generated_tasks(tmp_path, capsys, data):
    run = str(tmp_path / "run")
    fit(experiment_of("parity"), tmp_path / "run", show=False)
    assert main(["evaluate", "--run", run]) == 0
    capsys.readouterr()
    for words, message in (
        (["export", "--run", run, "--output", str(tmp_path / "model")], "the task permutations"),
        (["report", run, "--output", str(tmp_path / "report")], "the task permutations"),
        (["evaluate", "--run", run, "--data", str(data)], "--data: only for a model of music"),
        (["fit-pointer", run, "--data", str(data)], "tokenizer"),
        (["evaluate", "--run", "piano"], "--data"),
        (["evaluate", "--run", run, "--split", "test", "--bars", "4"], "--split, --bars: only for"),
    ):
        assert main(words) == 2, words
        [line] = capsys.readouterr().err.splitlines()
        assert message in line
