"""The notebooks run from top to bottom, and say what they promise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.paths import ROOT


def run(name: str) -> dict[str, Any]:
    """Run the code of a notebook; return its variables."""
    notebook = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    variables: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), variables)
    return variables


@pytest.mark.slow
def test_a_layer_in_your_own_model_learns_and_writes():
    variables = run("layer")
    assert all(loss < 1 for loss in variables["losses"].values())
    assert len(variables["written"]) == 60


@pytest.mark.slow
def test_an_encoding_of_your_own_learns_to_recall():
    assert run("recall")["results"][8] > 0.9
