# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The tab About."""

from __future__ import annotations

import re

from app.compose.models import Models
from app.web.about import about, model_line


def test_about_lists_licence_encoding_and_results_of_the_released_models():
    text = about(Models())
    for fact in ("MIT, Copyright", "GPL-2-or-later", "sine stochastic", "1,024 tokens", "1.8376"):
        assert fact in text
    assert "prepared corpus" not in text
    assert model_line(Models(), "piano").startswith("Solo piano · ")


def test_about_uses_plain_words_with_exact_terms_as_tooltips():
    text = about(Models())
    seen = re.sub(r"<[^>]*>", "", text)
    for raw in (
        "kneser_ney",
        "untransposed",
        "int8",
        "znver",
        "encoding, initialised",
        "algebraic",
    ):
        assert raw not in seen
    for exact in (
        "5-gram, kneser_ney, untransposed",
        "algebraic positional encoding, initialised as rotary",
    ):
        assert f"title='{exact}" in text
    for name in Models().names:
        assert f"<h3>{name}</h3>" in text


def test_about_names_a_model_that_is_not_on_disk(model):
    text = about(Models.only(model))
    assert "removed within a day" in text
    assert "until its owner removes them" in about(Models.only(model), keep=True)
    assert "<h3>fake</h3>" in text
    assert "Licence" not in text
