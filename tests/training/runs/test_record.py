from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from training.errors import TrainingError
from training.experiment import build_experiment
from training.runs.device import Arithmetic
from training.runs.record import (
    FirstWeights,
    PastRun,
    check_same_run,
    clear_run,
    describe_segment,
    read_run,
)

CPU = Arithmetic("cpu", "32-true", 1)
FIRST = FirstWeights(
    path="runs/a", digest="abc", history=(PastRun(name="a", weights="abc", tokens=64),)
)
FACTS = {"hash": "abc", "vocabulary": "def", "splits": {}, "refused": {"a.mid": "broken"}}


@pytest.fixture
def describe(experiment, tmp_path):
    """Writes the record of a segment."""

    def write(earlier=None, step=0, first=None, arithmetic=CPU):
        config = build_experiment(experiment)
        describe_segment(
            *(config, tmp_path, FACTS, 10, arithmetic),
            **{"earlier": earlier, "step": step, "first": first},
        )
        return read_run(tmp_path)

    return write


def changed(experiment, path, value):
    section, _, key = path.partition(".")
    return experiment | {section: changed(experiment[section], key, value) if key else value}


def test_changes_of_settings_that_affect_weights_are_refused(experiment, describe, tmp_path):
    run = describe()
    for path, value in (
        ("task.length", 16),
        ("task.batch_size", 3),
        ("task.transposition", [0, 0]),
        ("task.validation_windows", 5),
        ("task.model.hidden", 24),
        ("task.model.encoding.num_sines", 3),
        ("optimizer.kind", "adamw"),
        ("optimizer.learning_rate", 1e-3),
        ("optimizer.betas", [0.5, 0.6]),
        ("trainer.seed", 5),
        ("trainer.ema_decay", 0.5),
    ):
        other = build_experiment(changed(experiment, path, value))
        message = rf"started with another {path} \(.*; it is now .*--fresh$"
        with pytest.raises(TrainingError, match=message):
            check_same_run(other, tmp_path, run, run["data"], None)


def test_budgets_and_intervals_may_change_and_the_data_may_move(experiment, describe, tmp_path):
    run = describe()
    experiment["task"]["data"] = "elsewhere"
    experiment["trainer"] |= {
        "token_budget": 7,
        "time_budget_minutes": 2.0,
        "validate_every": 1,
        "checkpoint_every": 1,
        "log_every": 1,
        "threads": 1,
        "omp_wait_policy": "passive",
    }
    check_same_run(build_experiment(experiment), tmp_path, run, run["data"], None)
    moved = run["data"] | {"splits": {"train": {"files": 1, "tokens": 2}}}
    with pytest.raises(TrainingError, match="started with other data"):  # other splits
        check_same_run(build_experiment(experiment), tmp_path, run, moved, None)
    with pytest.raises(TrainingError, match="started with other data"):
        check_same_run(
            build_experiment(experiment), tmp_path, run, run["data"] | {"hash": "xyz"}, None
        )


def test_other_initial_weights_are_refused(experiment, describe, tmp_path):
    config, run = build_experiment(experiment), describe()
    with pytest.raises(TrainingError, match=r"\(random ones\) than --init-from runs/a"):
        check_same_run(config, tmp_path, run, run["data"], Path("runs/a"))
    run = describe(first=FIRST)
    for init_from in (None, Path("runs/a")):  # the same command again
        check_same_run(config, tmp_path, run, run["data"], init_from)
    with pytest.raises(TrainingError, match=r"other weights \(runs/a\)"):
        check_same_run(config, tmp_path, run, run["data"], Path("runs/b"))


def test_every_segment_is_kept_with_a_valid_shell_command(describe, tmp_path, monkeypatch):
    words = ["fit", "--set", "task.transposition=[-5, 6]", "--run", "it's mine"]
    monkeypatch.setattr(sys, "argv", ["/opt/relpe-train", *words])
    first = describe(first=FIRST)
    monkeypatch.setattr(sys, "argv", ["relpe-train", "fit"])
    second = describe(first, step=4)
    assert second == read_run(tmp_path)
    assert [segment["step"] for segment in second["sessions"]] == [0, 4]
    assert shlex.split(second["sessions"][0]["command"]) == ["relpe-train", *words]
    assert second["sessions"][1]["command"] == "relpe-train fit"
    held = second["init_from"]
    assert (held["path"], held["digest"], held["history"][0]["tokens"]) == ("runs/a", "abc", 64)
    assert "refused" not in second["data"]


def test_a_segment_records_its_environment(describe, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Great GPU")
    run = describe()
    environment = run["sessions"][0]["environment"]
    assert environment["packages"]["torch"] == version("torch")
    assert environment["packages"].keys() >= {"numpy", "lightning-utilities", "safetensors"}
    assert environment["torch"]["commit"] == torch.version.git_version
    assert any("CPU capability" in line for line in environment["torch"]["build"])
    assert run["seeds"] == {"trainer.seed": 0, "task.model.noise_seed": 0}
    assert f"{os.cpu_count()} CPUs" in run["sessions"][0]["machine"]
    assert "Great GPU" not in run["sessions"][0]["machine"]
    run = describe(run, arithmetic=Arithmetic("cuda", "bf16-mixed", 1))
    assert run["sessions"][1]["machine"].endswith("CPUs, Great GPU")


def test_a_run_json_that_is_damaged_or_of_an_earlier_version_is_reported(describe, tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(TrainingError, match=r"no run\.json"):
        read_run(tmp_path)
    run = describe()
    without = [{key: run[key] for key in run if key != gone} for gone in ("sessions", "device")]
    for content, message in (
        ("{", "damaged, expected JSON"),
        ("[1]", "damaged, expected a JSON object"),
        (json.dumps(without[0]), "found no sessions, .* of an earlier version"),
        (json.dumps(without[1]), "found no device, .* of an earlier version"),
        (json.dumps(run | {"init_from": "runs/a"}), "found only the path .* of an earlier version"),
    ):
        path.write_text(content)
        with pytest.raises(TrainingError, match=rf"run\.json: {message}[^\n]*with --fresh$"):
            read_run(tmp_path)


def test_clearing_a_run_keeps_other_files(tmp_path):
    names = ("last.ckpt", "best.ckpt", "metrics.csv", "config.yaml", "run.json", "tokenizer.json")
    for name in (*names, "notes.txt"):
        (tmp_path / name).write_text("")
    for name in ("tensorboard", "wandb", "samples", "evaluation"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("")
    clear_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
