"""The page: widgets and callbacks; the work is done in `app.studio`, drawing in `app.player`."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from app import endpoints, player
from app.callbacks import CREATIVITY, Callbacks, mood_of, roll_dice
from app.options import MAX_FILE_BYTES, NEW_PIECE_BARS, MusicOptions, explained, limits, new_seed
from app.studio import EMPTY, Studio

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradio.components import Component
    from gradio.events import Dependency

    from app.continuation import Models

TITLE = "relpe"
BEATS = [("As in the file", "file"), ("Estimated", "estimate"), ("Clock", "grid")]
"""What bars and beats are counted by, offered where the file's own mean nothing."""

_ABOUT = """
**Continue** takes a MIDI file and writes what comes after it, from its next bar line on, in its
tempo and metre, with its instruments. The file itself stays as it is; new music is appended.

**New piece** starts from an empty page.

**Beats.** A recording of someone who plays often knows nothing of beats. Then they can be estimated
from the notes, or taken from a clock of 120 beats a minute.

**Seed.** The same seed with the same settings gives the same music again; the line below the
player and the names of files have them all: `a8` goes on after bar 8, `b16` is 16 bars long, `s7`
the seed, `T` the temperature, `p` top-p, `v2` the second variation; what is chosen among the
advanced settings follows, such as `d8.00` for the density and `in-C` for the key.

**Key, density, repetition** lead the music and do not force it: a few notes outside the key may
come, and a bar may have some notes more or fewer.

**Stop** keeps what is written so far, or skips the sound that is not made yet. Closing the tab ends
the work.

**Keys.** Space plays and pauses, 1 to 4 choose a variation, arrows move bar by bar when the roll is
selected. A click in the roll moves there, dragging scrolls.

Everything runs on this machine; nothing is sent anywhere. Scripts can call `/continue`, `/generate`
and `/stop`; where the queue is full, a POST of `{"data": [], "session_hash": …}` to
`/gradio_api/run/stop` does the same as the last.
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
    steering: tuple[Component, ...]
    """More of them, in the order of the callbacks' last arguments."""
    go: gr.Button
    stop: gr.Button


def build_page(
    models: Models,
    output_folder: Path,
    *,
    keep: bool = False,
    max_upload_bytes: int = MAX_FILE_BYTES,
) -> gr.Blocks:
    """The page as Gradio blocks; music goes to a folder per session below `output_folder`.

    All of that folder is served, and old files in it are removed unless they are to `keep`. Open
    the page with `app.serving`, since Gradio 6 takes theme, styles and allowed folders there.
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
                    continuing = _controls("Continue", MusicOptions.bars, interactive=False)
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
                    generating = _controls("Generate", NEW_PIECE_BARS, interactive=True)
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
            drawn = [settings.seed, settings.fresh]
            asked = [prompt, *drawn, settings.bars]
            begun = _on(controls.go.click, calls.begin, asked, [job, settings.seed, roll, *swapped])
            _on(begun.failure, calls.refuse, [*drawn, roll], roll)
            wanted = [prompt, *settings[:-1], job, kind, *controls.steering]
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


def _masthead(models: Models) -> str:
    loaded = [models.load(name) for name in models.names]
    facts = [f"{model.name} {model.parameters / 1e6:.1f} M parameters" for model in loaded]
    text = html.escape(" · ".join([*facts, str(loaded[0].device)]))
    return (
        "<header><div class='mark' aria-hidden='true'><i></i><i></i><i></i></div>"
        f"<h1>{TITLE}</h1><p class='tagline'>Music, continued</p>"
        f"<p class='model'><i aria-hidden='true'></i>{text}</p></header>"
    )


def _slider(name: str, label: str, value: float, step: float, info: str | None = None) -> gr.Slider:
    """A slider of an option within its limits."""
    least, most = limits(name).page
    assert most is not None
    return gr.Slider(least, most, value=value, step=step, label=label, info=info, buttons=[])


def _steering() -> tuple[Component, ...]:
    """Key, density and the like, each with a line that explains it."""

    def slider(name: str, label: str, step: float) -> gr.Slider:
        return _slider(name, label, getattr(MusicOptions, name), step, explained(name))

    key = gr.Textbox("", label="Key", info=explained("key"), placeholder="any", max_length=40)
    density = slider("density", "Density", 1)
    repetition = slider("repetition", "Against repetition", 0.05)
    ending = gr.Radio(
        [("Bar line", "bar"), ("Cadence", "cadence")],
        value=MusicOptions.ending,
        label="Ending",
        info=explained("ending"),
        elem_classes="segments",
    )
    top_k, min_p = slider("top_k", "Top-k", 1), slider("min_p", "Min-p", 0.01)
    return top_k, min_p, key, density, repetition, ending


def _controls(action: str, bars: int, *, interactive: bool) -> Controls:
    """The settings of a tab and its buttons, wired among themselves."""
    length = _slider("bars", "Length in bars", bars, 1)
    mood = gr.Radio(list(CREATIVITY), value="Balanced", label="Creativity", elem_classes="segments")
    _, most_variations = limits("variations").page
    variations = gr.Radio(
        list(range(1, int(most_variations or 1) + 1)),
        value=MusicOptions.variations,
        label="Variations",
        elem_classes="segments",
    )
    with gr.Row(elem_classes="seed"):
        # its limits are checked by `begin`: Gradio would end the call without a word
        seed = gr.Number(None, label="Seed", precision=0, buttons=[])
        dice = gr.Button("Roll the dice", elem_classes="dice")
        fresh = gr.Checkbox(True, label="new each time", container=False, elem_classes="fresh")
    with gr.Accordion("Advanced", open=False, elem_classes="advanced"):
        temperature = _slider("temperature", "Temperature", MusicOptions.temperature, 0.01)
        top_p = _slider("top_p", "Top-p", MusicOptions.top_p, 0.01)
        steering = _steering()
    go = gr.Button(action, variant="primary", interactive=interactive, elem_classes="go")
    stop = gr.Button("Stop", variant="stop", visible=False, elem_classes="go")

    _on(mood.input, lambda choice: list(CREATIVITY[choice]), mood, [temperature, top_p])
    for slider in (temperature, top_p):
        _on(slider.input, mood_of, [temperature, top_p], mood, last_only=True)
    _on(dice.click, roll_dice, None, [seed, fresh])
    _on(seed.input, lambda: False, None, fresh)
    settings = Settings(length, variations, temperature, top_p, seed, fresh)
    return Controls(settings, steering, go, stop)
