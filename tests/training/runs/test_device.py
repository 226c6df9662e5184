from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from training.config import TrainerConfig
from training.errors import TrainingError
from training.runs import device as machine
from training.runs.device import choose_arithmetic, choose_device, resume_arithmetic

STORED = {"device": "cpu", "precision": "32-true", "threads": 1}
FOLDER = Path("runs/x")


@pytest.fixture(autouse=True)
def _threads_and_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_auto_chooses_the_faster_precision(monkeypatch):
    for faster, name in ((True, "bf16-mixed"), (False, "32-true")):
        monkeypatch.setattr(
            machine, "_bfloat16_is_faster", lambda device, is_faster=faster: is_faster
        )
        assert choose_arithmetic(TrainerConfig(threads=1)) == ("cpu", name, 1)
        assert choose_arithmetic(TrainerConfig(threads=1, precision="32")).precision == "32-true"


def test_bfloat16_is_chosen_if_its_product_is_clearly_faster(monkeypatch):
    assert 0 < machine._time_product(torch.bfloat16, "cpu") < float("inf")
    for seconds, faster in ((0.5, True), (0.79, True), (0.81, False)):
        times = {torch.bfloat16: seconds, torch.float32: 1.0}
        monkeypatch.setattr(machine, "_time_product", lambda dtype, device, of=times: of[dtype])
        assert machine._bfloat16_is_faster("cpu") == faster


def test_a_resumed_run_keeps_its_arithmetic(monkeypatch):
    for faster, precision in ((True, "32-true"), (False, "bf16-mixed")):
        monkeypatch.setattr(
            machine, "_bfloat16_is_faster", lambda device, is_faster=faster: is_faster
        )
        torch.set_num_threads(2)
        stored = STORED | {"precision": precision}
        assert resume_arithmetic(TrainerConfig(), stored, FOLDER) == ("cpu", precision, 1)
        assert torch.get_num_threads() == 1


def test_a_change_of_arithmetic_is_refused():
    for settings, stored, message in (
        ({"precision": "bf16"}, {}, r"the run started with precision 32-true, .* is bf16-mixed"),
        ({"threads": 2}, {}, "the run started with threads 1, but trainer.threads is 2"),
        ({"device": "cpu"}, {"device": "cuda"}, "the run started with device cuda"),
        ({}, {"device": "cuda"}, "the run started on a GPU, and none was found"),
    ):
        with pytest.raises(TrainingError, match=f"^{FOLDER}: {message}"):
            resume_arithmetic(TrainerConfig(**settings), STORED | stored, FOLDER)  # pyright: ignore[reportArgumentType]


def test_slow_arithmetic_is_reported(monkeypatch, caplog):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine, "_bfloat16_is_faster", lambda device: False)
    resume_arithmetic(TrainerConfig(), STORED, FOLDER)
    assert not caplog.messages
    for stored in ({"threads": 4}, {"precision": "bf16-mixed"}):
        resume_arithmetic(TrainerConfig(), STORED | stored, FOLDER)
        assert "is slow on this machine" in caplog.text
        caplog.clear()


def test_a_missing_gpu_is_reported():
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(
        TrainingError, match="--device is cuda, but no GPU was found; use cpu or auto"
    ):
        choose_device("cuda", "--device")


def test_gpus_use_tf32_while_a_run_trains():
    for kind, expected in (("cpu", "highest"), ("cuda", "high")):
        with machine.fast_products(kind):  # pyright: ignore[reportArgumentType]
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"
