"""Pages that are generated: commands, configs and the API, from parsers and docstrings."""

from __future__ import annotations

import argparse
import ast
import json
import posixpath
import re
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path

from relpe.command_line import docstrings

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "relpe", "tokenization", "training")
DOCUMENTS = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "GLOSSARY.md": "project/glossary.md",
    "CHANGELOG.md": "project/changes.md",
    "checkpoints/README.md": "project/models.md",
}
"""Documents of the repository that are pages too."""
NOTEBOOKS = {
    "docs/notebooks/layer.ipynb": "start/model.md",
    "docs/notebooks/recall.ipynb": "start/encoding.md",
}
"""Notebooks, and their pages."""
PICTURES = {"examples/page.png": "page.png"}
LINKED = DOCUMENTS | NOTEBOOKS | PICTURES | {"training/configs": "reference/configs.md"}
"""What pages link to in the repository, and what the site has in its place."""


def pages() -> dict[str, str]:
    """Return the generated pages by their path below `pages`."""
    programs = {
        "relpe": import_module("app.cli.main"),
        "relpe-train": import_module("training.cli"),
    }
    return {
        f"reference/{name}-command.md": command_page(name, program._parser())
        for name, program in programs.items()
    } | {
        "reference/configs.md": configs_page(),
        **{
            f"reference/{package.replace('.', '-')}.md": api_page(package, names)
            for package, names in public_names().items()
        },
        "project/files.md": files_page(),
        **{page: notebook_page(ROOT / name) for name, page in NOTEBOOKS.items()},
        **{
            page: relink((ROOT / name).read_text("utf-8"), name) for name, page in DOCUMENTS.items()
        },
    }


def relink(text: str, name: str) -> str:
    """Return a document, named by its path in the repository, with the links of its page.

    Links to files that the site does not have become text.
    """

    def moved(link: re.Match[str]) -> str:
        target, _, place = link["target"].partition("#")
        path = (ROOT / name).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
        page = LINKED.get(path) or path.removeprefix("docs/pages/")
        if page == path:
            return link["text"]
        own_page = DOCUMENTS.get(name) or name.removeprefix("docs/pages/")
        page = posixpath.relpath(page, posixpath.dirname(own_page))
        return f"[{link['text']}]({page}{place and f'#{place}'})"

    return re.sub(r"\[(?P<text>[^]]+)\]\((?P<target>(?!https?:|#)[^)]+)\)", moved, text)


def notebook_page(path: Path) -> str:
    """Return the texts and the code of a notebook as a page."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    fences = {"markdown": "{}", "code": "```python\n{}\n```"}
    return "\n\n".join(fences[cell["cell_type"]].format("".join(cell["source"])) for cell in cells)


def command_page(program: str, parser: argparse.ArgumentParser) -> str:
    """Return the page of a program: a section for each command, with a table of its options."""
    lines = [
        f"# The command `{program}`",
        "",
        f"Commands and options, as `{program} --help` lists them.",
    ]
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in actions:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, command in action.choices.items():
            lines += ["", f"## {program} {name}", "", _sentence(helps.get(name, "")), ""]
            needed = [a for a in command._actions if a.required]
            usage = [f"{program} {name}", *map(_usage, needed), "[options]"]
            lines += ["```", " ".join(usage), "```", ""]
            lines += ["| option | meaning |", "|---|---|"]
            lines += [_option(option) for option in command._actions if option.dest != "help"]
    return "\n".join([*lines, ""])


def configs_page() -> str:
    """Return the page of all settings of `relpe-train`: trainer, optimizer and every task."""
    config = import_module("training.config")
    lines = [
        "# Settings of `relpe-train`",
        "",
        "Keys of configs, and of `--set`: `--set trainer.seed=1`. A setting whose default is a "
        "section has settings of its own.",
    ]
    sections = {"trainer": config.TrainerConfig, "optimizer": config.OptimizerConfig}
    tasks = import_module("training.experiment").TASKS
    sections |= {f"task, kind: {kind}": task for kind, task in tasks.items()}
    for name, kind in sections.items():
        text = (kind.__doc__ or "").strip().partition("\n\n")[0]
        lines += ["", f"## {name}", "", _cell(text), ""]
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        texts = docstrings(kind)
        for field in fields(kind):
            default = "" if field.default is MISSING else _value(field.default)
            lines.append(f"| `{field.name}` | {default} | {_cell(texts.get(field.name, ''))} |")
    lines += [
        "",
        "## Configs",
        "",
        "Files in `training/configs`, by their first lines.",
    ]
    configs = ROOT / "training" / "configs"
    for folder in sorted(path for path in configs.iterdir() if path.is_dir()):
        lines += ["", f"### {folder.name}", "", "| config | |", "|---|---|"]
        for path in sorted(folder.glob("*.yaml")):
            words = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            lines.append(f"| `{path.name}` | {_cell(words)} |")
    return "\n".join([*lines, ""])


def api_page(package: str, names: dict[str, str]) -> str:
    """Return the page of a package's public names, by the modules that have them."""
    lines = [
        f"# Package `{package}`",
        "",
        f"What `from {package.partition('.')[0]} import …` offers, from the docstrings.",
    ]
    module = None
    for name, home in sorted(names.items(), key=lambda item: (item[1], item[0])):
        if home != module:
            lines += ["", f"## {home}"]
            module = home
        lines += ["", f"::: {home}.{name}", "    options:", "      heading_level: 3"]
    return "\n".join([*lines, ""])


