from __future__ import annotations

import itertools

import pytest

from training.config import OptimizerConfig, TrainerConfig
from training.learning.schedule import Budget


def budget(optimizer=None, **trainer):
    config = TrainerConfig(token_budget=6400, **trainer)
    return Budget(config, optimizer or OptimizerConfig(learning_rate=1e-2, warmup_steps=2), 64)


def test_the_learning_rate_warms_up_and_decays_over_the_last_fifth():
    rates = [budget().learning_rate(step) / 1e-2 for step in range(100)]
    assert rates[:2] == pytest.approx([0.5, 1])
    assert rates[2:80] == pytest.approx([1] * 78)
    assert all(late < early for early, late in itertools.pairwise(rates[80:]))
    assert rates[-1] == pytest.approx(0.01 + 0.99 / 20)


def test_a_time_budget_ends_a_run_as_well():
    limited = budget(time_budget_minutes=2.0)
    limited.earlier = 60.0
    assert limited.progress(0) == 0.5
    assert limited.progress(75) == 0.75
    limited.earlier = 108.0
    assert limited.learning_rate(10) == pytest.approx(1e-2 * (0.01 + 0.99 / 2))
    limited.earlier = 120.0
    assert limited.progress(0) == 1


def test_a_budget_of_cpu_time_counts_cpu_time(monkeypatch):
    spent = [5.0]
    monkeypatch.setattr("time.process_time", lambda: spent[0])
    cpu, wall = budget(clock="cpu", time_budget_minutes=1.0), budget(time_budget_minutes=1.0)
    for one in (cpu, wall):
        one.start()
    spent[0] += 30
    assert cpu.elapsed() == 30
    assert cpu.progress(0) == 0.5
    assert wall.elapsed() < 30
