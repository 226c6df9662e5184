"""Builds the page: its tabs, the player, and the callbacks of their events.

Widgets are in `tabs`, callbacks in `callbacks`; `app.server` does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from app.compose.models import Models
from app.compose.options import MAX_FILE_BYTES
from app.compose.tracks import instrument_names
from app.player import assets as player
from app.server.downloads import MENU
from app.server.studio import Sharing, Studio
from app.web.assets import SCRIPTS, static
from app.web.callbacks import Callbacks
from app.web.callbacks.events import from_text
from app.web.callbacks.jams import JamCallbacks
from app.web.callbacks.settings import ASKED_BY_ROWS, PLANNED
from app.web.cards import RESULTS_SCRIPT
from app.web.examples import finished_example
from app.web.programs import api as endpoints
from app.web.session import FIRST_EXAMPLE
from app.web.tabs.about import ABOUT_SCRIPT, about
from app.web.tabs.jam import build_jam_tab
from app.web.tabs.music import (
    CREATIVITY,
    OVER,
    MusicWidgets,
    UploadWidgets,
    build_music_tab,
    mood_of,
    of_unit,
    roll_dice,
    titles_of,
)
from app.web.tabs.study import StudyForm, build_study_tab
from app.web.view import ONLY_PROMPT

TITLE = "relpe"
_SHOWN = """(...values) => [
  Number(document.querySelector("#player .player")?.dataset.shown ?? 0), ...values.slice(1, %d)
]"""
"""Replaces the first value that is sent by the variation that the player shows."""
_LAST = """() => [document.querySelector("#player .player").dataset.%s]"""
"""Replaces the value that is sent by the player's last choice of a kind."""
_MASTHEAD = (
    "<header><div class='mark' aria-hidden='true'><i></i><i></i><i></i></div>"
    f"<h1>{TITLE}</h1><p class='tagline'>Music, continued</p></header>"
)


class Page(gr.Blocks):
    """The page, with the jams that are played on it."""

    jams: JamCallbacks


def build_page(
    models: Models,
    output_folder: Path,
    *,
    keep: bool = False,
    max_upload_bytes: int = MAX_FILE_BYTES,
    sharing: Sharing | None = None,
    soundfont: Path | None = None,
    closing: ExitStack | None = None,
) -> Page:
    """Return the page as Gradio blocks; music goes to a folder per session below `output_folder`.

    The whole folder is served, and old files in it are removed unless `keep` is set. Start the
    server with `open_page` of `serving.py`, since Gradio 6 takes theme, styles and allowed folders
    at the start. When `closing` exits, all jobs are stopped, so that the program need not wait for
    their threads.
    """
    studio = Studio(models, output_folder, keep=keep, sharing=sharing, soundfont=soundfont)
    calls = Callbacks(studio, max_upload_bytes)
    if closing is not None:
        closing.callback(studio.stop_all)

    def file(request: object) -> dict[str, object]:  # Gradio sets attributes, which methods forbid
        return calls.files.file(request)

    with Page(
        title=f"{TITLE} · music, continued",
        analytics_enabled=False,
        fill_width=True,
    ) as page:
        page.jams = calls.jams
        gr.HTML(
            _MASTHEAD,
            elem_id="masthead",
            apply_default_css=False,
            js_on_load=SCRIPTS.script("page.js", values=titles_of(models)),
        )
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="controls"), gr.Tabs():
                music = build_music_tab(models)
                jam = build_jam_tab(models)
                study = build_study_tab(studio.studies.model_names)
                with gr.Tab("About", id="about", elem_id="about-tab"):
                    gr.HTML(
                        about(models, keep=keep),
                        elem_id="about",
                        apply_default_css=False,
                        js_on_load=ABOUT_SCRIPT,
                    )
            with gr.Column(elem_id="stage"):
                with gr.Row(elem_id="over"):
                    for name in OVER:
                        music.form.options[name].render()
                roll = gr.HTML(
                    finished_example(FIRST_EXAMPLE),
                    html_template=player.template(MENU, [*instrument_names(), "Drums"]),
                    js_on_load=player.script(player.sound_bank(soundfont)),
                    server_functions=[file],
                    apply_default_css=False,
                    elem_id="player",
                )
                results = gr.HTML(
                    {},
                    html_template=static("results/cards.html"),
                    elem_id="results",
                    apply_default_css=False,
                    js_on_load=RESULTS_SCRIPT,
                    server_functions=[file],
                )

        upload, filled, options = music.upload, music.form.filled, music.form.options
        view: list[Component] = [roll, results, upload.card, upload.beats]
        view += [music.model, *music.action, *(options[name] for name in OVER)]
        view += [options["bars"], music.form.unit, *(options[name] for name in ONLY_PROMPT)]
        for read in _wire_upload(calls, upload, view):
            _on(read.then, calls.settings.fill_form, None, filled)
        _wire_form(calls, music, roll, view)
        _wire_study(calls, study)
        _wire_player(calls, roll, results, view)
        _on(jam.ended, calls.jams.keep, None, view)
        endpoints.add(studio, max_upload_bytes)
        page.unload(calls.history.leave)
    return page


