"""Checks the statements of ARCHITECTURE.md about imports, folders and tests."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

from app.cli.main import COMMANDS
from tests.support.architecture import DOCUMENT, updated
from tests.support.paths import ROOT

OWN = {"app", "relpe", "tokenization", "training", "tests", "benchmarks"}
MAY_IMPORT = {
    "relpe": set(),
    "tokenization": set(),
    "training": {"relpe", "tokenization"},
    "app": {"relpe", "tokenization"},
}
# Third-party packages; training and app may use those of their extras.
MAY_USE = {
    # numpy: the mask of a grammar is an array
    "relpe": {"torch", "safetensors", "jaxtyping", "numpy"},
    "tokenization": {"numpy"},
}
EXTRAS = {
    "relpe": ["train", "fast", "jax", "hub"],
    "tokenization": ["convert", "fast", "musicxml"],
    "training": ["train", "images", "translation"],
    "app": ["app"],
}
# The instrument makes, reads and hears music; the stage is how people meet it. No module of the
# instrument imports one of the stage. The value is the extra with which a part works alone.
INSTRUMENT = {
    **{"relpe": "", "tokenization": "", "training": "train"},
    **dict.fromkeys(("app", "app.compose", "app.audio", "app.cli"), "music"),
    **dict.fromkeys(("app.errors", "app.files", "app.text"), "music"),
}
STAGE = {
    **dict.fromkeys(("app.web", "app.server", "app.player"), "page"),
    **dict.fromkeys(("app.listening", "app.batch"), "listen"),
}
# Packages of extras that the development environment need not have, by the name of their import.
OPTIONAL = {
    **{"jax": ["jax"], "mnist1d": ["mnist1d"], "sklearn": ["scikit-learn"]},
    **{"sacrebleu": ["sacrebleu"], "tokenizers": ["tokenizers"]},
}
# Files that convert objects of other libraries, draw, compile or serve another framework; nothing
# else needs their packages.
MEETS_OTHERS = {
    "musicxml.py": {"music21"},
    "convert.py": {"mido", "miditoolkit", "muspy", "pretty_midi", "symusic"},
    "plots.py": {"matplotlib"},
    "compiled.py": {"llvmlite", "numba"},
    "kernels.py": {"llvmlite", "numba"},
    "arithmetic.py": {"numba"},
    "event_bytes.py": {"numba"},
    "jax_reference.py": {"jax"},
    "hub.py": {"huggingface_hub"},
}
FILES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


class Import(NamedTuple):
    """An import in a file, which may be in a function."""

    line: int
    module: str
    names: tuple[str, ...]
    """What is imported from the module; empty for the module itself."""


@cache
def imports(path: Path) -> list[Import]:
    """All imports of a file by full names."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = tuple(alias.name for alias in node.names)
            found.append(Import(node.lineno, node.module or "", names))
    return found


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared(extras: list[str]) -> set[str]:
    """Names of the distributions that an installation with these extras requires."""
    lines = list(project()["dependencies"])
    for extra in extras:
        lines += project()["optional-dependencies"][extra]
    others = [name for line in lines for name in re.findall(r"^relpe\[(.*)\]", line)]
    named = {canonical(re.split(r"[^\w.-]", line)[0]) for line in lines} - {"relpe"}
    return named.union(*(declared(names.split(",")) for names in others))


@cache
def distributions() -> dict[str, list[str]]:
    return OPTIONAL | dict(packages_distributions())


def objections(package: str, path: Path) -> list[str]:
    """Problems with the imports of a file of a package, one sentence each."""
    asked_for = declared(EXTRAS[package])
    found = []
    for line, name, _ in imports(path):
        top = name.partition(".")[0]
        where = f"{path.name}:{line} imports {name}"
        if top in OWN:
            if top not in MAY_IMPORT[package] | {package}:
                found.append(f"{where}: {package} may import {sorted(MAY_IMPORT[package])}")
        elif top not in sys.stdlib_module_names:
            names = {canonical(name) for name in [top, *distributions().get(top, [])]}
            if top not in MAY_USE.get(package, {top}) | MEETS_OTHERS.get(path.name, set()):
                found.append(f"{where}: {package} may use {sorted(MAY_USE[package])}")
            elif not names & asked_for:
                found.append(f"{where}: pyproject.toml does not declare it for {package}")
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_follow_the_table(package):
    files = [path for path in FILES if path.relative_to(ROOT).parts[0] == package]
    assert [objection for path in files for objection in objections(package, path)] == []


