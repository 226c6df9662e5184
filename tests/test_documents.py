"""Files, folders, modules and commands that are named in the documents exist."""

from __future__ import annotations

import argparse
import re
import tomllib
from functools import cache
from pathlib import Path

from app.cli import main as relpe
from tests.support.paths import ROOT
from training import cli as relpe_train

PACKAGES = "app|relpe|tokenization|training"

DOCUMENTS = [
    *sorted(path for path in ROOT.glob("*.md") if path.name not in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs" / "pages").rglob("*.md")),
    *sorted(
        path
        for path in ROOT.rglob("README.md")
        if not {".venv", "node_modules", ".git"} & set(path.relative_to(ROOT).parts)
    ),
]
OFFERED = {"relpe": relpe._parser(), "relpe-train": relpe_train._parser()}
FILE = re.compile(r"(?<![\w.*{/<-])[\w./-]+\.(?:py|md|js|css|html|yaml|toml|npz)(?![\w*])")
FOLDER = re.compile(
    rf"(?<![\w./-])(?:{PACKAGES}|tests|benchmarks|checkpoints|examples)/[\w./-]*(?![\w.{{*<])"
)


# written by runs, reports and studies, and files of the reader
MADE = {"config.yaml", "mine.yaml", "other.yaml", "evaluation.md", "report.md", "report.html"}
MADE |= {"webmushra.yaml"}


def code_of(text: str) -> list[str]:
    """The code in a document: in backticks, or lines of fenced blocks."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.splitlines()]
    return [*re.findall(r"`([^`\n]+)`", plain), *lines]


@cache
def names_of_files() -> set[str]:
    kept = (p for p in ROOT.rglob("*") if not {".venv", ".git"} & set(p.relative_to(ROOT).parts))
    return {path.name for path in kept}


def missing_files(document: Path) -> list[str]:
    """Files and folders that a document names and that do not exist."""
    found = []
    for code in code_of(document.read_text("utf-8")):
        for name in FILE.findall(code) + FOLDER.findall(code):
            last = name.rstrip("/").rpartition("/")[2]
            places = (ROOT / name, document.parent / name)
            there = any(p.exists() for p in places) if "/" in name else last in names_of_files()
            if not there and name not in MADE and not last.isupper():
                found.append(name)
    return found


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def is_program(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def subcommands(parser: argparse.ArgumentParser) -> set[str]:
    """Names of the commands of a parser."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {name for action in actions for name in action.choices}


def missing_names(document: Path) -> list[str]:
    """Commands and modules that a document names and that do not exist."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    found = []
    for code in code_of(document.read_text("utf-8")):
        for program, name in re.findall(
            r"(?:^|[\s;|&])(relpe|relpe-train) (?!import )([a-z][\w-]*)", code
        ):
            if name not in subcommands(OFFERED[program]):
                found.append(f"{program} {name}")
        made = re.findall(r"(?:^|\s)make ([a-z][\w-]*)", code)
        found += [f"make {name}" for name in made if name not in targets]
        run = re.findall(rf"python3? -m ((?:{PACKAGES}|benchmarks)[\w.]*)", code)
        found += [f"python -m {name}" for name in run if not is_program(name)]
        imported = re.findall(rf"(?:from|import) ((?:{PACKAGES})\b[\w.]*)", code)
        found += [f"import {name}" for name in imported if not is_module(name)]
    return found


# commands of the cards of released models are those of the commits that they name
CARDS = [path for path in DOCUMENTS if path.parent.parent == ROOT / "checkpoints"]


def test_what_the_documents_name_exists():
    missing = {path.relative_to(ROOT).as_posix(): missing_names(path) for path in DOCUMENTS}
    for path in DOCUMENTS:
        if path not in CARDS:
            missing[path.relative_to(ROOT).as_posix()] += missing_files(path)
    assert {document: names for document, names in missing.items() if names} == {}


def test_names_that_do_not_exist_are_found(tmp_path):
    document = tmp_path / "README.md"
    document.write_text(
        "`app/nothing.py`, `relpe/`, `nowhere.js`, `relpe fetch` and `make coffee`\n"
        "```\nrelpe/gone/x.py\npython -m training.gone\nfrom relpe.gone import x\nrelpe ui\n```\n"
    )
    assert set(missing_files(document)) == {"app/nothing.py", "nowhere.js", "relpe/gone/x.py"}
    assert missing_names(document) == [
        "relpe fetch",
        "make coffee",
        "python -m training.gone",
        "import relpe.gone",
    ]


def test_documents_have_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")


LINKS = re.compile(r"\]\(([\w./-]*)(?:#([\w-]+))?\)")


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings."""
    found = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_links_of_the_documents_lead_somewhere():
    for document in DOCUMENTS:
        for name, anchor in LINKS.findall(document.read_text("utf-8")):
            target = document.parent / name if name else document
            assert target.exists(), (document, name)
            assert not anchor or anchor in headings(target), (document, f"{name}#{anchor}")
