"""The page: widgets and callbacks; the work is done in `app.studio`, drawing in `app.player`."""

from __future__ import annotations

import html
import tempfile
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from app import endpoints, player
from app.callbacks import CREATIVITY, Callbacks, mood_of, roll_dice
from app.look import theme
from app.options import LARGEST_SEED
from app.studio import EMPTY, MOST_VARIATIONS, Studio, new_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradio.events import Dependency

    from app.continuation import Models

TITLE = "relpe"
MAX_UPLOAD_BYTES = 10_000_000
"""Largest MIDI file taken, unless the caller says otherwise."""
MAX_WAITING = 8
"""Jobs that may wait for the model at the same time."""

BEATS = [("As in the file", "file"), ("Estimated", "estimate"), ("Clock", "grid")]
"""What bars and beats are counted by, offered where the file's own mean nothing."""

_ABOUT = """
**Continue** takes a MIDI file and writes what comes after it, from its next bar line on, in its
tempo and metre, with its instruments. The file itself stays as it is; new music is appended.

**New piece** starts from an empty page.

**Beats.** A recording of someone who plays often knows nothing of beats. Then they can be estimated
from the notes, or taken from a clock of 120 beats a minute.

**Seed.** The same seed with the same settings gives the same music again; file names carry both.

**Stop** keeps what is written so far. Closing the tab ends the work.

**Keys.** Space plays and pauses, 1 to 4 choose a variation, arrows move bar by bar when the roll is
selected. A click in the roll moves there, dragging scrolls.

Everything runs on this machine; nothing is sent anywhere. Scripts can call `/continue`, `/generate`
and `/stop`.
"""


class Settings(NamedTuple):
    """The widgets that say how music is made, in the order of the callbacks' arguments."""

    bars: gr.Slider
    variations: gr.Radio
    temperature: gr.Slider
    top_p: gr.Slider
    seed: gr.Number
    fresh: gr.Checkbox


class Controls(NamedTuple):
    """One tab's settings and its two buttons, of which one is seen."""

    settings: Settings
    go: gr.Button
    stop: gr.Button


def build_page(
    models: Models,
    output_folder: Path,
    *,
    keep: bool = False,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
) -> gr.Blocks:
    """The page as Gradio blocks; music goes to a folder per session below `output_folder`.

    All of that folder is served, and old files in it are removed unless they are to `keep`. Open
    the page with `launch`, since Gradio 6 takes theme, styles and allowed folders there.
    """
    studio = Studio(models, output_folder, keep=keep)
    calls = Callbacks(studio, max_upload_bytes)

    def wav(request: dict[str, str]) -> str:
        return studio.wav(request["audio"])

    with gr.Blocks(
        title=f"{TITLE} · {models.names[0]}",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(3600, 86_400),
    ) as page:
        upload, job = gr.State(None), gr.State(None)
        gr.HTML(_masthead(models), elem_id="masthead", apply_default_css=False)
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="controls"), gr.Tabs():
                with gr.Tab("Continue"):
                    file = gr.File(
                        label="Your piece (MIDI)",
                        file_types=[".mid", ".midi"],
                        elem_id="upload",
                        height=112,
                    )
                    facts = gr.HTML(elem_id="facts", apply_default_css=False)
                    beats = gr.Radio(
                        BEATS, value="file", label="Beats", visible=False, elem_classes="segments"
                    )
                    last_bar = gr.Slider(
                        1,
                        2,
                        value=1,
                        step=1,
                        label="Go on after bar",
                        visible=False,
                        buttons=[],
                    )
                    continuing = _controls("Continue", bars=16, interactive=False)
                with gr.Tab("New piece"):
                    gr.HTML(
                        "<p class='lead'>A piece from an empty page: tempo, metre and all.</p>",
                        apply_default_css=False,
                    )
                    kind = gr.Radio(
                        [(name.capitalize(), name) for name in models.names],
                        value=models.names[0],
                        label="Music",
                        visible=len(models.names) > 1,
                        elem_classes="segments",
                    )
                    generating = _controls("Generate", bars=32, interactive=True)
                with gr.Tab("About"):
                    gr.Markdown(_ABOUT, elem_id="about")
            with gr.Column(elem_id="stage"):
                roll = gr.HTML(
                    EMPTY,
                    html_template=player.TEMPLATE,
                    js_on_load=player.SCRIPT,
                    server_functions=[wav],
                    apply_default_css=False,
                    elem_id="player",
                )

        shown = [upload, facts, beats, last_bar, continuing.go, roll]
        _on(file.upload, calls.read, file, shown)
        _on(file.clear, calls.forget, None, shown)
        counted = [upload, facts, last_bar, continuing.go, roll]
        _on(beats.input, calls.count_anew, [upload, beats], counted)
        _on(last_bar.input, calls.move_joint, [upload, last_bar], [upload, roll], last_only=True)
        seeds = [continuing.settings.seed, generating.settings.seed]
        swapped = [continuing.go, continuing.stop, generating.go, generating.stop]
        for controls, prompt in ((continuing, upload), (generating, gr.State(None))):
            settings = controls.settings
            asked = [prompt, settings.seed, settings.fresh]
            begun = _on(controls.go.click, calls.begin, asked, [job, settings.seed, roll, *swapped])
            wanted = [prompt, *settings[:-1], job, kind]
            written = _on(begun.success, calls.compose, wanted, roll, model=True)
            for over in (written.success, written.failure):  # `then` misses a full queue
                _on(over, calls.end, [upload, job], [roll, *swapped])
            _on(controls.stop.click, calls.stop_job)
        _on(roll.stop, calls.stop_job)
        _on(page.load, lambda: [new_seed(), new_seed()], None, seeds)
        endpoints.add(studio, max_upload_bytes)
        page.unload(calls.leave)
    return page


