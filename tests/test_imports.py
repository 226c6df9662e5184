"""The direction of imports: the table of ARCHITECTURE.md, section 1."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.paths import ROOT

OWN = {"app", "relpe", "tokenization", "training", "tests", "benchmarks"}
MAY_IMPORT = {
    "relpe": set(),
    "tokenization": set(),
    "training": {"relpe", "tokenization"},
    "app": {"relpe", "tokenization"},
}
# Packages of others; training and app take what their extra declares.
MAY_USE = {
    # numpy: the mask of a grammar, which rules sampling, is an array of it
    "relpe": {"torch", "safetensors", "jaxtyping", "numpy"},
    "tokenization": {"numpy"},
}
EXTRAS = {
    "relpe": ["train", "fast"],
    "tokenization": ["convert"],
    "training": ["train"],
    "app": ["app"],
}
# Files that are there for other libraries' objects, or to draw, and import them where they do.
MEETS_OTHERS = {
    "convert.py": {"mido", "miditoolkit", "muspy", "pretty_midi", "symusic"},
    "plots.py": {"matplotlib"},
    "compiled.py": {"llvmlite", "numba"},
    "kernels.py": {"llvmlite", "numba"},
}
FILES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> list[tuple[int, str]]:
    """Line and full name of all that a file imports, wherever in the file it does."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append((node.lineno, node.module or ""))
    return found


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared(extras: list[str]) -> set[str]:
    """Names of the distributions that an installation with these extras asks for."""
    lines = list(project()["dependencies"])
    for extra in extras:
        lines += project()["optional-dependencies"][extra]
    return {canonical(re.split(r"[^\w.-]", line)[0]) for line in lines}


@cache
def distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def objections(package: str, path: Path) -> list[str]:
    """What is wrong with the imports of a file of a package, one sentence each."""
    asked_for = declared(EXTRAS[package])
    found = []
    for line, name in imports(path):
        top = name.partition(".")[0]
        where = f"{path.name}:{line} imports {name}"
        if top in OWN:
            if top not in MAY_IMPORT[package] | {package}:
                found.append(f"{where}: {package} may import {sorted(MAY_IMPORT[package])}")
        elif top not in sys.stdlib_module_names:
            names = {canonical(distribution) for distribution in distributions().get(top, [top])}
            if top not in MAY_USE.get(package, {top}) | MEETS_OTHERS.get(path.name, set()):
                found.append(f"{where}: {package} may use {sorted(MAY_USE[package])}")
            elif not names & asked_for:
                found.append(f"{where}: pyproject.toml does not declare it for {package}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_follow_the_table(path):
    assert objections(path.relative_to(ROOT).parts[0], path) == []


def test_the_table_of_this_test_is_that_of_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", text, re.MULTILINE))
    for package, allowed in MAY_IMPORT.items():
        assert set(re.findall(r"`(\w+)`", rows[package])) == allowed, package


@pytest.mark.parametrize(
    ("package", "source", "objection"),
    [
        ("app", "def late():\n    from training.runs.fit import fit", "may import"),
        ("training", "import app.audio.render", "may import"),
        ("relpe", "import os, tokenization.midi", "may import"),
        ("relpe", "import tests.strategies", "may import"),
        ("tokenization", "if TYPE_CHECKING:\n    from torch import Tensor", "may use"),
        ("app", "import pytorch_lightning", "does not declare"),
        ("app", "import nothing_of_this_name", "does not declare"),
    ],
)
def test_a_wrong_import_is_seen(package, source, objection, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(source)
    (found,) = objections(package, path)
    assert objection in found


def test_a_right_import_is_let_through(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import json, torch, gradio\nfrom relpe import sampling\nfrom . import page")
    assert objections("app", path) == []
