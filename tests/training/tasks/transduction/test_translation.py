"""Translation: laws of splits, batches and losses; runs from files to translations."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from torch.nn.functional import cross_entropy

from relpe.decoding.transduce import Line, transduce
from tests.support.parallel_files import number_pairs, write_both, write_lines
from tests.support.runs import assert_resumes, short_experiment
from training.cli import main
from training.errors import TrainingError
from training.tasks.task import Batches
from training.tasks.transduction.bpe import END
from training.tasks.transduction.pair_task import START, nats_of
from training.tasks.transduction.pairs import NO_TARGET, batch_of
from training.tasks.transduction.translation import likelihood, translated

pytest.importorskip("tokenizers")
MODEL = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16, "vocabulary_size": 290}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder with parallel text: all numbers, and some of them in files of their own."""
    folder = tmp_path_factory.mktemp("text")
    pairs = number_pairs(200)
    for name, part in {"all": pairs, "test": pairs[:20], "dev": pairs[20:30]}.items():
        write_both(folder, name, part)
    return folder


def experiment_of(folder, steps=4, **changes):
    task = {
        **{"kind": "translation", "data": str(folder), "train": ["all.tsv"], "model": MODEL},
        **{"batch_size": 4, "longest": 40, "validation_examples": 6, **changes},
    }
    return short_experiment(task, steps)


def task_of(folder, **changes):
    return experiment_of(folder, **changes).task


@pytest.mark.parametrize("own", [{}, {"test": ["test.tsv"]}])
def test_no_source_of_the_training_files_is_in_two_splits(text, own):
    task = task_of(text, train=[["all.en", "all.fr"], "all.mo"], **own)
    drawn = [name for name in ("train", "validation", "test") if name not in own]
    sources = [{pair.source for pair in task.texts(name)} for name in drawn]
    for one, other in itertools.combinations(sources, 2):
        assert one
        assert other
        assert not one & other
    assert set.union(*sources) == {source for source, _ in number_pairs(200)}
    assert len(task.texts("train")) == len(set(task.texts("train")))
    if own:
        assert task.texts("test") == number_pairs(200)[:20]


def test_splits_with_files_of_their_own_are_these_files(text):
    task = task_of(text, validation=[["dev.en", "dev.fr"]], test=["test.tsv", "dev.tsv"])
    assert task.texts("train") == number_pairs(200)
    assert task.texts("validation") == number_pairs(200)[20:30]
    assert task.texts("test") == number_pairs(200)[:30]


def test_equal_and_long_pairs_are_left_out(tmp_path):
    write_lines(tmp_path / "a.tsv", ["one\tone", "u\tv w z", "three\ta b c d e f g h i", "x\ty"])
    files = {"train": ["a.tsv"], "validation": ["a.tsv"], "test": ["a.tsv"]}
    assert len(task_of(tmp_path, **files).texts("train")) == 4
    task = task_of(tmp_path, **files, drop_equal=True, longest=10)
    assert len(task.texts("test")) == 3
    kept = task.pairs("train", task.tokenizer)
    assert len(kept) == 2
    assert kept.lengths.max() <= 10
    assert len(task.pairs("test", task.tokenizer)) == 3
    task = replace(task, largest_ratio=1.2)
    [[source, target]] = task.pairs("train", task.tokenizer)
    assert [len(source), len(target)] == [3, 3]
    write_lines(tmp_path / "b.tsv", ["one two\tun deux"])
    with pytest.raises(TrainingError, match="no training pair has at most 3 tokens"):
        replace(task, longest=3, train=(("b.tsv",),)).pairs("train", task.tokenizer)


def test_a_pass_has_each_pair_at_most_once_in_batches_of_similar_lengths(text):
    task = task_of(text)
    pairs = task.pairs("train", task.tokenizer)
    batches, again = (Batches(task, pairs, 3, range(4)) for _ in range(2))
    steps = len(pairs) // 4
    first = [batches[step] for step in range(steps)]
    assert torch.equal(first[5].inputs, again[5].inputs)
    seen = {tuple(filter(None, row.tolist())) for batch in first for row in batch.source}
    assert len(seen) == sum(map(len, first)) == 4 * steps
    padding = np.mean([float((batch.targets == NO_TARGET).double().mean()) for batch in first])
    shuffled = batch_of(pairs[: 4 * steps])
    assert padding < float((shuffled.targets == NO_TARGET).double().mean())
    assert any(not torch.equal(first[0].inputs, batches[steps + n].inputs) for n in range(2))
    other = Batches(task, pairs, 4, range(4))
    assert any(not torch.equal(first[n].inputs, other[n].inputs) for n in range(2))
    parts = [Batches(task, pairs, 3, rows)[0] for rows in (range(2), range(2, 4))]
    assert sum(int((part.targets != NO_TARGET).sum()) for part in parts) == int(
        (first[0].targets != NO_TARGET).sum()
    )


