"""The commands begin only with the packages that were installed with them."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module

import pytest

from relpe import __main__ as entry
from tests.support.paths import ROOT


def test_commands_begin_in_this_package():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert set(scripts) == {"relpe", "relpe-train"}
    for place in scripts.values():
        module, _, function = place.partition(":")
        assert module == "relpe.__main__"
        assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("kind", ["package", "module", "folder"])
def test_what_shadows_a_package_is_said_in_a_sentence(kind, tmp_path, monkeypatch, capsys):
    assert entry.shadowed("app", "training", "tokenization") == ""
    other = tmp_path / ("app.py" if kind == "module" else "app")
    if kind == "module":
        other.touch()
    else:
        other.mkdir()
        (other / ("__init__.py" if kind == "package" else "x.txt")).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("app", "tokenization"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert entry.relpe() == 2
    said = capsys.readouterr().err
    assert said.startswith(f"relpe: found {other} under the name app, expected {ROOT / 'app'}; ")
    assert said.count("\n") == 1
    monkeypatch.setattr(sys, "path", [])
    assert entry.shadowed("app").startswith("relpe: found nothing under the name app")