def _on(
    event: Callable[..., Dependency],
    call: Callable[..., object],
    inputs: object = None,
    outputs: object = None,
    *,
    model: bool = False,
    last_only: bool = False,
) -> Dependency:
    """Binds a callback, at once or in the queue of the `model`; `last_only` skips to the latest.

    Nothing of it is seen: the player has its own progress line, and scripts have the endpoints.
    """
    return event(
        call,
        inputs,
        outputs,
        queue=model,
        concurrency_limit=1 if model else "default",
        concurrency_id=endpoints.MODEL_QUEUE if model else None,
        trigger_mode="always_last" if last_only else None,
        show_progress="hidden",
        api_visibility="private",
    )


def launch(
    models: Models,
    *,
    host: str = "127.0.0.1",
    port: int | None = 7860,
    output_folder: Path | None = None,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
    open_browser: bool = False,
) -> None:
    """Serves the page until it is interrupted.

    Music is kept in a new folder in `output_folder`; without one in a temporary folder, for a day
    or until the program ends. Whoever can reach the page can read a file of this run if they know
    its name, and nothing else.
    """
    with ExitStack() as stack:
        if output_folder is None:
            served = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relpe-")))
        else:
            output_folder.mkdir(parents=True, exist_ok=True)
            served = Path(tempfile.mkdtemp(prefix=f"{date.today()}-", dir=output_folder))
            stack.callback(_remove_if_empty, served)
        page = build_page(
            models, served, keep=output_folder is not None, max_upload_bytes=max_upload_bytes
        )
        open_page(
            page,
            served,
            host=host,
            port=port,
            max_upload_bytes=max_upload_bytes,
            open_browser=open_browser,
        )


def open_page(
    page: gr.Blocks,
    output_folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = 7860,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
    open_browser: bool = False,
    block: bool = True,
) -> str:
    """Starts the server of a built page and returns its address; `block` waits for its end."""
    page.queue(max_size=MAX_WAITING)
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        inbrowser=open_browser,
        share=False,
        ssr_mode=False,
        prevent_thread_lock=not block,
        quiet=True,
        run_history=False,
        enable_monitoring=False,
        footer_links=[],
        allowed_paths=[str(output_folder.resolve())],
        max_file_size=max_upload_bytes,
        theme=theme(),
        css_paths=player.STYLES,
    )
    return address


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _masthead(models: Models) -> str:
    loaded = [models.load(name) for name in models.names]
    facts = [f"{model.name} {model.parameters / 1e6:.1f} M parameters" for model in loaded]
    text = html.escape(" · ".join([*facts, str(loaded[0].device)]))
    return (
        "<header><div class='mark' aria-hidden='true'><i></i><i></i><i></i></div>"
        f"<h1>{TITLE}</h1><p class='tagline'>Music, continued</p>"
        f"<p class='model'><i aria-hidden='true'></i>{text}</p></header>"
    )


def _controls(action: str, *, bars: int, interactive: bool) -> Controls:
    """The settings of a tab and its buttons, wired among themselves."""
    length = gr.Slider(1, 64, value=bars, step=1, label="Length in bars", buttons=[])
    mood = gr.Radio(list(CREATIVITY), value="Balanced", label="Creativity", elem_classes="segments")
    variations = gr.Radio(
        list(range(1, MOST_VARIATIONS + 1)), value=1, label="Variations", elem_classes="segments"
    )
    with gr.Row(elem_classes="seed"):
        seed = gr.Number(
            None, label="Seed", precision=0, minimum=0, maximum=LARGEST_SEED, buttons=[]
        )
        dice = gr.Button("Roll the dice", elem_classes="dice")
        fresh = gr.Checkbox(True, label="new each time", container=False, elem_classes="fresh")
    with gr.Accordion("Advanced", open=False, elem_classes="advanced"):
        temperature = gr.Slider(0.5, 1.5, value=1.0, step=0.01, label="Temperature", buttons=[])
        top_p = gr.Slider(0.5, 1.0, value=0.95, step=0.01, label="Top-p", buttons=[])
    go = gr.Button(action, variant="primary", interactive=interactive, elem_classes="go")
    stop = gr.Button("Stop", variant="stop", visible=False, elem_classes="go")

    _on(mood.input, lambda choice: list(CREATIVITY[choice]), mood, [temperature, top_p])
    for slider in (temperature, top_p):
        _on(slider.input, mood_of, [temperature, top_p], mood, last_only=True)
    _on(dice.click, roll_dice, None, [seed, fresh])
    _on(seed.input, lambda: False, None, fresh)
    return Controls(Settings(length, variations, temperature, top_p, seed, fresh), go, stop)
