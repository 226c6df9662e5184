from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
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
    add_options,
    build,
    describe,
    given_options,
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


def test_a_config_with_paths_and_pairs_survives_yaml():
    basket = Basket(fruit=Pear(count=2), folder=Path("a/b"), pair=(3, 4))
    assert build(Basket, yaml.safe_load(yaml.safe_dump(to_plain(basket)))) == basket


def test_unions_are_distinguished_by_kind():
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
def test_invalid_values_are_refused_with_their_location(values, message):
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


@pytest.mark.parametrize("override", ["trainer", "=3", "trainer.=3", "trainer.seed.x=3", "a=[1"])
def test_invalid_overrides_are_refused(tmp_path, override):
    (tmp_path / "a.yaml").write_text("trainer: {seed: 1}")
    with pytest.raises(TrainingError, match="--set"):
        read_yaml(tmp_path / "a.yaml", [override])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("extends: [a.yaml]", r"extends is \['a.yaml'\], expected the name of a YAML file"),
        ("extends: 3", "extends is 3"),
        ("extends: a.yaml", "extends a.yaml, which itself extends this file"),
        ("extends: b.yaml", "extends a.yaml, which itself extends this file"),
        ("extends: ../x.yaml", "no such file"),
        ("when: 2026-13-45", "invalid YAML"),
        (b"\xff\xfe\xfd", "invalid YAML"),
    ],
)
def test_files_that_cannot_be_extended_or_read_are_reported_in_one_sentence(
    tmp_path, content, message
):
    path = tmp_path / "a.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "b.yaml").write_text("extends: a.yaml")
    with pytest.raises(TrainingError, match=rf"^[^\n]*{message}[^\n]*$"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (TrainerConfig, {"token_budget": 0}, "token_budget is 0, expected at least 1"),
        (TrainerConfig, {"time_budget_minutes": 0}, "is 0.0, expected more than 0"),
        (TrainerConfig, {"seed": -1}, "seed is -1, expected 0 to"),
        (TrainerConfig, {"seed": 2**64}, "seed: found a number above"),
        (TrainerConfig, {"threads": 0}, "threads is 0, expected 1 to"),
        (TrainerConfig, {"validate_every": 0}, "validate_every is 0"),
        (TrainerConfig, {"checkpoint_every": -5}, "checkpoint_every is -5"),
        (TrainerConfig, {"log_every": 0}, "log_every is 0"),
        (TrainerConfig, {"ema_decay": 1.5}, "ema_decay is 1.5, expected 0 to 1"),
        (TrainerConfig, {"ema_decay": float("nan")}, "ema_decay is nan"),
        (TrainerConfig, {"devices": 0}, "devices is 0, expected at least 1"),
        (TrainerConfig, {"nodes": 0}, "nodes is 0"),
        (TrainerConfig, {"accumulate": 0}, "accumulate is 0, expected at least 1"),
        (TrainerConfig, {"workers": -1}, "workers is -1, expected 0 to"),
        (OptimizerConfig, {"learning_rate": -1e-3}, "learning_rate is -0.001"),
        (OptimizerConfig, {"learning_rate": float("inf")}, "learning_rate is inf"),
        (OptimizerConfig, {"encoding_learning_rate": -1}, "encoding_learning_rate is -1.0"),
        (OptimizerConfig, {"betas": [0.9, 1.0]}, r"betas are \(0.9, 1.0\)"),
        (OptimizerConfig, {"weight_decay": -1}, "weight_decay"),
        (OptimizerConfig, {"warmup_steps": -1}, "warmup_steps"),
        (OptimizerConfig, {"decay_share": 2}, "decay_share is 2.0, expected 0 to 1"),
        (OptimizerConfig, {"final_share": -1}, "final_share"),
        (OptimizerConfig, {"max_gradient_norm": 0}, "max_gradient_norm is 0.0, expected more"),
    ],
)
def test_values_out_of_range_are_refused(kind, values, message):
    with pytest.raises(TrainingError, match=f"^config.*{message}"):
        build(kind, values)


def test_every_field_has_help():
    for kind in (TrainerConfig, OptimizerConfig):
        lines = describe(kind, "x")
        assert [re.split("[=:]", line)[0] for line in lines] == [
            f"  x.{f.name}" for f in fields(kind)
        ]
        assert all(not line.endswith(": ") for line in lines)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings with fields of every kind that an option can have."""

    place: Path = field(metadata={"flag": "place", "metavar": "PLACE"})
    """Folder to read."""
    files: tuple[Path, ...] = field(metadata={"flag": "--file"})
    """MIDI files."""
    count: int | None = None
    """CPU threads; None: all of 100 %."""
    kind: Literal["one", "two"] = "two"
    """Which kind."""
    names: Sequence[str] = field(default=(), metadata={"action": "append", "nargs": None})
    """Names; none: no names."""
    quick: bool = False
    """Be quick."""
    inner: object = field(default=None, metadata={"flag": None})
    """No option."""


def test_options_of_a_dataclass_have_its_names_types_defaults_and_docstrings():
    parser = argparse.ArgumentParser()
    add_options(parser, Settings, kind={"default": "one"})

    def read(words):
        return given_options(parser.parse_args(words.split()), Settings, inner=1)

    least = {"place": Path("x"), "files": (Path("a"), Path("b")), "kind": "one", "inner": 1}
    assert read("x --file a b") == least
    assert read("x --file a b --count 3 --kind two --names c --names d --quick") == {
        **least,
        **{"count": 3, "kind": "two", "names": ("c", "d"), "quick": True},
    }
    for words in ("x", "--file a", "x --file a --kind three", "x --file a --count y"):
        with pytest.raises(SystemExit):
            read(words)
    text = " ".join(parser.format_help().split())
    for line in (
        "PLACE folder to read ",
        "MIDI files ",
        "CPU threads (default: all of 100 %)",
        "which kind (default: one)",
        "names (default: no names)",
    ):
        assert line in text
    assert text.endswith("--quick be quick")
