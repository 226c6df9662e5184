"""The wheel is complete: it provides commands and models outside the repository.

Each extra works alone. The virtual environment of these tests has all packages; a hook refuses the
imports of those that an installation with the extra would not have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PackageNotFoundError, distribution, distributions
from importlib.metadata import packages_distributions as modules_of_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

MOST_BYTES = 60_000_000
"""Maximum size of the wheel, which has the models and examples."""
HOOK = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing())
"""


def run(*command: str | Path, folder: Path, path: str = "", code: int = 0) -> str:
    """Output of a command, which must exit with a code without this repository on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": path} if path else {}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if code else "")


class Installed(NamedTuple):
    """A virtual environment with the wheel."""

    commands: Path
    packages: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.commands / "python"

    def only(self, extras: set[str], folder: Path) -> str:
        """A path with which Python finds only what an installation with some extras has."""
        (own,) = distributions(name="relpe", path=[str(self.packages)])
        reached: set[tuple[str, frozenset[str]]] = set()
        waiting = [("relpe", frozenset(extras))]
        while waiting:
            if (package := waiting.pop()) in reached:
                continue
            reached.add(package)
            try:
                lines = (own if package[0] == "relpe" else distribution(package[0])).requires
            except PackageNotFoundError:  # of another system
                continue
            for line in map(Requirement, lines or ()):
                contexts = [{"extra": extra} for extra in package[1] or {""}]
                if line.marker is None or any(map(line.marker.evaluate, contexts)):
                    waiting.append((canonicalize_name(line.name), frozenset(line.extras)))
        present = {name for name, _ in reached} | {"pip", "setuptools"}
        refused = {
            module
            for module, names in modules_of_distributions().items()
            if not present & set(map(canonicalize_name, names))
        }
        assert {"gradio", "pytest"} <= refused
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(HOOK.format(refused=refused))
        return str(folder / "hook")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel in a virtual environment that has access to the packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    # hatchling is among the dev packages: nothing is fetched
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    run(*pip, "wheel", *options, ROOT, folder=folder)
    (wheel,) = folder.glob("relpe-*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    venv.create(folder / "venv", with_pip=False)
    variables = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    found = Installed(
        Path(sysconfig.get_path("scripts", "venv", variables)),
        Path(sysconfig.get_path("purelib", "venv", variables)),
    )
    run(*pip, "--python", found.python, "install", "--no-deps", wheel, folder=folder)
    # .pth files in a folder added by a .pth file are not read, so the editable installation of
    # this repository is not visible
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (found.packages / "others.pth").write_text("\n".join(others))
    return found


@pytest.fixture
def prompt(tmp_path):
    """A file of one quarter note of C4 (division 480), then the end of the track."""
    track = bytes.fromhex("00903c40 8360803c40 00ff2f00")
    header = b"MThd" + bytes.fromhex("00000006 0000 0001 01e0")
    path = tmp_path / "prompt.mid"
    path.write_bytes(header + b"MTrk" + len(track).to_bytes(4, "big") + track)
    return path


def test_the_wheel_provides_packages_models_and_commands(installed, tmp_path):
    code = "import app, relpe, tokenization, training; print(relpe.__file__)"
    found = Path(run(installed.python, "-c", code, folder=tmp_path).strip())
    packages = installed.packages
    assert found == packages / "relpe" / "__init__.py"
    assert not [*packages.glob("tests"), *packages.glob("benchmarks")]
    for path in (ROOT / "checkpoints").rglob("*"):
        copy = packages / "relpe" / "_checkpoints" / path.relative_to(ROOT / "checkpoints")
        assert path.is_dir() or copy.read_bytes() == path.read_bytes()
    for name in ("relpe", "relpe-train"):
        assert "usage" in run(installed.commands / name, "--help", folder=tmp_path).lower()


def test_without_extras_all_of_the_library_is_imported_in_a_second(installed, tmp_path):
    path = installed.only(set(), tmp_path)
    code = "import sys, time, torch; start = time.process_time(); import relpe;"
    code += "print(len([getattr(relpe, name) for name in relpe.__all__]));"
    code += "print(time.process_time() - start)"
    names, seconds = run(installed.python, "-c", code, folder=tmp_path, path=path).split()
    assert int(names) > 20
    assert float(seconds) < 1
    said = run(installed.commands / "relpe", "ui", folder=tmp_path, path=path, code=2)
    assert "run pip install 'relpe[page]'" in said


def test_music_alone_continues_a_file_and_names_the_extras_of_other_commands(
    installed, prompt, tmp_path
):
    path, relpe = installed.only({"music"}, tmp_path), installed.commands / "relpe"
    made = ["--output", "out.mid", "--audio", "out.flac", "--score", "out.musicxml"]
    made += ["--bars", "1", "--seed", "1", "--device", "cpu"]
    run(relpe, "continue", prompt.name, *made, folder=tmp_path, path=path)
    assert (tmp_path / "out.mid").read_bytes().startswith(b"MThd")
    run(relpe, "inspect", "out.musicxml", folder=tmp_path, path=path)
    for extra, *command in (
        ("page", "ui"),
        ("listen", "batch", "--output", "batch"),
        ("listen", "listen", "."),
        ("listen", "listen-report", "."),
    ):
        said = run(relpe, *command, folder=tmp_path, path=path, code=2)
        assert said.startswith("relpe: ")
        assert f" is not installed; run pip install 'relpe[{extra}]'" in said
        assert said.count("\n") == 1


def test_a_batch_and_its_page_need_only_the_extra_of_listening_tests(installed, prompt, tmp_path):
    path, relpe = installed.only({"listen"}, tmp_path), installed.commands / "relpe"
    study = f"name: A\nprompts: [{prompt.name}]\nlast_bar: 1\nbars: 1\naudio: flac\nconditions:\n"
    for name, temperature in (("a", 0.8), ("b", 1.0)):
        study += f"- {{kind: model, name: {name}, model: piano, options: "
        study += f"{{takes: 1, temperature: {temperature}}}}}\n"
    (tmp_path / "study.yaml").write_text(study)
    made = ["study.yaml", "--output", "clips", "--backend", "torch"]
    run(relpe, "batch", *made, folder=tmp_path, path=path)
    run(relpe, "listen", "clips", "--export", folder=tmp_path, path=path)
