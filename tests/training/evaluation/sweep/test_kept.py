"""Results that replace their runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from training.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("_fake_training")
ROWS = ("good", "better", "sizes")


@pytest.fixture
def known(sweep_file: Callable[..., Path], tmp_path: Path) -> Path:
    """Results of all cells."""
    assert main(["sweep", str(sweep_file(*ROWS)), "--runs", str(tmp_path / "first")]) == 0
    return tmp_path / "first" / "results" / "cells.jsonl"


def test_results_give_the_table_of_their_runs(
    sweep_file: Callable[..., Path],
    known: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["sweep", str(sweep_file(*ROWS)), "--runs"]
    capsys.readouterr()
    assert main([*words, str(tmp_path / "first"), "--table"]) == 0
    table = capsys.readouterr().out
    assert "6 of 6 runs are finished." in table
    assert main([*words, str(tmp_path / "second"), "--known", str(known), "--table"]) == 0
    captured = capsys.readouterr()
    assert captured.out == table
    assert captured.err == f"{known}: has results of 6 more runs of the sweep\n"
    again = tmp_path / "second" / "results" / "cells.jsonl"
    assert again.read_bytes() == known.read_bytes()
    assert not list(tmp_path.glob("second/*/*/commands"))


def test_only_cells_without_results_are_trained(
    sweep_file: Callable[..., Path], known: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "second"
    # one cell has a run of its own, and one row has other settings now
    changed = sweep_file(*ROWS, rows={"good": {"task.size": 11}} | dict.fromkeys(ROWS[1:]))
    words = ["sweep", str(changed), "--runs", str(runs)]
    assert main([*words, "--rows", "better", "--seeds", "1"]) == 0
    assert main([*words, "--known", str(known)]) == 0
    trained = {path.parent.name for path in runs.glob("copying/*/commands")}
    assert trained == {"better_1", "good_0", "good_1"}
    lines = (runs / "results" / "cells.jsonl").read_text().splitlines()
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1 is damaged"),
        ("[1]", "line 1 is damaged"),
        (json.dumps({"config": "copying", "row": "good", "seed": 0}), "line 1 is damaged"),
        (None, "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(
    content: str | None,
    message: str,
    sweep_file: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "cells.jsonl"
    if content is not None:
        path.write_text(content)
    words = ["sweep", str(sweep_file("good")), "--runs", str(tmp_path / "runs")]
    assert main([*words, "--known", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"relpe-train: {path}: ")
    assert message in said
    assert not list(tmp_path.glob("runs/**/commands"))
