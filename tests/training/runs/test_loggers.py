from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from tests.support.runs import changed, metrics
from training.errors import TrainingError
from training.experiment import build_experiment
from training.runs.fit import fit
from training.runs.loggers import COLUMNS, CsvLog, build_loggers


def with_loggers(experiment, *names, **trainer):
    return build_experiment(changed(experiment, trainer={"loggers": list(names)} | trainer))


def test_rows_after_the_step_of_the_checkpoint_are_removed(tmp_path):
    path = tmp_path / "metrics.csv"
    rest = "," * (len(COLUMNS) - 5)
    lines = [
        ",".join(COLUMNS),
        "2,,1,3.5," + rest,
        "4,,2,3.4," + rest,
        "4,,2,,3.3" + rest,
        "6,,3,3.2," + rest,
        "8,,4",  # incomplete, as after a power failure
    ]
    path.write_text("\n".join(lines))
    CsvLog(path, 4).log_metrics({"train/nats_per_token": 3.1}, 6)
    assert path.read_text().splitlines() == [*lines[:4], "6,,,3.1," + rest]
    CsvLog(path, 4, is_due=True)
    assert path.read_text().splitlines() == lines[:3]
    CsvLog(path)
    assert path.read_text().splitlines() == lines[:1]


@pytest.fixture
def runs(monkeypatch):
    """Fake of the package wandb; records the calls of each segment."""
    started = []

    class Run:
        def __init__(self, **settings):
            self.settings, self.rows, self.ended = settings, [], None
            started.append(self)

        def define_metric(self, name, *, step_metric):
            assert (name, step_metric) == ("*", "step")

        def log(self, row):
            json.dumps(row)  # plain numbers
            self.rows.append(row)

        def finish(self, *, exit_code):
            self.ended = exit_code

    module = ModuleType("wandb")
    module.init = Run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return started


def test_weights_and_biases_receives_the_values_of_the_csv_file_and_one_run_for_all_segments(
    experiment, tmp_path, runs
):
    folder = tmp_path / "mine"
    fit(with_loggers(experiment, "wandb"), folder, show=False)
    [run] = runs
    assert run.settings["name"] == "mine"
    assert run.settings["dir"] == str(folder)
    assert run.settings["config"]["trainer"]["loggers"] == ["wandb"]
    assert "mode" not in run.settings  # set by WANDB_MODE
    assert run.ended == 0
    table = metrics(folder)
    assert [row["step"] for row in run.rows] == [int(row["step"]) for row in table]
    for key in ("train/nats_per_token", "validation/nats_per_token", "tokens_per_second"):
        sent = [f"{row[key]:.6g}" for row in run.rows if key in row]
        assert sent == [row[key] for row in table if row[key]]
    assert not (folder / "tensorboard").exists()

    longer = with_loggers(experiment, "wandb", "tensorboard", token_budget=8 * 64)
    fit(longer, folder, show=False)
    fit(longer, folder, fresh=True, show=False)
    first, second, fresh = (run.settings["id"] for run in runs)
    assert first == second != fresh
    assert all(run.settings["resume"] == "allow" for run in runs)
    assert list((folder / "tensorboard").glob("events*"))


def test_a_segment_with_an_error_is_marked_as_failed(experiment, tmp_path, runs, monkeypatch):
    def broken(self, metrics, step):
        raise OSError("disk full")

    monkeypatch.setattr(CsvLog, "log_metrics", broken)
    with pytest.raises(OSError, match="full"):
        fit(with_loggers(experiment, "wandb"), tmp_path, show=False)
    assert runs[0].ended == 1


def test_a_missing_package_is_reported_if_it_is_needed_and_nothing_is_written(
    experiment, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"contains wandb, [^\n]*pip install wandb"):
        fit(with_loggers(experiment, "wandb"), folder, show=False)
    assert not folder.exists()
    [log] = build_loggers(with_loggers(experiment), folder, 0)
    assert isinstance(log, CsvLog)
    with pytest.raises(TrainingError, match=r"trainer\.loggers: found 'paper', expected one of"):
        with_loggers(experiment, "paper")
