"""Build the site of the documents: `make docs`.

Copies `docs/pages` to `docs/build/pages`, adds generated pages, fills in the tables of results and
formulas as MathML, and calls Zensical, which checks every link. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from latex2mathml.converter import convert

from docs.reference import PICTURES, ROOT, pages, relink
from docs.results import Figure, plot_of, read_figures, table_of, tables

FOLDER = Path(__file__).parent
BUILT = FOLDER / "build" / "pages"
TABLE = re.compile(r"<!-- results: ([\w-]+) -->")
PLOT = re.compile(r"<!-- plot: ([\w-]+), (.+) -->")
FORMULA = re.compile(
    r"\$\$(?P<display>.+?)\$\$|(?<![\\\w$])\$(?P<inline>[^$\n]+?)\$(?![\w$])", re.DOTALL
)
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Assemble the pages and build the site, or with `serve` show it and return when stopped."""
    command = "serve" if "serve" in (sys.argv[1:] if arguments is None else arguments) else "build"
    assemble(BUILT)
    strict = ["--strict"] if command == "build" else []
    zensical = Path(sys.executable).with_name("zensical")
    config = str(FOLDER / "zensical.toml")
    words = [str(zensical), command, *strict, "--config-file", config]
    return subprocess.run(words, check=False).returncode


def assemble(target: Path) -> None:
    """Write all pages, complete, to a folder, which is emptied first.

    Raises:
        KeyError: a page names a table that has no figures.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(FOLDER / "pages", target)
    for picture, name in PICTURES.items():
        shutil.copy(ROOT / picture, target / name)
    figures = tables(read_figures())
    for path in sorted(target.rglob("*.md")):
        text = relink(path.read_text("utf-8"), f"docs/pages/{path.relative_to(target).as_posix()}")
        path.write_text(complete(text, figures), "utf-8")
    for name, text in pages().items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def complete(text: str, figures: dict[str, list[Figure]]) -> str:
    """Return a page with its tables and plots, and formulas as MathML; code stays as it is."""
    text = TABLE.sub(lambda match: table_of(figures[match[1]]), text)
    text = PLOT.sub(lambda match: plot_of(figures[match[1]], match[2]), text)
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [FORMULA.sub(_mathml, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, FORMULA.sub(_mathml, text[end:])])


def _mathml(match: re.Match[str]) -> str:
    if match["display"]:
        return convert(" ".join(match["display"].split()), display="block")
    return (
        f"<span>{convert(match['inline'])}</span>"  # at the start of a line, math would be a block
    )


if __name__ == "__main__":
    sys.exit(main())
