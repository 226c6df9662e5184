"""A sweep whose cells are trained by a small script in place of `relpe-train`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from training.evaluation.sweep import processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPT = """
import json, pathlib, signal, sys, time
command, words = sys.argv[1], sys.argv[2:]
run = pathlib.Path(words[words.index("--run") + 1])
(run / "evaluation").mkdir(parents=True, exist_ok=True)
with (run / "commands").open("a") as stream:
    stream.write(command + "\\n")
if command == "fit":
    if "fails" in run.name:
        sys.exit("relpe-train: this cannot be trained")
    if "slow" in run.name and not (run / "last.ckpt").exists():
        def stop(*_):
            (run / "last.ckpt").touch()
            sys.exit(143)
        signal.signal(signal.SIGTERM, stop)
        (run / "begun").touch()
        time.sleep(60)
    (run / "run.json").write_text(json.dumps({"parameters": 1000}))
    (run / "metrics.csv").write_text("step,seconds\\n1,30\\n2,60\\n")
else:
    seed = int(run.name.rpartition("_")[2])
    share = 0.5 + 0.01 * seed + 0.2 * run.name.startswith("better")
    found = {"accuracy": share, "costs": {"flops_per_example": 2e6}}
    if "sizes" in run.name:
        answers = {size: {"tokens": share, "examples": share / 2} for size in ("32", "8", "16")}
        found = {"size": 16, "chance": 0.25, "answers": answers}
    if "words" in run.name:
        found = {"size": 40, "transduced": {"40": {"perplexity": 1 + share, "exact": share}}}
    (run / "evaluation" / "results.json").write_text(json.dumps(found))
"""
TASK = {
    "kind": "copying",
    "size": 12,
    "test_sizes": [12],
    "model": {
        **{"vocabulary_size": 33, "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16},
        "encoding": {"kind": "none"},
    },
}


@pytest.fixture
def sweep_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a sweep with some rows."""

    def write(*rows: str, **changes: object) -> Path:
        (tmp_path / "copying.yaml").write_text(yaml.safe_dump({"task": TASK}))
        plain = {"configs": ["copying.yaml"], "seeds": [0, 1], "rows": dict.fromkeys(rows)}
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump(plain | changes, sort_keys=False))
        return path

    return write


@pytest.fixture
def _fake_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fake.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, str(script)))
    monkeypatch.setattr(processes, "_POLL_SECONDS", 0.01)
