"""The page: its tabs, the player they share, and what calls what.

Widgets are in `tabs.py`, what they call in `callbacks.py`; the work is done in `app.server`.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import gradio as gr

from app.compose.options import MAX_FILE_BYTES, NEW_PIECE_BARS
from app.player import assets as player
from app.server.studio import Studio
from app.web import api as endpoints
from app.web.about import ABOUT_SCRIPT, about
from app.web.callbacks import Callbacks
from app.web.choices import CREATIVITY, key_note, mood_of, of_unit, roll_dice
from app.web.examples import finished_example
from app.web.results import RESULTS_SCRIPT
from app.web.session import EXAMPLE_OF_TAB
from app.web.tabs import TabWidgets, new_tab, upload_tab

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from gradio.components import Component
    from gradio.events import Dependency

    from app.compose.models import Models
    from app.server.studio import Sharing

TITLE = "relpe"


def build_page(
    models: Models,
    output_folder: Path,
    *,
    keep: bool = False,
    max_upload_bytes: int = MAX_FILE_BYTES,
    sharing: Sharing | None = None,
    soundfont: Path | None = None,
    closing: ExitStack | None = None,
) -> gr.Blocks:
    """The page as Gradio blocks; music goes to a folder per session below `output_folder`.

    All of that folder is served, and old files in it are removed unless they are to `keep`. Open
    the page with `serving.py`, since Gradio 6 takes theme, styles and allowed folders there. When
    `closing` ends, so do all jobs: the program would wait for their threads.
    """
    studio = Studio(models, output_folder, keep=keep, sharing=sharing, soundfont=soundfont)
    calls = Callbacks(studio, max_upload_bytes)
    if closing is not None:
        closing.callback(studio.stop_all)

    def file(request: object) -> dict[str, str]:
        return calls.file(request)

    def mix(request: object) -> dict[str, str]:
        return calls.mix(request)

    with gr.Blocks(
        title=f"{TITLE} · music, continued",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(3600, 86_400),
    ) as page:
        gr.HTML(_masthead(models), elem_id="masthead", apply_default_css=False)
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="controls"), gr.Tabs():
                tabs = [
                    upload_tab("continue", "Continue", models),
                    upload_tab("groove", "Groove", models),
                    new_tab("piano", "Piano", models, NEW_PIECE_BARS),
                ]
                with gr.Tab("About", id="about", elem_id="about-tab"):
                    gr.HTML(
                        about(models, keep=keep),
                        elem_id="about",
                        apply_default_css=False,
                        js_on_load=ABOUT_SCRIPT,
                    )
            with gr.Column(elem_id="stage"):
                roll = gr.HTML(
                    finished_example(EXAMPLE_OF_TAB["continue"]),
                    html_template=player.TEMPLATE,
                    js_on_load=player.SCRIPT,
                    server_functions=[file, mix],
                    apply_default_css=False,
                    elem_id="player",
                )
                results = gr.HTML(
                    elem_id="results", apply_default_css=False, js_on_load=RESULTS_SCRIPT
                )

        view: list[Component] = [roll, results]
        for tab in tabs:
            if tab.upload is not None:
                view += [tab.upload.card, tab.upload.beats]
        for tab in tabs:
            view += [tab.model, *tab.action]
        filled = [widget for tab in tabs for widget in (*tab.settings, tab.creativity)]
        for tab in tabs:
            for read in _wire_tab(calls, tab, roll, view):
                _on(read.then, calls.fill, None, filled)
        used = _on(roll.replay, calls.use_settings, None, view)
        _on(used.then, calls.fill, None, filled)
        _on(roll.stop, calls.stop_job)
        _on(roll.region, calls.choose_region, None, view, last_only=True)
        _on(roll.tracks, calls.choose_tracks, None, view, last_only=True)
        for event, call in (
            (roll.discard, calls.discard),
            (roll.undo, calls.undo),
            (roll.continue_this, calls.continue_this),
            (results.back, calls.go_back),
            (results.opened, calls.adopt),
        ):
            _on(event, call, None, view)
        endpoints.add(studio, max_upload_bytes)
        page.unload(calls.leave)
    return page


def _wire_tab(
    calls: Callbacks, tab: TabWidgets, roll: gr.HTML, view: list[Component]
) -> list[Dependency]:
    """What the widgets of one tab call; returns the readings of files, which may bring settings."""
    reads: list[Dependency] = []
    name, settings, action = gr.State(tab.name), tab.settings, tab.action
    _on(tab.tab.select, calls.open_tab, name, view)
    if tab.upload is not None:
        file = tab.upload.file
        seen = _on(file.upload, calls.reading, [name, file], view)
        reads.append(_on(seen.then, calls.read, [name, file], [file, *view]))
        for example, chip in tab.upload.examples:
            example_name = gr.State(example.name)
            reads.append(_on(chip.click, calls.take_example, [name, example_name], view))
        _on(tab.upload.card.too_large, calls.too_large, name, view)
        _on(tab.upload.card.forget, calls.forget, name, view)
        _on(tab.upload.beats.input, calls.count_anew, [name, tab.upload.beats], view)
    _on(tab.model.input, calls.choose_model, [name, tab.model], view)

    begun = _on(action.go.click, calls.begin, [name, *settings], [settings.seed, *view])
    _on(begun.failure, calls.refuse, None, view)
    written = _on(begun.success, calls.compose, None, roll, job=True)
    for over in (written.success, written.failure):  # `then` misses a full queue
        _on(over, calls.end, None, view)
    _on(action.stop.click, calls.stop_job)
    _on(action.discard.click, calls.discard, None, view)

    timed = [name, settings.length, settings.unit, settings.variations]
    for widget in (settings.length, settings.unit, settings.variations):
        _on(widget.change, calls.estimate, timed, action.estimate, last_only=True)
    _on(settings.unit.input, of_unit, settings.unit, settings.length)
    drawing = [settings.temperature, settings.top_p]
    _on(tab.creativity.input, lambda mood: list(CREATIVITY[mood]), tab.creativity, drawing)
    for slider in drawing:
        _on(slider.input, mood_of, drawing, tab.creativity, last_only=True)
    _on(tab.dice.click, roll_dice, None, [settings.seed, settings.fresh])
    _on(settings.seed.input, lambda: False, None, settings.fresh)
    _on(settings.key.blur, key_note, settings.key, tab.key_note)
    return reads


def _on(
    event: Callable[..., Dependency],
    call: Callable[..., object],
    inputs: object = None,
    outputs: object = None,
    *,
    job: bool = False,
    last_only: bool = False,
) -> Dependency:
    """Binds a callback, at once, or as a `job` in the queue; `last_only` skips to the latest.

    Nothing of it is seen: the player has its own progress line, and scripts have the endpoints.
    """
    return event(
        call,
        inputs,
        outputs,
        queue=job,
        concurrency_limit=None if job else "default",  # the studio refuses what is too much
        concurrency_id="jobs" if job else None,
        trigger_mode="always_last" if last_only else None,
        show_progress="hidden",
        api_visibility="private",
    )


def _masthead(models: Models) -> str:
    sizes = [f"{name}: {models.load(name).parameters / 1e6:.1f} M weights" for name in models.names]
    *before, last = models.names
    names = f"{', '.join(before)} and {last}" if before else last
    text = html.escape(f"Ready · {names} model{'s' if before else ''}")
    told = html.escape("What can be asked for now: " + ", ".join(sizes))
    return (
        "<header><div class='mark' aria-hidden='true'><i></i><i></i><i></i></div>"
        f"<h1>{TITLE}</h1><p class='tagline'>Music, continued</p>"
        f"<p class='model' title='{told}'><i aria-hidden='true'></i>{text}</p></header>"
    )
