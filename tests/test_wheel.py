"""The wheel is complete: it provides commands and models outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def run(*command: str | Path, folder: Path) -> str:
    """Standard output of a command, which must succeed without this repository on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_wheel_provides_packages_models_and_commands(tmp_path):
    # hatchling is among the dev packages: nothing is fetched
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    run(*pip, "wheel", *options, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("relpe-*.whl")
    # a virtual environment with the wheel, and access to the packages of this environment
    venv.create(tmp_path / "venv", with_pip=False)
    variables = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    commands = Path(sysconfig.get_path("scripts", "venv", variables))
    packages = Path(sysconfig.get_path("purelib", "venv", variables))
    python = commands / "python"
    run(*pip, "--python", python, "install", "--no-deps", wheel, folder=tmp_path)
    # .pth files in a folder added by a .pth file are not read, so the editable installation of
    # this repository is not visible
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "others.pth").write_text("\n".join(others))

    code = "import app, relpe, tokenization, training; print(relpe.__file__)"
    found = Path(run(python, "-c", code, folder=tmp_path).strip())
    assert found == packages / "relpe" / "__init__.py"
    assert not [*packages.glob("tests"), *packages.glob("benchmarks")]
    for path in (ROOT / "checkpoints").rglob("*"):
        copy = packages / "relpe" / "_checkpoints" / path.relative_to(ROOT / "checkpoints")
        assert path.is_dir() or copy.read_bytes() == path.read_bytes()
    for name in ("relpe", "relpe-train"):
        assert "usage" in run(commands / name, "--help", folder=tmp_path).lower()
    # one quarter note of C4 (division 480), then the end of the track
    track = bytes.fromhex("00903c40 8360803c40 00ff2f00")
    header = b"MThd" + bytes.fromhex("00000006 0000 0001 01e0")
    prompt = header + b"MTrk" + len(track).to_bytes(4, "big") + track
    (tmp_path / "prompt.mid").write_bytes(prompt)
    options = ["--output", "continued.mid", "--bars", "1", "--seed", "1", "--device", "cpu"]
    run(commands / "relpe", "continue", "prompt.mid", *options, folder=tmp_path)
    assert (tmp_path / "continued.mid").read_bytes().startswith(b"MThd")
