"""The examples of relpe/README.md run, and every encoding is exported."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

import relpe
from relpe import EncodingConfig
from tests.support.paths import ROOT

TEXT = (ROOT / "relpe" / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
OF_LAYERS = TEXT.split("## A layer")[1].split("\n## ")[0]
LAYERS = [code for code in EXAMPLES if code in OF_LAYERS]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    code = EXAMPLES[number]
    if "flax" in code:
        pytest.importorskip("flax")
    named: dict[str, Any] = {}
    exec(code, named)
    if code in LAYERS:
        assert named["out"].isfinite().all()
        assert len(code.strip().splitlines()) <= 10


def test_there_are_examples_of_layers() -> None:
    assert len(LAYERS) == 3


def test_all_encodings_are_exported_and_in_the_table() -> None:
    for config in get_args(EncodingConfig):
        assert config.__name__ in relpe.__all__  # pyright: ignore[reportAttributeAccessIssue]
        assert f"`{config.kind}`" in TEXT
    assert all(hasattr(relpe, name) for name in relpe.__all__)  # pyright: ignore[reportAttributeAccessIssue]


def test_the_package_has_types() -> None:
    assert (ROOT / "relpe" / "py.typed").is_file()
