from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from relpe.checkpoint import to_plain
from training.config import OptimizerConfig, TrainerConfig, build, describe, read_yaml
from training.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class Apple:
    kind: Literal["apple"] = "apple"
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Pear:
    kind: Literal["pear"] = "pear"
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Basket:
    fruit: Apple | Pear = field(default_factory=Apple)
    folder: Path = Path()
    pair: tuple[int, int] = (1, 2)
    note: str | None = None


@given(
    st.builds(
        TrainerConfig,
        token_budget=st.integers(1, 10**9),
        time_budget_minutes=st.none() | st.floats(1, 1e3),
        ema_decay=st.none() | st.floats(0, 1),
    )
)
def test_plain_values_build_the_same_config(config):
    stored = yaml.safe_load(yaml.safe_dump(to_plain(config)))
    assert build(TrainerConfig, stored) == config


def test_a_config_with_paths_and_pairs_survives_yaml():
    basket = Basket(fruit=Pear(count=2), folder=Path("a/b"), pair=(3, 4))
    assert build(Basket, yaml.safe_load(yaml.safe_dump(to_plain(basket)))) == basket


def test_unions_are_told_apart_by_kind():
    basket = build(Basket, {"fruit": {"kind": "pear", "count": 3}, "folder": "a/b", "pair": [3, 4]})
    assert basket == Basket(fruit=Pear(count=3), folder=Path("a/b"), pair=(3, 4))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fruit": {"kind": "plum"}}, r"fruit\.kind: found 'plum', expected one of apple, pear"),
        ({"fruit": {"kind": "pear", "weight": 1}}, r"fruit\.weight: unknown, expected one of"),
        ({"fruit": {"kind": "pear", "count": "x"}}, "found 'x', expected a value of type int"),
        ({"fruit": {"kind": "pear", "count": True}}, "found True"),
        ({"fruit": 3}, "found 3"),
        ({"pair": [1]}, "expected 2 values"),
        ({"note": 3}, "found 3"),
        ([], "expected a section"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(values, message):
    with pytest.raises(TrainingError, match=message):
        build(Basket, values)


def test_files_extend_one_another_and_overrides_come_last(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "optimizer: {learning_rate: 1e-3, warmup_steps: 5}\nx: {kind: a, y: 1}"
    )
    (tmp_path / "b.yaml").write_text("extends: a.yaml\noptimizer: {warmup_steps: 6}\nx: {kind: b}")
    mapping = read_yaml(tmp_path / "b.yaml", ["optimizer.betas=[0.8, 0.9]", "trainer.seed=3"])
    assert mapping == {
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 6, "betas": [0.8, 0.9]},
        "x": {"kind": "b"},
        "trainer": {"seed": 3},
    }


@pytest.mark.parametrize("override", ["trainer", "=3", "trainer.=3", "trainer.seed.x=3", "a=[1"])
def test_overrides_that_cannot_be_read_are_refused(tmp_path, override):
    (tmp_path / "a.yaml").write_text("trainer: {seed: 1}")
    with pytest.raises(TrainingError, match="--set"):
        read_yaml(tmp_path / "a.yaml", [override])


def test_every_field_has_help():
    for kind in (TrainerConfig, OptimizerConfig):
        assert all(not line.endswith(": ") for line in describe(kind, "x"))
