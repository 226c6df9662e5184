"""Runs resume after an error, after being killed and with a damaged file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
import yaml

from tests.support.runs import changed, metrics, with_model
from training.cli import main
from training.errors import TrainingError
from training.experiment import build_experiment
from training.runs.fit import fit
from training.tasks.music import MusicModule

KILLED = """
import io, os, signal, sys
import torch
from training.cli import main

save = torch.save

def half(content, stream):
    if content["global_step"] < 8:
        return save(content, stream)
    whole = io.BytesIO()
    save(content, whole)
    stream.write(whole.getvalue()[: whole.tell() // 2])
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

torch.save = half
main(["fit", "--config", sys.argv[1], "--run", sys.argv[2]])
"""
TIMES = {"seconds", "tokens_per_second", "memory_gib"}


def checkpoint(path):
    content = torch.load(path, weights_only=True)
    for held in content["optimizer_states"][0]["state"].values():
        if "momentum" in held:  # Muon has no step count, but AdamW, its base class, expects one
            held.pop("step", None)
    return content


def assert_same(first, second, where):
    """All numbers equal, bit for bit."""
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key, value in first.items():
            assert_same(value, second[key], f"{where}/{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}/{number}")
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    else:
        assert first == second, where


def assert_same_run(whole, parts):
    for name in ("last.ckpt", "best.ckpt"):
        one, other = checkpoint(whole / name), checkpoint(parts / name)
        for key in ("global_step", "state_dict", "optimizer_states", "average", "callbacks"):
            assert_same(one[key], other[key], f"{parts.name}/{name}/{key}")
        assert_same(one["encoding_start"], other["encoding_start"], parts.name)
    tables = []
    for folder in (whole, parts):
        rows = metrics(folder)
        tables.append([{k: v for k, v in row.items() if k not in TIMES} for row in rows])
    assert tables[0] == tables[1], parts.name
    assert not list(parts.glob(".*.part*"))


@pytest.fixture
def hard(experiment):
    """Twelve steps with every kind of state: workers, random features, averages, noise."""
    features = {"kind": "favor", "num_features": 8, "redraw_interval": 5}
    trainer = {
        "token_budget": 12 * 64,
        "checkpoint_every": 4,
        "validate_every": 5,
        "log_every": 3,  # a checkpoint stands between two entries
        "ema_decay": 0.8,
        "workers": 2,
        "loggers": [],
    }
    attention = {"kind": "linear", "feature_map": features}
    return changed(with_model(experiment, attention=attention), trainer=trainer)


# there may be fewer cores than workers
FEW_CORES = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")


@FEW_CORES
def test_a_run_that_fails_resumes_with_every_kind_of_state(hard, tmp_path, monkeypatch):
    config, gradients = build_experiment(hard), MusicModule.gradients

    def fail(self, *rest):
        if self.step == 7:
            raise RuntimeError("the machine is off")
        return gradients(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(MusicModule, "gradients", fail)
        with pytest.raises(RuntimeError, match="off"):
            fit(config, tmp_path / "parts", show=False)
    assert checkpoint(tmp_path / "parts" / "last.ckpt")["global_step"] == 5
    for name in ("whole", "parts"):
        assert fit(config, tmp_path / name, show=False).step == 12
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
@FEW_CORES
def test_a_run_that_is_killed_while_it_writes_a_checkpoint_resumes(hard, tmp_path):
    config, whole, parts = (tmp_path / name for name in ("hard.yaml", "whole", "parts"))
    config.write_text(yaml.safe_dump(hard))
    # not through pipes, which workers of killed processes hold open for a while
    with (tmp_path / "log").open("w") as stream:
        command = [sys.executable, "-c", KILLED, str(config), str(parts)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, stdout=stream, stderr=stream, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in parts.glob("*.partial")] == ["last.ckpt.partial"]
    assert checkpoint(parts / "last.ckpt")["global_step"] == 5
    for run in (whole, parts):
        assert main(["fit", "--config", str(config), "--run", str(run)]) == 0
    assert_same_run(whole, parts)


def test_a_changed_bit_is_detected_and_the_best_checkpoint_can_replace_it(experiment, tmp_path):
    # each validation of these steps is better than the one before
    experiment["trainer"] |= {"validate_every": 2, "checkpoint_every": 100, "log_every": 1}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    experiment["optimizer"] |= {"decay_share": 0.0}
    fit(build_experiment(experiment), whole, show=False)
    four = experiment | {"trainer": experiment["trainer"] | {"token_budget": 4 * 64}}
    fit(build_experiment(four), parts, show=False)
    content = bytearray((parts / "last.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (parts / "last.ckpt").write_bytes(content)
    with pytest.raises(
        TrainingError, match=r"last\.ckpt: the checkpoint is damaged; copy best\.ckpt over it"
    ):
        fit(build_experiment(experiment), parts, show=False)
    shutil.copyfile(parts / "best.ckpt", parts / "last.ckpt")
    fit(build_experiment(experiment), parts, show=False)
    assert_same_run(whole, parts)
