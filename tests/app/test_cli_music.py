"""What `--json` says, so that the same can be made again."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from app.options import MusicOptions
from tests.app.test_cli import folder, relpe  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["continue", "generate"])
def test_json_says_all_that_makes_the_same_bytes_again(
    folder: Path,  # noqa: F811
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert relpe(folder, command, "--bars", "1", "--temperature", "0.7", "--json") == 0
    first = (folder / "out.mid").read_bytes()
    replay = json.loads(capsys.readouterr().out)["replay"]
    shell = "sha256sum model.json model.safetensors | sha256sum"
    place = {"cwd": folder / "small", "capture_output": True, "text": True, "check": True}
    assert (
        replay["model_sha256"] == subprocess.run(["bash", "-c", shell], **place).stdout.split()[0]
    )
    assert (replay["model"], replay["backend"], replay["device"]) == (
        "small",
        "torch float32",
        "cpu",
    )
    options = replay["options"]
    expected = {field.name for field in fields(MusicOptions)} - {"seed"}
    if command == "continue":
        prompt = (folder / "prompt.mid").read_bytes()
        assert replay["prompt_sha256"] == hashlib.sha256(prompt).hexdigest()
        expected |= {"beats"}
    else:
        expected -= {"prompt_bars"}
    assert set(options) == expected
    again = [
        word
        for name, value in ({"seed": replay["seed"]} | options).items()
        if value is not None and name != "seconds"
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    assert relpe(folder, command, *again) == 0
    assert (folder / "out.mid").read_bytes() == first


def test_a_backend_that_cannot_be_is_said(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("relpe.steps.why_not_compiled", lambda _: "no compiler here")
    assert relpe(folder, "generate", "--backend", "auto", "--bars", "1", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["backend"], said["fell_back"]) == ("torch float32", "no compiler here")
    assert relpe(folder, "generate", "--backend", "compiled", "--bars", "1") == 2
    assert "no compiler here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["continue", "generate"])
def test_what_json_says_is_made_again_by_replay(
    folder: Path,  # noqa: F811
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert relpe(folder, command, "--bars", "1", "--variations", "2", "--json") == 0
    settings = folder / "made.json"
    settings.write_text(capsys.readouterr().out)
    first = [(folder / f"out.{number}.mid").read_bytes() for number in (1, 2)]
    prompt = ["--prompt", str(folder / "prompt.mid")] if command == "continue" else []
    again = ["--output", str(folder / "again.mid")]
    assert relpe(folder, "replay", str(settings), *again, *prompt) == 0
    assert [(folder / f"again.{number}.mid").read_bytes() for number in (1, 2)] == first
    assert "differ" not in capsys.readouterr().err
    other = [] if prompt else ["--prompt", str(folder / "prompt.mid")]
    assert relpe(folder, "replay", str(settings), *again, *other) == 2
    assert "expected" in capsys.readouterr().err
    settings.write_text("{}")
    assert relpe(folder, "replay", str(settings), *again, *prompt) == 2
    assert "without the options" in capsys.readouterr().err
