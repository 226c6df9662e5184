# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The page as Gradio blocks, without a browser."""

from __future__ import annotations

import asyncio
from typing import get_type_hints

import gradio as gr
import pytest

from app.compose.models import ComputeOptions, Models
from app.compose.options import OPTIONS
from app.web.callbacks.events import from_text, values_of
from app.web.page import build_page
from app.web.tabs.music import TITLES
from relpe.models.checkpoint import save_model
from tests.support.seen import SOMEONE

SCRIPTED = {*OPTIONS, "last_bar", "beats", "model", "Run", "first_bar"}
SCRIPTED |= {"tracks", "instrument", "rest"}
"""Names of widgets that only scripts see."""


def build(models, folder):
    """The page, built inside a running event loop, since Gradio does not close its own loop."""

    async def call():
        return build_page(models, folder)

    return asyncio.run(call())


@pytest.fixture
def page(model, tmp_path):
    return build(Models.only(model), tmp_path)


def test_the_page_builds_and_only_its_endpoints_are_public(page):
    named = {
        fn.api_name: fn for fn in page.fns.values() if fn.api_visibility == "public" and fn.api_name
    }
    assert {"continue", "generate", "stop"} <= set(named)
    assert not any("compose" in name or "read" in name for name in named)
    assert page.analytics_enabled is False


def test_every_widget_has_an_explanation_and_a_label(page):
    kinds = (gr.Slider, gr.Radio, gr.Number, gr.Textbox, gr.Checkbox, gr.Button)
    seen = [
        block
        for block in page.blocks.values()
        if isinstance(block, kinds)
        and name_of(block) not in SCRIPTED
        and name_of(block)
        and getattr(block, "show_label", True)
    ]
    assert len(seen) > 30
    unexplained = {
        name_of(block)
        for block in seen
        if not getattr(block, "info", "") and not TITLES.keys() & set(block.elem_classes)
    }
    assert unexplained == set()
    groups = [block for block in page.blocks.values() if isinstance(block, gr.Radio)]
    assert len(groups) > 7
    assert all(group.label for group in groups)


def name_of(block):
    """The text on or beside a widget."""
    return block.value if isinstance(block, gr.Button) else block.label


def test_a_model_in_a_folder_is_called_by_its_name_not_its_path(small_model, tmp_path):
    folder = tmp_path / "deep" / "mine"
    save_model(small_model.decoder, folder)
    small_model.tokenizer.save(folder)
    models = Models(folder, ComputeOptions(backend="torch"))
    assert models.names == ("mine",)
    assert models.to_generate().name == "mine"
    page = build(models, tmp_path / "music")
    assert "deep" not in str(page.get_config_file()["components"])


def test_gradio_sees_the_request_of_each_callback(calls):
    for call in (
        calls.jobs.begin,
        calls.jobs.compose,
        calls.jobs.stop_job,
        calls.history.leave,
        from_text(calls.uploads.choose_region),
    ):
        assert gr.Request in get_type_hints(call).values()
    assert gr.EventData in get_type_hints(calls.uploads.choose_region).values()


@pytest.mark.parametrize(
    ("text", "values"), [('{"first": 1}', {"first": 1}), ("[", {}), (None, {})]
)
def test_a_choice_is_sent_as_text(text, values):
    answer = from_text(lambda event, _: (values_of(event),))
    assert answer(text, SOMEONE) == (values,)  # pyright: ignore[reportArgumentType]
