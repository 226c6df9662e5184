"""A step does not depend on its division into processes, micro-batches and chunks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

from tests.support.paths import ROOT
from tests.support.runs import assert_resumes, assert_same_weights, changed, checkpoint, metrics
from training.config import TrainerConfig
from training.errors import TrainingError
from training.experiment import build_experiment
from training.learning.distributed import (
    ALONE,
    Processes,
    choose_environment,
    choose_strategy,
    find_processes,
    rows_of,
)
from training.runs import fit as fit_module
from training.runs.fit import fit

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "RANK": "5"}
SLURM = {"SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_PROCID": "6"}


@pytest.fixture
def unequal(experiment):
    """Plain values of an experiment whose rows differ in length, so means must be weighted."""

    def make(sections=None, **trainer):
        plain = changed(experiment)
        plain["task"] |= {"length": 160, "batch_size": 4, "validation_windows": 5}
        plain["optimizer"]["learning_rate"] = 2e-3
        plain["trainer"] |= {"token_budget": 4 * 640, "log_every": 1, "samples": 0, "threads": 1}
        plain["trainer"] |= trainer
        return changed(plain, **(sections or {}))

    return make


def with_smooth_features(plain):
    """The experiment without relu, whose kink turns rounding of weights into other gradients."""
    plain["task"]["model"] = plain["task"]["model"] | {
        "attention": {"kind": "linear", "feature_map": {"kind": "elu"}}
    }
    return plain


def trained(plain, folder, processes=1, stop=None):
    """Weights after a run, in this process or in others."""
    if processes == 1:
        fit(build_experiment(plain), folder, show=False)
    else:
        launch(processes, [plain, str(folder), stop])
    return checkpoint(folder)


def launch(processes, *jobs):
    script = ROOT / "tests" / "support" / "launch.py"
    done = subprocess.run(
        [sys.executable, str(script), str(processes), json.dumps(jobs)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TORCH_CPP_LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def assert_close(found, expected, tolerance=1e-5):
    assert found["global_step"] == expected["global_step"]
    for name, value in expected["state_dict"].items():
        torch.testing.assert_close(
            found["state_dict"][name], value, rtol=tolerance, atol=tolerance, msg=name
        )


def figures(folder, *columns):
    return [[row["step"], *(float(row[key] or 0) for key in columns)] for row in metrics(folder)]


def test_two_processes_agree_with_one(unequal, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    plain, longer = map(with_smooth_features, (unequal(), unequal(token_budget=6 * 640)))
    assert_close(trained(plain, two, 2), trained(plain, one))
    columns = ("train/nats_per_token", "validation/nats_per_token", "gradient_norm")
    for mine, alone in zip(figures(two, *columns), figures(one, *columns), strict=True):
        assert mine[0] == alone[0]
        assert mine[1:] == pytest.approx(alone[1:], rel=2e-5)
    assert json.loads((two / "run.json").read_text())["sessions"][0]["processes"] == 2
    assert (two / "best.ckpt").exists()
    # a run can be resumed with another number of processes
    assert_close(trained(longer, two), trained(longer, one))


def test_micro_batches_and_chunks_agree_with_the_whole_batch(unequal, tmp_path):
    whole = trained(unequal(), tmp_path / "whole")
    for number, (sections, trainer) in enumerate(
        (
            ({}, {"accumulate": 4, "activation_checkpointing": True}),
            ({"task": {"chunk": 50}}, {"accumulate": 2}),
        )
    ):
        assert_close(trained(unequal(sections, **trainer), tmp_path / str(number)), whole)


def test_a_window_counts_steps_and_not_calls(unequal, tmp_path):
    window = {"mode": "log_bias", "width": [3.0], "span_refresh": 2, "max_span": 31}
    encoding = {"kind": "siren", "network": {"depth": 2, "width": 4}, "window": window}
    task = unequal()["task"]
    model = task["model"] | {"attention": {"kind": "windowed"}, "encoding": encoding}
    whole = trained(unequal({"task": {"model": model}}), tmp_path / "whole")
    cut = {"task": {"model": model, "chunk": 50}}
    found = trained(unequal(cut, accumulate=2), tmp_path / "cut")
    assert found["spans"] == whole["spans"]
    assert found["spans"]["calls"] == 4
    # not weights: a shift of all scores has a gradient of rounding errors, which Adam scales up
    columns = ("train/nats_per_token", "validation/nats_per_token", "mean_span", "encoding_change")
    for cut, at_once in zip(
        figures(tmp_path / "cut", *columns), figures(tmp_path / "whole", *columns), strict=True
    ):
        assert cut[1:] == pytest.approx(at_once[1:], rel=1e-4)


def test_a_run_cut_into_parts_resumes_bit_for_bit(unequal, tmp_path):
    cut = {"task": {"chunk": 64, "truncated": True}}
    plain = unequal(cut, accumulate=2, ema_decay=0.5, checkpoint_every=100)
    assert_resumes(build_experiment(plain), tmp_path)


@given(devices=st.integers(1, 8), nodes=st.integers(1, 4), accumulate=st.integers(1, 4))
def test_processes_divide_the_rows_of_a_batch(devices, nodes, accumulate):
    world = devices * nodes
    size = 2 * world * accumulate
    ranks = [rows_of(Processes(devices, nodes, rank), size, accumulate) for rank in range(world)]
    assert [row for rows in ranks for row in rows] == list(range(size))
    if world * accumulate > 1:
        with pytest.raises(TrainingError, match=rf"expected a multiple of {world * accumulate}:"):
            rows_of(Processes(devices, nodes, 0), size + 1, accumulate)


def test_each_process_reads_its_rows_of_the_batch_and_its_windows(unequal):
    config = build_experiment(unequal())
    data = [
        config.task.build_data(config.trainer, processes)
        for processes in (ALONE, Processes(2, 1, 0), Processes(2, 1, 1))
    ]
    alone, *parts = (module.examples[5] for module in data)
    assert len(set((alone != 0).sum(1).tolist())) > 2  # rows of different lengths
    assert np.array_equal(np.concatenate(parts), alone)
    windows = [torch.cat(list(module.val_dataloader())) for module in data]
    assert len(windows[1]) == len(windows[2])
    both = torch.stack(windows[1:], 1).flatten(0, 1)
    assert torch.equal(both[: len(windows[0])], windows[0])
    assert not both[len(windows[0]) :].any()


def test_processes_are_those_that_were_started():
    cases: list[tuple[dict[str, Any], dict[str, str], Processes]] = [
        ({}, {}, ALONE),
        ({"devices": 2}, {}, Processes(2, 1, 0)),
        ({"devices": 2}, {"LOCAL_RANK": "1"}, Processes(2, 1, 1)),
        ({"devices": 2, "nodes": 2}, {"NODE_RANK": "1"}, Processes(2, 2, 2)),
        ({}, TORCHRUN, Processes(4, 2, 5)),
        ({"devices": 4, "nodes": 2}, TORCHRUN, Processes(4, 2, 5)),
        ({}, SLURM, Processes(4, 2, 6)),
        # a shell within an allocation, and a job of one task
        ({}, SLURM | {"SLURM_JOB_NAME": "interactive"}, ALONE),
        ({}, SLURM | {"SLURM_NTASKS": "1", "SLURM_NNODES": "1"}, ALONE),
        ({}, SLURM | TORCHRUN, Processes(4, 2, 5)),
    ]
    for settings, environment, expected in cases:
        assert find_processes(TrainerConfig(**settings), environment) == expected


ONE_TASK = {"SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "x"}


def test_with_one_task_of_slurm_fabric_starts_the_other_processes(monkeypatch):
    for name, value in ONE_TASK.items():
        monkeypatch.setenv(name, value)
    settings = TrainerConfig(devices=2)
    processes = find_processes(settings, os.environ)
    assert processes == Processes(2, 1, 0)
    environment = choose_environment(processes, os.environ)
    assert environment is not None
    strategy = choose_strategy(settings, processes)
    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy, plugins=[environment])
    assert fabric.world_size == 2


def test_processes_that_fabric_does_not_find_are_not_left_out(experiment, tmp_path, monkeypatch):
    """Their rows would be missing from every step."""
    monkeypatch.setattr(fit_module, "choose_environment", lambda *_: SLURMEnvironment())
    for name, value in {**ONE_TASK, "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}.items():
        monkeypatch.setenv(name, value)
    plain = changed(experiment, trainer={"devices": 2})
    with pytest.raises(TrainingError, match="Fabric found 1 processes, expected 2"):
        fit(build_experiment(plain), tmp_path / "run", show=False)


def test_processes_that_contradict_the_settings_are_refused():
    cases: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"devices": 8}, TORCHRUN, "trainer.devices is 8, but torchrun has started 4"),
        ({"nodes": 1}, SLURM, "trainer.nodes is 1, but srun has started 2"),
        ({}, SLURM | {"SLURM_NTASKS": "7"}, "7 tasks on 2 nodes"),
    ]
    for settings, environment, message in cases:
        with pytest.raises(TrainingError, match=message):
            find_processes(TrainerConfig(**settings), environment)


def test_sharded_training_refuses_old_checkpoints_and_learned_windows(unequal, tmp_path):
    old = trained(unequal(token_budget=640), tmp_path) | {"sharded": True}
    torch.save(old, tmp_path / "last.ckpt")
    with pytest.raises(TrainingError, match="written with fsdp by an earlier version"):
        fit(build_experiment(unequal(strategy="fsdp")), tmp_path, show=False)
    encoding = {"kind": "siren", "network": {"depth": 2, "width": 4}, "window": {}}
    model = unequal()["task"]["model"] | {"attention": {"kind": "windowed"}, "encoding": encoding}
    plain = unequal({"task": {"model": model}}, strategy="fsdp")
    with pytest.raises(TrainingError, match="strategy is fsdp, but the encoding has a window"):
        fit(build_experiment(plain), tmp_path / "other", show=False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "chunk"), [("muon", None), ("adamw", 64)])
def test_sharded_weights_give_the_same_results(unequal, tmp_path, kind, chunk):
    sections = {"optimizer": {"kind": kind}, "task": {"chunk": chunk}}
    ddp, fsdp, parts = (str(tmp_path / name) for name in ("ddp", "fsdp", "parts"))
    plain = with_smooth_features(unequal(sections, ema_decay=0.5, accumulate=2))
    shared = with_smooth_features(unequal(sections, ema_decay=0.5, accumulate=2, strategy="fsdp"))
    launch(2, [plain, ddp, None], [shared, fsdp, None], [shared, parts, 2], [shared, parts, None])
    ddp, fsdp, parts = (checkpoint(Path(folder)) for folder in (ddp, fsdp, parts))
    assert_close(fsdp, ddp)
    assert_same_weights(parts, fsdp)
    # a run can be resumed with and without shards
    more = {"ema_decay": 0.5, "accumulate": 2, "token_budget": 6 * 640}
    longer = with_smooth_features(unequal(sections, **more))
    sharded = longer | {"trainer": longer["trainer"] | {"strategy": "fsdp"}}
    shutil.copytree(tmp_path / "ddp", tmp_path / "shared")
    jobs = {"ddp": longer, "fsdp": longer, "shared": sharded}
    launch(2, *([plain, str(tmp_path / name), None] for name, plain in jobs.items()))
    ddp, *others = (checkpoint(tmp_path / name) for name in jobs)
    assert ddp["global_step"] == 6
    for found in others:
        assert_close(found, ddp)


@pytest.mark.slow
def test_a_signal_to_one_process_ends_all_and_the_run_resumes_bit_for_bit(unequal, tmp_path):
    plain = unequal({}, ema_decay=0.5)
    whole, again, parts = (str(tmp_path / name) for name in ("whole", "again", "parts"))
    launch(4, [plain, whole, None], [plain, again, None], [plain, parts, 2])
    assert checkpoint(Path(parts))["global_step"] in (1, 2)
    launch(4, [plain, parts, None])
    found = [checkpoint(Path(folder)) for folder in (whole, again, parts)]
    assert_same_weights(found[1], found[0])
    assert_same_weights(found[2], found[0])


@pytest.mark.slow
@pytest.mark.parametrize("by", ["torchrun", "lightning"])
def test_the_command_runs_in_two_processes(unequal, tmp_path, by):
    config, run = tmp_path / "config.yaml", tmp_path / "run"
    config.write_text(json.dumps(unequal()))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    start = [*torchrun, "training.cli"] if by == "torchrun" else ["-m", "training.cli"]
    given = [] if by == "torchrun" else ["--devices", "2"]
    done = subprocess.run(
        [sys.executable, *start, "fit", "--config", str(config), "--run", str(run), *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 4") == 1, done.stdout
    assert_close(checkpoint(run), trained(unequal(), tmp_path / "one"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_gpu_agrees_with_the_cpu(unequal, tmp_path, strategy):
    cpu = trained(with_smooth_features(unequal()), tmp_path / "cpu")
    on_gpu = unequal(device="cuda", strategy=strategy)
    gpu = trained(with_smooth_features(on_gpu), tmp_path / "gpu")
    assert_close(gpu, cpu, 1e-3)
