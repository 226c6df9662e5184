"""The examples of the documents in Python run, and every encoding is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

import relpe
from relpe import EncodingConfig
from tests.support.paths import ROOT

PAGES = ROOT / "docs" / "pages"
BLOCK = re.compile(r"(?<!-->\n)^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(match[1], id=f"{path.relative_to(ROOT)}-{number}")
    for path in [*sorted(PAGES.rglob("*.md")), *sorted(ROOT.glob("*/README.md"))]
    for number, match in enumerate(BLOCK.finditer(path.read_text("utf-8")))
    if "http://127.0.0.1" not in match[1]  # tests/app/web/programs runs it
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("examples", "checkpoints"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    named: dict[str, Any] = {}
    exec(code, named)
    if "Attention(" in code and "out" in named:
        assert named["out"].isfinite().all()
        assert len(code.partition("layer = ")[2].splitlines()) <= 5


def test_all_encodings_are_exported_and_in_the_table() -> None:
    table = (PAGES / "concepts/choosing.md").read_text("utf-8")
    for config in get_args(EncodingConfig):
        assert config.__name__ in relpe.__all__  # pyright: ignore[reportAttributeAccessIssue]
        assert f"`{config.kind}`" in table
    assert all(hasattr(relpe, name) for name in relpe.__all__)  # pyright: ignore[reportAttributeAccessIssue]


def test_the_package_has_types() -> None:
    assert (ROOT / "relpe" / "py.typed").is_file()
