"""The command `relpe doctor`."""

from __future__ import annotations

import json
from pathlib import Path

from app.cli import doctor
from app.cli.main import main
from app.compose import models


def test_facts_are_printed_and_nothing_is_wrong(monkeypatch, capsys):
    (piano,) = [folder for folder in models.released() if folder.name == "piano"]
    monkeypatch.setattr(models, "released", lambda: [piano])
    monkeypatch.setattr(doctor, "SLOW_TOKENS_PER_SECOND", 0)
    monkeypatch.setattr(doctor, "LEAST_MEMORY_GIB", 0)
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == []
    assert {"relpe", "python", "processor", "memory", "sound", "piano"} <= set(report["facts"])
    assert "tokens/s" in report["facts"]["piano"]


def test_what_is_wrong_is_said_with_what_to_do(monkeypatch, tmp_path, capsys):
    broken = tmp_path / "broken"
    broken.mkdir()
    monkeypatch.setattr(models, "released", lambda: [broken])
    monkeypatch.setattr(doctor, "LEAST_DISK_GIB", float("inf"))
    assert main(["doctor"]) == 2
    printed = capsys.readouterr()
    assert "broken" in printed.out
    assert "remove files, or set TMPDIR" in printed.err
    assert "broken: " in printed.err
    monkeypatch.setattr(models, "released", list)
    assert main(["doctor"]) == 2
    assert "found no released models" in capsys.readouterr().err


def test_memory_that_the_system_does_not_tell_is_no_problem(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_: (_ for _ in ()).throw(OSError))
    problems: list[str] = []
    assert doctor._memory(problems) == "not known on this system"
    assert not problems