def public_names() -> dict[str, dict[str, str]]:
    """Return the public names of each package with their modules; those of `relpe` in parts."""
    tree = ast.parse((ROOT / "relpe" / "public.py").read_text("utf-8"))
    names: dict[str, dict[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            part = next(
                (p for p in ("attention", "encodings") if f"relpe.{p}" in node.module), "models"
            )
            names.setdefault(f"relpe.{part}", {}).update(
                {alias.name: node.module for alias in node.names if alias.asname == alias.name}
            )
    return names | {package: homes(package) for package in ("app", "tokenization")}


def homes(package: str) -> dict[str, str]:
    """Return the names of a package's `__all__` that have docstrings, with their modules."""
    module = import_module(package)
    names = {name: getattr(module, name) for name in module.__all__}
    return {
        name: value.__module__
        for name, value in names.items()
        if getattr(value, "__module__", "").startswith(package) and hasattr(value, "__name__")
    }


def files_page() -> str:
    """Return the list of all modules, with the first sentence of each."""
    lines = ["# Files", "", "Every module, with the first sentence of its docstring."]
    for package in PACKAGES:
        for folder in (ROOT / package, *sorted((ROOT / package).rglob("*/"))):
            modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            if not modules:
                continue
            init = folder / "__init__.py"
            lines += ["", f"## {folder.relative_to(ROOT).as_posix()}", ""]
            lines += [first_sentence(init) if init.exists() else "", ""]
            lines += ["| file | |", "|---|---|"]
            lines += [f"| `{path.name}` | {_cell(first_sentence(path))} |" for path in modules]
    return "\n".join([*lines, ""])


def first_sentence(path: Path) -> str:
    """Return the first paragraph of a module's docstring in one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _option(option: argparse.Action) -> str:
    text = (option.help or "").replace("%%", "%")
    if "%(default)s" in text:
        text = text.replace("%(default)s", str(option.default))
    return f"| `{_usage(option)}` | {_cell(_sentence(text))} |"


def _usage(option: argparse.Action) -> str:
    """Return an option with its value, as it is typed."""
    value = option.metavar
    if value is None and option.choices is not None:
        value = f"{{{','.join(str(choice) for choice in option.choices)}}}"
    if isinstance(value, tuple):
        value = " ".join(value)
    value = value or option.dest.upper()
    if not option.option_strings:
        return value
    word = max(option.option_strings, key=len)
    return word if option.nargs == 0 else f"{word} {value}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    """Escape in a plain text what Markdown would read as markup, or as the end of a cell."""
    parts = re.split(r"(`[^`]+`)", re.sub(r"\s+", " ", text).replace("|", "&#124;"))
    parts[::2] = [re.sub(r"([\[\]*_])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def _value(value: object) -> str:
    """Return a default as code; a section by the name of its kind."""
    if is_dataclass(value) and not isinstance(value, type):
        return f"{getattr(value, 'kind', type(value).__name__)}, a section"
    return f"`{value}`" if value is not None else "none"
