# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The tab About."""

from __future__ import annotations

import json
import re

from app.compose.models import Models
from app.web.tabs.about import about, model_line


def test_about_describes_the_released_models_in_plain_words_with_exact_terms_as_tooltips():
    text = about(Models())
    for fact in ("MIT (pop909)", "GPL-2-or-later", "sine stochastic", "512 events", "with pointer"):
        assert fact in text
    assert "prepared corpus" not in text
    assert model_line(Models(), "piano").startswith("Solo piano · ")
    seen = re.sub(r"<h3>[^<]*</h3>|<[^>]*>", "", text)
    for term in ("kneser_ney", "untransposed", "int8", "znver", "encoding, initialised"):
        assert term not in seen
    for exact in (
        "whole pieces, with pointer",
        "algebraic positional encoding, initialised as rotary",
        "delta attention and windowed attention over 512 events",
    ):
        assert f"title='{exact}" in text
    for name in Models().names:
        assert f"<h3>{name}</h3>" in text


def test_a_small_model_has_a_size_and_no_table_of_its_pointer(model, monkeypatch, tmp_path):
    """A model without measured results, as `relpe-train export` writes it."""
    (tmp_path / "model.safetensors").write_bytes(bytes(31_400))
    decoder = {"encoding": {"kind": "rope"}, "attention": {"kind": "softmax"}}
    description = {"decoder": decoder, "weights": ["model.safetensors"]}
    (tmp_path / "model.json").write_text(json.dumps(description))
    table = "| family | gain |\n|---|---|\n| Key | 0.1 |\n"
    (tmp_path / "README.md").write_text(f"# tiny\n\n## Pointer\n\n{table}")
    models = Models.only(model)
    monkeypatch.setattr(Models, "folder", lambda *_: tmp_path)
    text = about(models)
    assert "31 kB" in text
    assert "<table>" not in text


def test_about_names_a_model_that_is_not_on_disk(model):
    model.parameters = 31_400
    models = Models.only(model)
    text = about(models)
    assert "removed within a day" in text
    assert "until its owner removes them" in about(models, keep=True)
    assert "<h3>fake</h3>" in text
    assert "Licence" not in text
    assert model_line(models, "fake") == "31,400 weights"  # all digits
