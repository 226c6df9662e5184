"""The pages of the site: complete, short, and made of what the code says."""

from __future__ import annotations

import importlib.util
import re
import tomllib

import pytest

from docs.build import FOLDER, assemble, complete, main
from docs.reference import pages
from tests.support.options import OPTIONS


def test_formulas_become_mathml_and_code_stays():
    text = "$x_1$ and `$HOME`\n\n$$y = x$$\n\n```sh\necho $HOME $PATH\n```\nit costs $5\n"
    built = complete(text, {})
    assert built.count("<math") == 2
    assert "`$HOME`" in built
    assert "echo $HOME $PATH" in built
    assert "costs $5" in built


def test_commands_are_listed_with_all_their_options():
    generated = pages()
    for program, commands in OPTIONS.items():
        page = generated[f"reference/{program}-command.md"]
        for command, options in commands.items():
            section = page.partition(f"## {program} {command}\n")[2].partition("\n## ")[0]
            named = set(re.findall(r"`(--[\w-]+)", section))
            assert {word for word in options if word.startswith("--")} - {"--help"} <= named


def test_every_page_is_in_the_navigation(tmp_path):
    assemble(tmp_path / "pages")
    written = {p.relative_to(tmp_path / "pages").as_posix() for p in tmp_path.rglob("*.md")}
    nav = tomllib.loads((FOLDER / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    listed = re.findall(r"[\w/-]+\.md", str(nav))
    assert sorted(listed) == sorted(written)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra docs")
def test_the_site_is_built_strictly_and_asks_nobody_else():
    assert main(["build"]) == 0
    files = (FOLDER / "build" / "site").rglob("*.html")
    texts = {path: path.read_text("utf-8") for path in files if path.name != "404.html"}
    for path, text in texts.items():
        assert not re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(https?:[^"]+)', text), (
            path
        )
        for target, anchor in re.findall(
            r'(?:src|href)="(?!https?:|data:)([^"#?]*)#?([^"]*)"', text
        ):
            page = path.parent / target if target else path
            assert page.exists(), (path, target)
            assert not anchor or f'id="{anchor}"' in texts[page.resolve()], (path, target, anchor)
