"""The page's tabs: their widgets, each with a line that explains it."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from app.compose.options import MusicOptions, explained, limits, new_seed
from app.web.about import model_line
from app.web.choices import CREATIVITY
from app.web.examples import EXAMPLES, OF_BANDS, Example
from app.web.session import AUTOMATIC
from app.web.upload_card import CARD_SCRIPT
from app.web.view import BY_FILE, NO_SPEED

if TYPE_CHECKING:
    from app.compose.models import Models

BEATS = [("As in the file", "file"), ("Estimated", "estimate"), ("Clock", "grid")]
"""What bars and beats are counted by, offered where the file's own mean nothing."""
_EXPLAINED = {
    "length": "How much new music is written.",
    "unit": "Bars, or seconds up to the end of a bar.",
    "creativity": "Safe takes likely notes, Wild dares more.",
    "variations": "Pieces written at once, to choose from; each has its own seed.",
    "seed": "The same seed with the same settings makes the same music.",
    "temperature": "Evens out how likely notes are: below 1 safer, above 1 wilder.",
    "top_p": "Draws from the likeliest notes that hold this share of probability.",
    "beats": "What bars and beats are counted by: recordings know nothing of beats.",
}
TITLES = {
    "dice": "Draws another seed, which then stays for the pieces that follow.",
    "fresh": "Draws another seed for each piece; without it the seed stays as it is.",
    "go-continue": "Writes new music after your piece.",
    "go-generate": "Writes a piece from nothing.",
    "stop-keep": "Ends the work; what is written by then stays.",
    "discard": "Ends the work and throws away what it has written.",
    **{f"chip-{name}": f"{told[:1].upper()}{told[1:]}." for name, _, told in EXAMPLES},
}
"""What the widgets of these classes do that have no room for a line below them."""
_TITLES_SCRIPT = f"""
const told = Object.entries({json.dumps(TITLES)});
const tab = element.closest(".tabitem");
const tell = () => {{
  for (const [name, text] of told) {{
    for (const one of tab.querySelectorAll(`.${{name}}`)) one.title = text;
  }}
}};
// buttons come and go
new MutationObserver(tell).observe(tab, {{ childList: true, subtree: true }});
tell();
"""


class UploadWidgets(NamedTuple):
    """How a file comes, and what is said of it."""

    file: gr.File
    examples: list[tuple[Example, gr.Button]]
    card: gr.HTML
    beats: gr.Radio


class Settings(NamedTuple):
    """How music is made, in the order of the arguments of `Callbacks.begin`."""

    length: gr.Slider
    unit: gr.Radio
    variations: gr.Radio
    temperature: gr.Slider
    top_p: gr.Slider
    seed: gr.Number
    fresh: gr.Checkbox
    top_k: gr.Slider
    min_p: gr.Slider
    key: gr.Textbox
    density: gr.Slider
    repetition: gr.Slider
    presence: gr.Slider
    recall: gr.Slider
    ending: gr.Radio


class Action(NamedTuple):
    """The button that begins, those that end, and how long it takes."""

    go: gr.Button
    stop: gr.Button
    discard: gr.Button
    estimate: gr.HTML


class TabWidgets(NamedTuple):
    """All of one tab."""

    name: str
    tab: gr.Tab
    upload: UploadWidgets | None
    model: gr.Radio
    settings: Settings
    creativity: gr.Radio
    dice: gr.Button
    key_note: gr.HTML
    action: Action


def upload_tab(name: str, label: str, models: Models) -> TabWidgets:
    """A tab that takes a file and continues it."""
    bands = name == "groove"
    lead = (
        "A band goes on. Bring its file: below the player you then choose which tracks the model "
        "hears, and which of them play on."
        if bands
        else "Your piece goes on from its next bar line, in its tempo, with its instruments."
    )
    with gr.Tab(label, id=name, elem_id=f"{name}-tab", render_children=True) as tab:
        _lead(lead)
        file = gr.File(
            label="Your piece (MIDI)", elem_classes="upload", elem_id=f"{name}-upload", height=84
        )
        with gr.Row(elem_classes="examples"):
            gr.HTML("<span>Or try one of these</span>", apply_default_css=False)
            offered = OF_BANDS if bands else EXAMPLES
            examples = [
                (example, gr.Button(example.label, size="sm", elem_classes=classes))
                for example in offered
                for classes in [["chip", f"chip-{example.name}"]]
            ]
        card = gr.HTML(
            elem_classes="facts",
            elem_id=f"{name}-facts",
            apply_default_css=False,
            js_on_load=CARD_SCRIPT,
        )
        beats = gr.Radio(
            BEATS,
            value="file",
            label="Beats",
            info=_EXPLAINED["beats"],
            visible=False,
            elem_classes="segments",
        )
        model = _model(models, [("Automatic", AUTOMATIC)])
        rest = _controls("Continue", MusicOptions.bars, ready=False)
    return TabWidgets(name, tab, UploadWidgets(file, examples, card, beats), model, *rest)


def new_tab(name: str, label: str, models: Models, bars: int) -> TabWidgets:
    """A tab that makes music from nothing."""
    with gr.Tab(label, id=name, elem_id=f"{name}-tab", render_children=True) as tab:
        _lead("A piece from an empty page: tempo, metre and all are the model's.")
        model = _model(models, [])
        rest = _controls("Generate", bars, ready=True)
    return TabWidgets(name, tab, None, model, *rest)