@torch.no_grad()
def test_padding_changes_no_loss_and_smoothing_of_0_is_cross_entropy(text):
    task = task_of(text)
    torch.manual_seed(0)
    model = task.model.build().double().eval()
    pairs = task.pairs("test", task.tokenizer)[:5]
    batch = batch_of(pairs)
    assert (batch.targets == NO_TARGET).any()

    def smoothed(smoothing):
        return float(nats_of(model, batch, model.init_state(5), smoothing))

    alone, uniform = 0.0, 0.0
    for pair in pairs:
        one = batch_of([pair])
        logits, _ = model(one.inputs, model.read(one.source, model.init_state(1)))
        alone += float(cross_entropy(logits[0], one.targets[0], reduction="sum"))
        uniform -= float(logits[0].log_softmax(-1).mean(-1).sum())
    assert smoothed(0.0) == pytest.approx(alone, rel=1e-9)
    assert smoothed(1.0) == pytest.approx(uniform, rel=1e-9)
    assert smoothed(0.1) == pytest.approx(0.9 * alone + 0.1 * uniform, rel=1e-9)
    nats, tokens = likelihood(model, pairs, 2)
    assert nats == pytest.approx(alone)
    assert tokens == sum(len(pair.target) - 1 for pair in pairs)


def test_translations_do_not_depend_on_the_batch_and_one_beam_is_greedy(text):
    task = task_of(text)
    torch.manual_seed(0)
    model = task.model.build().double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    pairs = task.pairs("test", task.tokenizer)[:6]
    found = translated(model, task, pairs, 4)
    assert found == translated(model, task, pairs, 1)
    greedy = translated(model, replace(task, beams=1), pairs, 4)
    for pair, tokens, beam in zip(pairs, greedy, found, strict=True):
        most = task.most_tokens(len(pair.source))
        assert max(len(tokens), len(beam)) <= most
        source = torch.from_numpy(pair.source[None, :, 0])
        state = model.read(source, model.init_state(1))
        assert [tokens] == transduce(model, state, START, [Line(END)], most)


def test_a_resumed_run_equals_an_uninterrupted_one_and_is_evaluated(
    text, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("sacrebleu")
    model = MODEL | {"dropout": 0.2}
    config = experiment_of(text, label_smoothing=0.1, test=["test.tsv"], model=model)
    assert_resumes(config, tmp_path, Batches)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run in (whole, parts):
        assert main(["evaluate", "--run", str(run), "--threads", "1"]) == 0
    assert "| 4 beams | " in capsys.readouterr().out
    results = json.loads((whole / "evaluation" / "results.json").read_text())
    assert results["pairs"] == 20
    assert set(results["translated"]) == {"greedy", "beam", "source"}
    assert results["perplexity"] == pytest.approx(290, rel=0.3)
    assert "tok:13a" in results["signatures"]["bleu"]
    lines = (whole / "evaluation" / "translations.tsv").read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines[1:]] == [list(p) for p in number_pairs(20)]
    assert all(line.count("\t") == 3 for line in lines)
    assert main(["report", str(whole), str(parts), "--output", str(tmp_path / "report")]) == 0
    table = (tmp_path / "report" / "report.md").read_text().splitlines()
    assert table[3].count("± 0.0") == 4
    assert "| 0, 0 | whole, parts |" in table[3]
    capsys.readouterr()
    for words in (["--bars", "3"], ["--split", "dev"], ["--data", str(tmp_path)]):
        assert main(["evaluate", "--run", str(whole), *words]) == 2
    (whole / "tokenizer.json").unlink()
    assert main(["evaluate", "--run", str(whole)]) == 2
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    assert main(["evaluate", "--run", str(parts)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5
    assert "needs the package sacrebleu; run pip" in errors[-1]


def test_settings_that_cannot_be_are_refused(text):
    for changes, message in (
        ({"train": []}, "train names no files"),
        ({"beams": 0}, "beams is 0"),
        ({"largest_ratio": 0.5}, "largest_ratio is 0.5"),
        ({"longest": 2}, "longest is 2"),
        ({"label_smoothing": 2}, "label_smoothing is 2"),
        ({"model": MODEL | {"vocabulary_size": 100}}, "expected at least 258"),
    ):
        with pytest.raises(TrainingError, match=message):
            task_of(text, **changes)


def test_text_that_cannot_be_used_is_one_sentence_and_code_2(tmp_path, capsys):
    plain = {
        "task": {"kind": "translation", "data": str(tmp_path), "train": ["a.tsv"], "model": MODEL},
        "trainer": {"token_budget": 1, "device": "cpu", "loggers": []},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(plain))
    words = ["--config", str(tmp_path / "config.yaml"), "--run", str(tmp_path / "run")]
    for lines, message in (
        (None, "no such file"),
        ([], "found no text"),
        (["one\tun"], "there are no pairs in the split"),
    ):
        if lines is not None:
            write_lines(tmp_path / "a.tsv", lines)
        assert main(["fit", *words]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert message in line
