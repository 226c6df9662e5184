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


def test_rsqrt_falls_with_the_square_root_of_the_step_after_the_warm_up():
    optimizer = OptimizerConfig(learning_rate=3e-3, warmup_steps=4, schedule="rsqrt")
    rates = [budget(optimizer).learning_rate(step) for step in range(400)]
    assert rates[:4] == pytest.approx([3e-3 * share for share in (0.25, 0.5, 0.75, 1)])
    # the number of a step counts from 1; the length of the budget does not matter
    assert rates[3:] == pytest.approx([3e-3 * (4 / number) ** 0.5 for number in range(4, 401)])
    assert budget(optimizer).learning_rate(15, 1.0) == pytest.approx(0.5)


def test_cosine_falls_by_half_a_cosine_to_zero_at_the_end_of_the_budget():
    optimizer = OptimizerConfig(learning_rate=2e-3, warmup_steps=10, schedule="cosine")
    rates = [budget(optimizer).learning_rate(step) for step in (25, 50, 75, 100, 130)]
    shares = [(2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0, 0]
    assert rates == pytest.approx([2e-3 * share for share in shares])
    assert budget(optimizer).learning_rate(4) == pytest.approx(1e-3, rel=0.01)


def test_a_time_budget_that_ends_in_warm_up_is_foretold_with_a_schedule_that_leaves_it(caplog):
    slow = budget(OptimizerConfig(warmup_steps=30), time_budget_minutes=3.0)
    slow.earlier = 45.0
    slow.foresee(5, 5, 0.0)  # nine seconds a step
    assert "the budget of about 20 steps ends before the warm-up" in caplog.text
    assert "--set optimizer.warmup_steps=2" in caplog.text
    caplog.clear()
    slow.earlier = 20.0
    slow.foresee(5, 5, 0.0)  # 45 steps
    budget(OptimizerConfig(warmup_steps=200)).foresee(5, 5, 0.0)  # only tokens are limited
    assert not caplog.text
