from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time

import pytest

from training.cli import main
from training.errors import TrainingError
from training.evaluation.sweep.config import read_sweep
from training.evaluation.sweep.processes import is_done, run_cells
from training.files import alone_in

pytestmark = pytest.mark.usefixtures("_fake_training")


LAUNCHER = """
import os, sys
with open(sys.argv[1], "a") as stream:
    stream.write(sys.argv[4] + "\\n")
os.execv(sys.argv[2], sys.argv[2:])
"""


def run(path, runs, processes=1):
    sweep = read_sweep(path, runs)
    return sweep, run_cells(sweep.cells, runs, processes)


def commands(cell):
    return (cell.folder / "commands").read_text().split()


def test_every_cell_is_trained_and_measured_once_and_failures_are_tried_again(sweep_file, tmp_path):
    path, runs = sweep_file("fails", "good", "better", seeds=[0]), tmp_path / "runs"
    sweep, outcome = run(path, runs)
    assert outcome.stopped_by is None
    (said,) = outcome.failures.values()
    assert said == f"this cannot be trained; see {sweep.cells[0].log}"
    assert [is_done(cell) for cell in sweep.cells] == [False, True, True]
    run(path, runs, processes=3)
    of_good = ["fit", "evaluate"]
    assert [commands(cell) for cell in sweep.cells] == [["fit"] * 2, of_good, of_good]
    # a cell with other settings is not done
    changed = {"settings": {"trainer.token_budget": 5}, "seeds": [0]}
    (cell,) = read_sweep(sweep_file("good", **changed), runs).cells
    assert not is_done(cell)


def test_a_signal_ends_all_processes_with_checkpoints_and_the_same_command_goes_on(
    sweep_file, tmp_path
):
    launch = [sys.executable, "-c", LAUNCHER, str(tmp_path / "launched")]  # as srun
    path, runs = sweep_file("slow", "good", launch=launch), tmp_path / "runs"
    first, _, second, last = read_sweep(path, runs).cells

    def stop():
        while not (second.folder / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    _, outcome = run(path, runs, processes=2)
    assert outcome.stopped_by == signal.SIGINT
    assert outcome.failures == {}
    assert all((cell.folder / "last.ckpt").exists() for cell in (first, second))
    assert not last.folder.exists()
    sweep, outcome = run(path, runs, processes=2)
    assert outcome.stopped_by is None
    assert all(map(is_done, sweep.cells))
    assert commands(first) == ["fit", "fit", "evaluate"]
    launched = (tmp_path / "launched").read_text().split()
    assert (launched.count("fit"), launched.count("evaluate")) == (6, 4)


def test_wrong_settings_are_refused_before_anything_is_trained(sweep_file, tmp_path):
    rows = {"good": None, "wrong": {"task.model.widht": 8}}
    with pytest.raises(TrainingError, match=r"task\.model\.widht=8: no setting has the name"):
        run(sweep_file(rows=rows), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_second_sweep_in_the_same_folder_is_refused(sweep_file, tmp_path):
    with (
        alone_in(tmp_path / "runs"),
        pytest.raises(TrainingError, match=r"another relpe-train sweep .* with --runs"),
    ):
        run(sweep_file("good"), tmp_path / "runs")


def test_the_command_trains_lists_and_compares(sweep_file, tmp_path, capsys):
    path, runs = sweep_file("good", "better", "fails", difference=1), tmp_path / "runs"
    words = ["sweep", str(path), "--runs", str(runs)]
    assert main([*words, "--list", "--rows", "b*", "--seeds", "1"]) == 0
    name = f"{runs / 'copying' / 'better_1'}: copying, better, seed 1"
    assert capsys.readouterr().out == f"{name}\n"
    assert not runs.exists()
    assert main(words) == 1
    assert main([*words, "--list", "--rows", "b*", "--seeds", "1"]) == 0
    assert f"{name}, done\n" in capsys.readouterr().out
    assert main([*words, "--table"]) == 0
    table = capsys.readouterr().out
    assert "4 of 6 runs are finished." in table
    assert "| better | 70.5 ± 0.7 | 1,000 | 2.00 | 1.0 | 2 |" in table
    assert "| better | +20.0 | +17.0 to +23.0 | 0.001 | **0.001** |" in table
    assert (runs / "results" / "copying_accuracy.png").exists()
    with (runs / "results" / "results.csv").open(newline="") as stream:
        good, better = csv.DictReader(stream)
    assert (good["mean"], good["p"], better["difference"]) == ("50.5", "", "20")
    with (runs / "results" / "cells.csv").open(newline="") as stream:
        assert [row["accuracy (%)"] for row in csv.DictReader(stream)] == ["50", "51", "70", "71"]


def test_generated_tasks_are_drawn_by_size_and_have_their_chance(sweep_file, tmp_path):
    rows, changes = ("sizes", "better sizes"), {"compare": ["exact match, *"], "seeds": [0]}
    path, runs = sweep_file(*rows, **changes), tmp_path / "runs"
    assert main(["sweep", str(path), "--runs", str(runs)]) == 0
    report = (runs / "results" / "report.md").read_text()
    assert "## copying, chance 25.0 %" in report
    sizes = [line.rpartition(", ")[0] for line in report.splitlines() if line.startswith("###")]
    assert [size[-2:].strip() for size in sizes] == ["8", "16", "32"]
    drawn = {path.name for path in (runs / "results").glob("*.png")}
    kinds = {f"copying_{kind}_by_size.png" for kind in ("token_accuracy", "exact_match")}
    assert drawn == kinds | {f"copying_exact_match__{size}.png" for size in (8, 16, 32)}


def test_wrong_options_are_refused_in_a_sentence(sweep_file, tmp_path, capsys):
    path = sweep_file("good")
    for words, message in (
        (["--processes", "0"], "--processes is 0, expected 1 to 1024"),
        (["--rows", "x"], "--rows x: the sweep has no such row, only good"),
        (["--seeds", "5"], "--seeds 5: the sweep has no such seed, only 0; 1"),
        (["--table"], "runs: found no finished runs of this sweep"),
    ):
        assert main(["sweep", str(path), "--runs", str(tmp_path / "runs"), *words]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()
