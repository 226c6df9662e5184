"""Next-value likelihood: densities, windows, causality, training and evaluation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import evaluated, fit_words
from training.cli import main
from training.experiment import build_experiment
from training.tasks.generated import NO_TARGET
from training.tasks.likelihood import windows
from training.tasks.series.forecasting import changes_of

MODEL: dict[str, Any] = {
    **{"vocabulary_size": 9, "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "rope"}},
}
SERIES = ((3.0, 3.5, 4.5, 4.0, 6.0, 7.0, 6.5, 9.0, 8.0, 8.5, 9.5), tuple(range(1, 31)))


def write_tsf(folder, series=SERIES) -> None:
    lines = ["@relation some", "@horizon 2", "@data"]
    lines += [
        f"T{number}:1972-01-01 00-00-00:{','.join(map(str, values))}"
        for number, values in enumerate(series)
    ]
    (folder / "some.tsf").write_text("\n".join(lines))


def plain_of(folder, **changes: Any) -> dict[str, Any]:
    task = {"kind": "forecasting", "data": str(folder), "file": "some.tsf", "test_values": 2}
    return task | {"longest": 8, "bins": 8, "batch_size": 2, "model": MODEL} | changes


def task_of(folder, **changes: Any) -> Any:
    return build_experiment({"task": plain_of(folder, **changes)}).task


@given(st.integers(0, 50), st.integers(0, 50), st.integers(2, 20))
def test_windows_ask_each_position_once_and_read_half_of_their_length_before(first, count, length):
    asked = []
    for start, stop, of in windows(first, first + count, length):
        assert 0 <= start <= of < stop <= start + length
        assert of - start >= min(of, length - max(1, length // 2) - 1)
        asked += range(of, stop)
    assert asked == list(range(first, first + count))


@pytest.mark.parametrize(("bins", "logarithm"), [(2, True), (7, False)])
def test_the_density_of_the_next_value_integrates_to_one(bins, logarithm):
    known = np.array([4.0, 5.0, 3.5, 4.2, 6.0])
    chances = np.random.default_rng(0).dirichlet(np.ones(bins))
    step = 0.001
    values = np.arange(step / 2 if logarithm else -60, 120, step)
    total = 0.0
    for part in np.array_split(values, 40):
        found = [
            changes_of(np.append(known, value), 1, bins, logarithm=logarithm)
            for value in part[:: len(part) // 100 or 1]
        ]
        density = [bins * chances[one.bins[-1]] * math.exp(-one.naive[-1]) for one in found]
        total += float(np.mean(density)) * len(part) * step
    assert total == pytest.approx(1, abs=0.03)


def test_rows_are_the_changes_and_every_split_asks_its_own(tmp_path):
    write_tsf(tmp_path)
    task = task_of(tmp_path)
    counts = {name: task.rows(name)[..., 1] for name in ("train", "validation", "test")}
    assert [int((of != NO_TARGET).sum()) for of in counts.values()] == [6 + 25, 4, 4]
    row = task.rows("train")[0]
    assert row[0, 0] == 8
    assert (row[1:6, 0] == row[:5, 1]).all()
    changes = np.diff(SERIES[0])
    scale = np.abs(changes[:6]).mean() / (2 * math.log(2))
    share = 1 / (1 + np.exp(-changes[:6] / scale))
    assert row[:6, 1].tolist() == [int(8 * one) for one in share]


def test_no_row_and_no_scale_depends_on_later_values(tmp_path):
    write_tsf(tmp_path)
    before = {name: task_of(tmp_path).rows(name) for name in ("train", "validation", "test")}
    changed = [[*values[:-1], values[-1] + 100] for values in SERIES]
    (tmp_path / "later").mkdir()
    write_tsf(tmp_path / "later", changed)
    after = {name: task_of(tmp_path / "later").rows(name) for name in before}
    for name in ("train", "validation"):
        assert (before[name] == after[name]).all()
    different = (before["test"] != after["test"]).any((1, 2))
    assert different.any()
    assert (before["test"][..., 0] == after["test"][..., 0]).all()


def test_uniform_predictions_are_the_naive_forecast_whatever_the_unit(tmp_path):
    write_tsf(tmp_path)
    (tmp_path / "other").mkdir()
    write_tsf(tmp_path / "other", [[1000.0 * value for value in values] for values in SERIES])
    found = []
    for folder in (tmp_path, tmp_path / "other"):
        task = task_of(folder)
        asked = task.rows("test")[..., 1] != NO_TARGET
        figures = task.figures("test", math.log(8) * asked)
        assert figures["nats_per_value"] == pytest.approx(figures["naive"])
        found.append(figures["naive"])
    assert found[1] - found[0] == pytest.approx(math.log(1000))


def test_a_run_is_trained_and_evaluated_and_repeated_values_are_learned(tmp_path, capsys):
    (tmp_path / "some.csv").write_text("Month,Sales\n" + "1,10\n2,20\n3,5\n" * 20)
    task = plain_of(tmp_path, file="some.csv", longest=16)
    figures = evaluated(tmp_path, task, token_budget=60 * 32, validate_every=30)["figures"]
    assert "2 values" in capsys.readouterr().out
    assert figures["nats_per_value"] < figures["naive"] - 1
    assert main(["report", str(tmp_path / "run"), "--output", str(tmp_path / "report")]) == 2
    assert "relpe-train evaluate prints" in capsys.readouterr().err


def test_what_cannot_be_used_is_one_clear_sentence(tmp_path, capsys):
    cases = (
        ("nothing", {}, "has no line @data"),
        ("@data\n", {}, "found no series"),
        ("@data\nT1:1,2,?,4\n", {}, "line 2: could not convert"),
        ("@data\nT1:1,2,nan,4\n", {}, "line 2: some values are missing"),
        ("@data\nT1:1,2,3\n", {}, "no series has 7 values, which test_values=2 needs"),
        ("@data\nT1:0,1,2,3,4,5,6,7\n", {"logarithm": True}, "some values are not positive"),
        ("@data\n", {"bins": 16}, "vocabulary_size is 9, but the task has 17 tokens"),
        ("@data\n", {"file": "other.tsf"}, "found no other.tsf"),
    )
    for number, (text, changes, message) in enumerate(cases):
        (tmp_path / f"{number}.tsf").write_text(text)
        task = plain_of(tmp_path, **{"file": f"{number}.tsf"} | changes)
        assert main(fit_words(tmp_path, task)) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