def _lead(text: str) -> None:
    """What a tab does; its script explains the buttons of the tab."""
    gr.HTML(
        f"<p class='lead'>{html.escape(text)}</p>",
        apply_default_css=False,
        js_on_load=_TITLES_SCRIPT,
    )


def _model(models: Models, before: list[tuple[str, str]]) -> gr.Radio:
    """Choice of a model; its explanation says what it is for, and its size."""
    choices = [*before, *((name, name) for name in models.names)]
    return gr.Radio(
        choices,
        value=choices[0][1],
        label="Model",
        info=BY_FILE if before else model_line(models, models.names[0]),
        visible=len(models.names) > 1,
        elem_classes=["segments", "model"],
    )


def _slider(name: str, label: str, value: float, step: float, info: str) -> gr.Slider:
    """A slider of an option within its limits."""
    least, most = limits(name).page
    assert most is not None
    return gr.Slider(least, most, value=value, step=step, label=label, info=info, buttons=[])


def _controls(
    action: str, bars: int, *, ready: bool
) -> tuple[Settings, gr.Radio, gr.Button, gr.HTML, Action]:
    """The settings of a tab and its buttons."""
    with gr.Column(elem_classes="length"):
        length = _slider("bars", "Length", bars, 1, _EXPLAINED["length"])
        unit = gr.Radio(
            [("bars", "bars"), ("seconds", "seconds")],
            value="bars",
            label="Unit of the length",  # heard, not seen
            show_label=False,
            container=False,
            elem_classes=["segments", "unit"],
        )
    mood = gr.Radio(
        list(CREATIVITY),
        value="Balanced",
        label="Creativity",
        info=_EXPLAINED["creativity"],
        elem_classes="segments",
    )
    _, most = limits("variations").page
    variations = gr.Radio(
        list(range(1, int(most or 1) + 1)),
        value=MusicOptions.variations,
        label="Variations",
        info=_EXPLAINED["variations"],
        elem_classes="segments",
    )
    with gr.Row(elem_classes="seed"):
        # its limits are checked by `begin`: Gradio would end the call without a word
        seed = gr.Number(new_seed(), label="Seed", info=_EXPLAINED["seed"], precision=0, buttons=[])
        dice = gr.Button("Roll the dice", elem_classes="dice")
        fresh = gr.Checkbox(True, label="new each time", container=False, elem_classes="fresh")
    with gr.Accordion("Advanced", open=False, elem_classes="advanced"):
        temperature = _slider(
            "temperature", "Temperature", MusicOptions.temperature, 0.01, _EXPLAINED["temperature"]
        )
        top_p = _slider("top_p", "Top-p", MusicOptions.top_p, 0.01, _EXPLAINED["top_p"])
        steering, key_note = _steering(of_prompt=action == "Continue")
    with gr.Column(elem_classes="action"):
        classes = ["go", f"go-{action.lower()}"]
        go = gr.Button(action, variant="primary", interactive=ready, elem_classes=classes)
        classes = ["go", "stop-keep"]
        stop = gr.Button("Stop and keep", variant="stop", visible=False, elem_classes=classes)
        discard = gr.Button("Discard what is written", visible=False, elem_classes="discard")
        estimate = gr.HTML(NO_SPEED, elem_classes="estimate", apply_default_css=False)
    settings = Settings(length, unit, variations, temperature, top_p, seed, fresh, *steering)
    return settings, mood, dice, key_note, Action(go, stop, discard, estimate)


class _Steering(NamedTuple):
    """What leads the music."""

    top_k: gr.Slider
    min_p: gr.Slider
    key: gr.Textbox
    density: gr.Slider
    repetition: gr.Slider
    presence: gr.Slider
    recall: gr.Slider
    ending: gr.Radio


def _steering(*, of_prompt: bool) -> tuple[_Steering, gr.HTML]:
    """The widgets of steering, and what is wrong with the key.

    Those that mean something after a prompt alone are seen where there is one.
    """

    def slider(name: str, label: str, step: float) -> gr.Slider:
        return _slider(name, label, getattr(MusicOptions, name), step, f"{explained(name)}.")

    key = gr.Textbox(
        "",
        label="Key",
        info="Key or scale that the notes keep to, such as C, F#m or D dorian.",
        placeholder="any",
        max_length=40,
    )
    key_note = gr.HTML(elem_classes="key-note", apply_default_css=False)
    density = slider("density", "Density (notes in a bar)", 1)
    repetition = slider("repetition", "Against repetition", 0.05)
    presence = slider("presence", "Instruments go on playing", 0.05)
    recall = slider("recall", "Like the prompt", 0.05)
    presence.visible = recall.visible = of_prompt
    ending = gr.Radio(
        [("Bar line", "bar"), ("Cadence", "cadence")],
        value=MusicOptions.ending,
        label="Ending",
        info="Cut at the last bar line, or a last bar that comes to rest.",
        elem_classes="segments",
    )
    top_k, min_p = slider("top_k", "Top-k", 1), slider("min_p", "Min-p", 0.01)
    return _Steering(top_k, min_p, key, density, repetition, presence, recall, ending), key_note
