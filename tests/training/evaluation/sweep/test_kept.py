"""Results that replace their runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from training.cli import main
from training.evaluation.sweep import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("_fake_training")
ROWS = ("good", "better")


def test_results_replace_their_runs(
    sweep_file: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(results, "draw_rows", lambda *_: None)
    words = ["sweep", str(sweep_file(*ROWS)), "--runs"]
    assert main([*words, str(tmp_path / "first")]) == 0
    known = tmp_path / "first" / "results" / "cells.jsonl"
    capsys.readouterr()
    assert main([*words, str(tmp_path / "first"), "--table"]) == 0
    table = capsys.readouterr().out
    assert "4 of 4 runs are finished." in table
    assert main([*words, str(tmp_path / "second"), "--known", str(known), "--table"]) == 0
    captured = capsys.readouterr()
    assert captured.out == table
    assert captured.err == f"{known}: has results of 4 more runs of the sweep\n"
    again = tmp_path / "second" / "results" / "cells.jsonl"
    assert again.read_bytes() == known.read_bytes()
    assert not list(tmp_path.glob("second/*/*/commands"))

    # only cells without results are trained: one row has other settings now
    runs, changed = tmp_path / "third", {"good": {"task.size": 11}, "better": None}
    words = ["sweep", str(sweep_file(rows=changed)), "--runs", str(runs)]
    assert main([*words, "--known", str(known)]) == 0
    trained = {path.parent.name for path in runs.glob("copying/*/commands")}
    assert trained == {"good_0", "good_1"}
    lines = (runs / "results" / "cells.jsonl").read_text().splitlines()
    assert len(lines) == 4


def test_a_damaged_file_is_refused_in_a_sentence(
    sweep_file: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.jsonl"
    words = ["sweep", str(sweep_file("good")), "--runs", str(tmp_path / "runs")]
    for content, message in (
        (None, "cannot be read"),
        ("{", "line 1 is damaged"),
        ("[1]", "line 1 is damaged"),
        (json.dumps({"config": "copying", "row": "good", "seed": 0}), "line 1 is damaged"),
    ):
        if content is not None:
            path.write_text(content)
        assert main([*words, "--known", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"relpe-train: {path}: ")
        assert message in said
        assert not list(tmp_path.glob("runs/**/commands"))