def table() -> dict[str, tuple[str, str]]:
    """For each package in ARCHITECTURE.md, its allowed imports, and its folders top to bottom."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", text, re.MULTILINE)
    return {package: (may_import, folders) for package, may_import, folders in rows}


def test_the_table_of_this_test_is_that_of_architecture():
    for package, allowed in MAY_IMPORT.items():
        assert set(re.findall(r"`(\w+)`", table()[package][0])) == allowed, package


def test_the_lists_of_files_are_made_from_their_docstrings():
    """After a change of files or of their first docstring lines, run `make architecture`."""
    text = DOCUMENT.read_text("utf-8")
    assert updated(text) == text
    assert len(re.findall(r"`\w+\.py` \w", text)) > 400  # every file has a subject


def test_a_wrong_import_is_seen_and_a_right_one_is_not(tmp_path):
    path = tmp_path / "module.py"
    for package, source, objection in (
        ("app", "def late():\n    from training.runs.fit import fit", "may import"),
        ("relpe", "import os, tokenization.midi", "may import"),
        ("tokenization", "if TYPE_CHECKING:\n    from torch import Tensor", "may use"),
        ("app", "import lightning_fabric", "does not declare"),
        ("app", "import nothing_of_this_name", "does not declare"),
    ):
        path.write_text(source)
        imports.cache_clear()
        (found,) = objections(package, path)
        assert objection in found
    path.write_text("import json, torch, gradio\nfrom relpe import sampling\nfrom . import page")
    imports.cache_clear()
    assert objections("app", path) == []


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def graph() -> dict[str, set[str]]:
    """Modules of the packages, and the modules that each imports, including in functions."""
    modules = {module_of(path) for path in FILES}
    found: dict[str, set[str]] = {}
    for path in FILES:
        names: set[str] = set()
        for _, module, imported in imports(path):
            # a name in a package is one of its modules, or is defined in its __init__.py
            parts = {f"{module}.{name}" for name in imported} or {module}
            names |= {part if part in modules else module for part in parts}
        found[module_of(path)] = (names & modules) - {module_of(path)}
    return found


def test_no_modules_import_each_other_in_a_circle():
    left = {module: set(imported) for module, imported in graph().items()}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    # the remaining modules are part of an import cycle or depend on one
    needed = set().union(*left.values()) if left else set()
    assert not sorted(left.keys() & needed)


def part_of(module: str) -> str:
    """The part of the instrument or the stage that has a module."""
    top = ".".join(module.split(".")[:2])
    return top if top in INSTRUMENT | STAGE else top.partition(".")[0]


def crossings(modules: dict[str, set[str]]) -> list[str]:
    """Imports of the stage by the instrument, at any depth of a file."""
    return [
        f"{module} imports {name}"
        for module in sorted(modules)
        for name in sorted(modules[module])
        if part_of(module) in INSTRUMENT and part_of(name) in STAGE
    ]


def test_the_instrument_does_not_import_the_stage():
    tops = {path for path in (ROOT / "app").iterdir() if not path.name.startswith("_")}
    assert {f"app.{path.stem}" for path in tops if path.suffix in ("", ".py")} | {"app"} == {
        part for part in INSTRUMENT | STAGE if part.startswith("app")
    }
    assert not crossings(graph())
    assert crossings({"app.cli.music": {"app.batch.run"}, "app.web": {"app.audio"}}) == [
        "app.cli.music imports app.batch.run"
    ]


def test_only_the_table_of_commands_names_modules_of_the_stage():
    named = re.compile(rf"({'|'.join(map(re.escape, STAGE))})\b[.:\w]*")
    found = set()
    for path in FILES:
        if part_of(module_of(path)) in INSTRUMENT:
            texts = re.findall(r'"([\w.:]+)"', path.read_text("utf-8"))
            found |= {text for text in texts if named.fullmatch(text)}
    commands = {name: command.arguments for name, command in COMMANDS.items()}
    assert found == {name for name in commands.values() if part_of(name) in STAGE}
    parts = {name: (INSTRUMENT | STAGE)[part_of(text)] for name, text in commands.items()}
    assert parts == {name: command.extra for name, command in COMMANDS.items()}


def needed(modules: set[str]) -> set[str]:
    """Modules with all that they import, in functions too, and the packages that these are in."""
    reached: set[str] = set()
    while new := modules - reached:
        reached |= new
        above = {name.rpartition(".")[0] for name in new}
        modules = {
            name for name in above.union(*(graph()[name] for name in new)) if name in graph()
        }
    return reached


@pytest.mark.parametrize("extra", ["music", "page", "listen"])
def test_an_extra_declares_all_packages_that_its_modules_reach(extra):
    parts = {part for part, name in (INSTRUMENT | STAGE).items() if name == extra}
    modules = needed({module for module in graph() if part_of(module) in parts})
    packages = declared([extra])
    undeclared = {
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        if module_of(path) in modules
        for line, name, _ in imports(path)
        if (top := name.partition(".")[0]) not in OWN | sys.stdlib_module_names
        if not {canonical(name) for name in distributions().get(top, [top])} & packages
    }
    assert not sorted(undeclared)


def layers(package: str) -> dict[str, int]:
    """Folders and files at the top of a package, and their layers; 0 is the highest."""
    floors = table()[package][1].split(">")
    return {name: at for at, floor in enumerate(floors) for name in re.findall(r"`(\w+)`", floor)}


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_between_folders_go_down_the_line_in_architecture(package):
    floors = layers(package)
    # modules below a package, by the folder or file at its top that they are in
    tops = {
        name: name.split(".")[1]
        for name in graph()
        if name.startswith(f"{package}.") and not name.endswith(".__main__")
    }
    assert set(tops.values()) == floors.keys()
    upwards = [
        f"{module} imports {name}"
        for module, top in tops.items()
        for name in graph()[module] & tops.keys()
        if tops[name] != top and floors[tops[name]] <= floors[top]
    ]
    assert not sorted(upwards)


MOST_ENTRIES = 14


def test_no_folder_has_more_than_about_a_dozen_entries():
    folders = [
        folder
        for package in (*MAY_IMPORT, "benchmarks")
        for folder in (ROOT / package, *(ROOT / package).rglob("*/"))
        if "configs" not in folder.parts and not folder.name.startswith("_")
    ]
    crowded = {}
    for folder in folders:
        entries = [
            entry
            for entry in folder.iterdir()
            if not entry.name.startswith(("_", ".")) and entry.suffix not in (".md", ".typed")
        ]
        if len(entries) > MOST_ENTRIES:
            crowded[folder.relative_to(ROOT).as_posix()] = len(entries)
    assert not crowded


TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_tests_mirror_the_folders():
    places = {path.parent.relative_to(ROOT / "tests") for path in TESTS}
    mirrored = {*MAY_IMPORT, "benchmarks"}
    of_packages = {place for place in places if place.parts and place.parts[0] in mirrored}
    assert not [place.as_posix() for place in of_packages if not (ROOT / place).is_dir()]


def test_no_test_imports_another():
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in TESTS
        for line, name, _ in imports(path)
        if name.startswith("tests.") and re.search(r"\.(test_\w+|conftest)$", name)
    ]
    assert not found


@pytest.mark.parametrize("package", [*MAY_IMPORT, "benchmarks"])
def test_no_class_name_stands_twice_in_a_package(package):
    names = [
        node.name
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "hub.py"  # the same models, which the hub can load
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
