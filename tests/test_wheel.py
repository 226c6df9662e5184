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

pytestmark = pytest.mark.slow


def run(*command: str | Path, folder: Path) -> str:
    """Standard output of a command, which must succeed without this repository on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installed:
    """A virtual environment with the wheel, and access to the packages of this environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # hatchling is among the dev packages: nothing is fetched
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
        run(*pip, "wheel", *options, ROOT, folder=folder)
        (self.wheel,) = folder.glob("relpe-*.whl")
        venv.create(folder / "venv", with_pip=False)
        variables = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        self.bin = Path(sysconfig.get_path("scripts", "venv", variables))
        self.packages = Path(sysconfig.get_path("purelib", "venv", variables))
        python = self.bin / "python"
        run(*pip, "--python", python, "install", "--no-deps", self.wheel, folder=folder)
        # .pth files in a folder added by a .pth file are not read, so the editable installation of
        # this repository is not visible.
        others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.packages / "others.pth").write_text("\n".join(others))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_the_packages_are_those_of_the_wheel(installed):
    code = "import app, relpe, tokenization, training; print(relpe.__file__)"
    python = installed.bin / "python"
    assert Path(run(python, "-c", code, folder=installed.folder).strip()) == (
        installed.packages / "relpe" / "__init__.py"
    )
    assert not list(installed.packages.glob("tests"))
    assert not list(installed.packages.glob("benchmarks"))


def test_released_models_travel_in_the_wheel(installed):
    inside = installed.packages / "relpe" / "_checkpoints"
    for path in (ROOT / "checkpoints").rglob("*"):
        if path.is_file():
            assert (
                inside / path.relative_to(ROOT / "checkpoints")
            ).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("command", ["relpe", "relpe-train"])
def test_the_commands_answer(installed, command):
    assert "usage" in run(installed.bin / command, "--help", folder=installed.folder).lower()


def test_the_installed_command_continues_a_prompt(installed, tmp_path):
    # One quarter note of C4 (division 480), then the end of the track.
    track = bytes.fromhex("00903c40 8360803c40 00ff2f00")
    header = b"MThd" + bytes.fromhex("00000006 0000 0001 01e0")
    prompt = header + b"MTrk" + len(track).to_bytes(4, "big") + track
    (tmp_path / "prompt.mid").write_bytes(prompt)
    options = ["--output", "continued.mid", "--bars", "1", "--seed", "1", "--device", "cpu"]
    run(installed.bin / "relpe", "continue", "prompt.mid", *options, folder=tmp_path)
    assert (tmp_path / "continued.mid").read_bytes().startswith(b"MThd")
