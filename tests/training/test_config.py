from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from relpe.models.config import to_plain
from training.config import (
    OptimizerConfig,
    TrainerConfig,
    build,
    describe,
    read_yaml,
)
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


def test_paths_pairs_and_unions_survive_yaml():
    basket = Basket(fruit=Pear(count=2), folder=Path("a/b"), pair=(3, 4))
    plain = {"fruit": {"kind": "pear", "count": 2}, "folder": "a/b", "pair": [3, 4]}
    assert to_plain(basket) == plain | {"note": None}
    assert build(Basket, yaml.safe_load(yaml.safe_dump(plain))) == basket


def test_invalid_values_are_refused_with_their_location():
    for values, message in (
        ({"fruit": {"kind": "plum"}}, r"fruit\.kind: found 'plum', expected one of apple, pear"),
        ({"fruit": {"kind": "pear", "weight": 1}}, r"fruit\.weight: unknown, expected one of"),
        ({"fruit": {"kind": "pear", "count": "x"}}, "found 'x', expected a value of type int"),
        ({"fruit": {"kind": "pear", "count": True}}, "found True"),
        ({"fruit": 3}, "found 3"),
        ({"pair": [1]}, "expected 2 values"),
        ([], "expected a section"),
    ):
        with pytest.raises(TrainingError, match=message):
            build(Basket, values)


def test_files_extend_each_other_and_overrides_come_last(tmp_path):
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


def test_another_kind_replaces_a_section_as_in_a_file_that_extends_it(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "attention: {kind: linear, half_lives: [1, 8]}\noptimizer: {kind: muon, betas: [0, 0]}"
    )
    mapping = read_yaml(
        tmp_path / "a.yaml", ["attention.kind=windowed", "attention.span=9", "optimizer.kind=adamw"]
    )
    assert mapping == {
        "attention": {"kind": "windowed", "span": 9},
        "optimizer": {"kind": "adamw", "betas": [0, 0]},  # both have the same settings
    }
    same = read_yaml(tmp_path / "a.yaml", ["attention.kind=linear"])
    assert same["attention"]["half_lives"] == [1, 8]


def test_invalid_overrides_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("trainer: {seed: 1}")
    for override in ("trainer", "=3", "trainer.=3", "trainer.seed.x=3", "a=[1"):
        with pytest.raises(TrainingError, match="--set"):
            read_yaml(tmp_path / "a.yaml", [override])


def test_a_misspelt_setting_of_a_task_is_reported_without_importing_torch(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("task: {kind: recall}")
    code = (
        "import sys, pathlib; from training.config import read_yaml\n"
        "try: read_yaml(pathlib.Path(sys.argv[1]), [sys.argv[2]])\n"
        "except ValueError as error: print(error, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(file)]
    for override in ("task.model.widht=3", "task.modle={}", "task.model.encoding.num_sine=4"):
        name = override.partition("=")[0].split(".")[-1]
        done = subprocess.run([*command, override], capture_output=True, text=True, check=True)
        assert f"no setting has the name '{name}', expected " in done.stdout
        assert done.stdout.endswith("False\n")
    assert read_yaml(file, ["task.model.width=3"])["task"] == {
        "kind": "recall",
        "model": {"width": 3},
    }


def test_files_that_cannot_be_extended_or_read_are_reported_in_one_sentence(tmp_path):
    path = tmp_path / "a.yaml"
    (tmp_path / "b.yaml").write_text("extends: a.yaml")
    for content, message in (
        (b"extends: [a.yaml]", r"extends is \['a.yaml'\], expected the name of a YAML file"),
        (b"extends: a.yaml", "extends a.yaml, which itself extends this file"),
        (b"extends: b.yaml", "extends a.yaml, which itself extends this file"),
        (b"extends: ../x.yaml", "no such file"),
        (b"when: 2026-13-45", "invalid YAML"),
        (b"\xff\xfe\xfd", "invalid YAML"),
    ):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=rf"^[^\n]*{message}[^\n]*$"):
            read_yaml(path)


def test_values_out_of_range_are_refused():
    for kind, name, values, message in (
        (TrainerConfig, "token_budget", (0,), "at least 1"),
        (TrainerConfig, "time_budget_minutes", (0,), "more than 0"),
        (TrainerConfig, "seed", (-1,), "0 to"),
        (TrainerConfig, "threads", (0,), "1 to"),
        (TrainerConfig, "validate_every", (0, -5), "at least 1"),
        (TrainerConfig, "checkpoint_every", (0,), "at least 1"),
        (TrainerConfig, "log_every", (0,), "at least 1"),
        (TrainerConfig, "ema_decay", (1.5, -0.1, math.nan), "0 to 1"),
        (TrainerConfig, "devices", (0,), "at least 1"),
        (TrainerConfig, "nodes", (0,), "at least 1"),
        (TrainerConfig, "accumulate", (0,), "at least 1"),
        (TrainerConfig, "workers", (-1,), "0 to"),
        (OptimizerConfig, "learning_rate", (-1e-3, math.inf), "at least 0"),
        (OptimizerConfig, "encoding_learning_rate", (-1,), "at least 0"),
        (OptimizerConfig, "weight_decay", (-1,), "at least 0"),
        (OptimizerConfig, "warmup_steps", (-1,), "at least 0"),
        (OptimizerConfig, "decay_share", (2, -1), "0 to 1"),
        (OptimizerConfig, "final_share", (-1,), "0 to 1"),
        (OptimizerConfig, "max_gradient_norm", (0,), "more than 0"),
    ):
        for value in values:
            with pytest.raises(TrainingError, match=f"^config.*{name} is .*, expected {message}"):
                build(kind, {name: value})
    with pytest.raises(TrainingError, match=r"betas are \(0.9, 1.0\)"):
        build(OptimizerConfig, {"betas": [0.9, 1.0]})
    with pytest.raises(TrainingError, match="seed: found a number above"):
        build(TrainerConfig, {"seed": 2**64})


def test_every_field_has_help():
    for kind in (TrainerConfig, OptimizerConfig):
        lines = describe(kind, "x")
        assert [re.split("[=:]", line)[0] for line in lines] == [
            f"  x.{f.name}" for f in fields(kind)
        ]
        assert all(not line.endswith(": ") for line in lines)
