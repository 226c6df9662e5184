"""The lists of files in ARCHITECTURE.md, made from first docstring lines: `make architecture`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.paths import ROOT

DOCUMENT = ROOT / "ARCHITECTURE.md"
PACKAGES = ("relpe", "tokenization", "training", "app")
BEGIN = "<!-- files: `make architecture` makes them from first docstring lines -->\n"
END = "<!-- end of files -->\n"
FEWEST_WORDS = 4
"""What stands after a colon, semicolon or bracket is left out if this many words precede it."""


def subject_of(path: Path) -> str:
    """Return the first docstring line of a file, without its end and explanations."""
    line = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
    for separator in re.finditer(r"[:;.] | \(|, (?=as |which |whose |where |so that )", line):
        if len(line[: separator.start()].split()) >= FEWEST_WORDS:
            return line[: separator.start()]
    return line.removesuffix(".")


def files_of(package: str) -> str:
    """Return a table with a row for each folder of a package."""
    rows = []
    for init in sorted((ROOT / package).rglob("__init__.py")):
        folder = init.parent
        names = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
        files = " · ".join(f"`{path.name}` {subject_of(path)}" for path in names)
        name = folder.relative_to(ROOT).as_posix()
        rows.append(f"| `{name}` | {subject_of(init)} | {files} |\n")
    return f"\n| folder | subject | files |\n|---|---|---|\n{''.join(rows)}"


def updated(document: str) -> str:
    """Return the document with the lists of files as they are now."""
    head, _, rest = document.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}{''.join(map(files_of, PACKAGES))}\n{END}{tail}"


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text("utf-8")), encoding="utf-8")