def _wire_player(
    calls: Callbacks,
    roll: gr.HTML,
    results: gr.HTML,
    view: list[Component],
) -> None:
    """Bind the events of the player and of the results below it."""
    _on(roll.stop, calls.jobs.stop_job)
    last_choice = gr.Textbox(visible=False)
    for name, event, choice in (
        ("region", roll.region, calls.uploads.choose_region),
        ("tracks", roll.tracks, calls.uploads.choose_tracks),
        ("select", roll.select, calls.uploads.choose_passage),
    ):
        how = {"last_only": True, "checked": False, "js": _LAST % name}
        _on(event, from_text(choice), last_choice, view, **how)
    for event, call in (
        (roll.discard, calls.jobs.discard),
        (roll.undo, calls.history.undo),
        (roll.redo, calls.history.redo),
        (results.back, calls.history.go_back),
        (results.clear, calls.history.clear),
        (results.opened, calls.history.adopt),
    ):
        _on(event, call, None, view)
    _on(roll.edit, calls.uploads.edit, None, view)


def _wire_upload(
    calls: Callbacks, upload: UploadWidgets, view: list[Component]
) -> list[Dependency]:
    """Bind the callbacks of the upload; return the events that change the form."""
    file = upload.file
    seen = _on(file.upload, calls.uploads.reading, file, view)
    reads = [_on(seen.then, calls.uploads.read, file, [file, *view])]
    for example, chip in upload.examples:
        reads.append(_on(chip.click, calls.uploads.take_example, gr.State(example.name), view))
    _on(upload.card.too_large, calls.uploads.too_large, None, view)
    begins = (upload.new_piece.click, upload.card.forget)
    reads += [_on(event, calls.uploads.new_piece, None, view) for event in begins]
    _on(upload.card.drums, calls.uploads.choose_drums, None, view)
    _on(upload.beats.input, calls.uploads.count_anew, upload.beats, view)
    return reads


def _wire_form(calls: Callbacks, music: MusicWidgets, roll: gr.HTML, view: list[Component]) -> None:
    """Bind the callbacks of the model, the form, and the buttons that begin and end a job."""
    form, action = music.form, music.action
    options = form.options
    _on(music.model.input, calls.uploads.choose_model, music.model, view)
    shown = gr.Number(0, visible=False)  # which variation the player shows
    how = {"checked": False, "js": _SHOWN % (len(form.asked) + 1)}
    for begun in (
        _on(
            action.go.click, calls.jobs.begin, [shown, *form.asked], [options["seed"], *view], **how
        ),
        _on(action.again.click, calls.jobs.again, None, [options["seed"], *view]),
    ):
        _on(begun.failure, calls.jobs.refuse, None, view)
        job = _on(begun.success, calls.jobs.compose, music.listen, roll, job=True)
        for over in (job.success, job.failure):  # `then` does not run when the queue is full
            ended = _on(over, calls.jobs.end, None, view)
            _on(ended.then, calls.settings.fill_form, None, form.filled)
    _on(action.stop.click, calls.jobs.stop_job)
    _on(action.discard.click, calls.jobs.discard, None, view)

    planned = [form.unit if name == "unit" else options[name] for name in PLANNED]
    for widget in planned:
        _on(widget.change, calls.settings.plan, planned, view, last_only=True, checked=False)
    _on(roll.plan, calls.settings.ask, None, planned[: len(ASKED_BY_ROWS)], each=True)
    _on(form.unit.input, of_unit, form.unit, options["bars"])
    drawing = [options["temperature"], options["top_p"]]
    _on(form.creativity.input, lambda mood: list(CREATIVITY[mood]), form.creativity, drawing)
    for slider in drawing:
        _on(slider.input, mood_of, drawing, form.creativity, last_only=True)
    _on(form.dice.click, roll_dice, None, [options["seed"], form.fresh])
    _on(options["seed"].input, lambda: False, None, form.fresh)


def _wire_study(calls: Callbacks, form: StudyForm) -> None:
    """Bind the callbacks of the tab that makes studies."""
    given = [form.files, *form.asked]
    shown = [form.go, form.stop, form.result]
    result = _on(form.go.click, calls.studies.make_study, given, shown, job=True)
    _on(result.failure, calls.studies.refuse_study, None, shown)
    _on(form.stop.click, calls.studies.stop_study)
    for widget in (form.files, *form.asked):
        count = calls.studies.count_clips
        _on(widget.change, count, given, form.size, last_only=True, checked=False)


def _on(
    event: Callable[..., Dependency],
    call: Callable[..., object],
    inputs: object = None,
    outputs: object = None,
    *,
    job: bool = False,
    last_only: bool = False,
    each: bool = False,
    checked: bool = True,
    js: str | None = None,
) -> Dependency:
    """Bind a callback, which runs at once, or in the queue if it is a `job`.

    While a call runs, events are dropped, but for the latest with `last_only`, or none with `each`.
    Unless inputs are `checked`, the callback does it: for an empty field, Gradio would end the call
    without saying which one. Gradio displays no progress, since the player does, and adds no
    endpoint, since scripts have their own.
    """
    return event(
        call,
        inputs,
        outputs,
        queue=job,
        concurrency_limit=None if job else "default",  # the studio limits them
        concurrency_id="jobs" if job else None,
        trigger_mode="always_last" if last_only else "multiple" if each else None,
        preprocess=checked,
        show_progress="hidden",
        api_visibility="private",
        js=js,
    )
