"""The tab in which a band follows the chords that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from app.compose.fill.passage import music_like
from app.compose.jam import USUAL_BAND
from app.compose.plan.asked import styles_of
from app.web.assets import SCRIPTS

if TYPE_CHECKING:
    from app.compose.models import Models


def build_jam_tab(models: Models) -> gr.HTML:
    """Build the tab; return what triggers `ended` when a jam is to become a result."""
    name = models.suited(music_like(", ".join(USUAL_BAND)))
    styles = sorted(styles_of(models.tokenizer(name)))
    with gr.Tab("Jam", id="jam", elem_id="jam-tab"):
        return gr.HTML(
            elem_id="jam",
            apply_default_css=False,
            js_on_load=SCRIPTS.script("jam/jam.js", ("ended",), styles),
        )
